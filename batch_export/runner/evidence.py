"""What a child saw its model use: files, packages, environment variables. One watch over all three.

A cell arrives, plain data for the step's result leaves, with sentences for the reader of the run. It forbids nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from batch_export.digest import Digest
from batch_export.plan.matrix import PlannedCell
from batch_export.runner.asked_about import earlier_packages, in_added_folders, parts_in_added_folders
from batch_export.runner.asked_distributions import AskedDistributions
from batch_export.runner.askers import Askers
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.runner.loaded import LoadedFiles
from batch_export.runner.module_files import file_of
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.read_variables import ReadVariables
from batch_export.runner.used_packages import UsedPackages
from batch_export.sources import distributions, search_path, start_up
from batch_export.sources.asked import ABSENT
from batch_export.sources.closure import PACKAGE
from batch_export.sources.import_names import ImportNames
from batch_export.sources.module_forms import ModuleStates
from batch_export.sources.name_texts import text_of
from batch_export.spec import CORE_EXPORTER_TARGET
from batch_export.store import imports_memo


@dataclass(frozen=True, slots=True)
class Seen:
    """What goes into a result, see `ActionResult`, and what is to be said."""

    sources: tuple[tuple[str, Digest], ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, Digest], ...] = ()
    warnings: tuple[str, ...] = ()


class Evidence:
    """Watches this process.

    Args:
        roots: folders of local modules.
        ignored: folders that are not sources: the store, then others.
        preloaded: what was imported when the process was forked.
        layer: folder of the environment of its own that this process runs in, whose packages are in the keys; empty:
            it is the run's.
    """

    def __init__(self, roots: Sequence[Path], ignored: Sequence[Path], preloaded: Preloaded, layer: str = "") -> None:
        self._layer = layer
        self._roots = tuple(roots)
        self._askers, self._notes = Askers(preloaded.tops()), ForkedNotes()
        self._files = LoadedFiles(roots, ignored, preloaded.files, self._askers, self._notes)
        self._packages = UsedPackages(preloaded, ImportNames(imports_memo(ignored[0])))
        self._variables = ReadVariables(self._askers, preloaded.environment, preloaded.variables, self._notes)
        self._distributions = AskedDistributions(self._askers, self._notes)

    def watch(self, channel: socket.socket | None) -> None:
        """Starts watching, before anything of the model's is imported.

        Args:
            channel: leads to the process that hears what the kernel says; None: there is none.
        """
        search_path.keep()
        self._notes.open()
        self._askers.watch()
        self._variables.watch()
        self._distributions.watch()
        self._files.watch(channel)

    def of_step(self, cell: PlannedCell, *, failed: bool = False) -> Seen:
        """Returns what a step that ran the cell's model has used, together with the steps before it."""
        self._notes.gather()
        targets = [cell.model.target]
        if cell.exporter.target != CORE_EXPORTER_TARGET:
            targets.append(cell.exporter.target)
        sought = self._distributions.tops()
        found = self._distributions.local_files()
        by_path = self._distributions.goes_by_path
        sources = self._files.sources(self._distributions.folders, found, by_path=by_path, failed=failed)
        asked = self._files.asked(failed=failed)
        missing = self._files.missing.tops
        packages = self._packages.packages(
            targets, {*cell.model.requires, *missing}, self._files.modules(), self._files.of_packages, sought
        )
        shared = {f"{distributions.WITHOUT_METADATA}{name}" for name in self._files.missing.shared}
        absent = {name: distributions.state(name) for name in shared}
        all_of_them = (distributions.ALL,) if self._files.has_started_python else ()
        started = {name: distributions.state(name) for name in (*start_up.NAMES, *all_of_them)}
        packages = tuple(sorted({**dict(packages), **self._distributions.states(), **absent, **started}.items()))
        imported = self._packages.tops(self._files.modules()) | sought
        tops = (*start_up.MODULES, *sorted(imported))
        all_of_model = imported | {name.partition(".")[0] for name in self._files.modules()} - {PACKAGE.name}
        modules = ModuleStates(self._roots)
        others = earlier_packages({*tops, *all_of_model}, file_of, self._layer)
        others |= set(map(self._files.name_of_place, in_added_folders(all_of_model, missing, file_of)))
        instead = {(top, modules.of(top)) for top in (*tops, *others)}  # they would be imported in their place
        parts = parts_in_added_folders(all_of_model, file_of)
        instead |= {(self._files.name_of_place(place), ABSENT) for place in parts}
        asked = tuple(sorted(instead.union(asked)))
        if self._layer:
            packages = distributions.outside(packages, self._layer)
        variables = self._variables.variables(self._files.used(), self._roots, self._files.opened())
        return Seen(_as_texts(sources), _as_texts(asked), packages, _as_texts(variables), tuple(self._warnings()))

    def of_ours(self) -> Seen:
        """Returns nothing: the step ran no code of the model's, and what it opened and imported is not the model's."""
        self._files.set_aside()
        self._packages.set_aside()
        return Seen()

    def _warnings(self) -> list[str]:
        told = [
            f"{text_of(name)} changed while a model read it, or after: what was made of it is not used again. "
            "Next step: run again once it is at rest"
            for name in self._files.changed
        ]
        told += [
            f"{text_of(name)} is a pipe or a device: nobody can read again what a model reads there, so what was made "
            "of it is not used again. Next step: let the model read a file"
            for name in self._files.passing
        ]
        self._files.changed.clear()
        self._files.passing.clear()
        if self._files.unseen:
            told.append(
                f"the kernel cannot tell which files models open ({self._files.unseen}): of files that neither Python "
                "opens nor arguments name, changes may not be noticed. Next step: name such files and folders in the "
                "model's arguments"
            )
        return told


def _as_texts(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((text_of(name), what) for name, what in pairs)
