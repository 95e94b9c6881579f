"""Which distributions the user's code, or a library's function that it calls, asks `importlib.metadata` for: a version,
entry points, whether one is there; and which modules of installed packages are looked for and not imported
(`find_spec("flash_attn") is not None`).

Names and folders leave. Nothing of them need be imported for the answer to decide what a model is. Which metadata
packages ask for when they are imported is not counted: many look all of them over, and nothing in the model goes by it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from batch_export.runner.askers import Askers
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.sources import distributions
from batch_export.sources.path_shape import archives


class AskedDistributions:
    """Watches this process, as a finder that finds nothing: whoever looks for metadata asks all of `sys.meta_path`.

    That is so for `importlib.metadata` and for the package `importlib_metadata`, whenever that is imported.

    Args:
        askers: tell whose questions count.
        notes: what processes that this one forks hear; None: they are not heard.
    """

    def __init__(self, askers: Askers, notes: ForkedNotes | None = None) -> None:
        notes = notes or ForkedNotes()
        self._askers = askers
        self._asked: set[str] = notes.shared("distributions")
        self._sought: set[str] = notes.shared("modules that are looked for")
        self.folders: set[str] = notes.shared("folders of metadata")
        """Where metadata was looked for; the model may have put them on the path itself."""

    def watch(self) -> None:
        """Starts watching; there is no way to stop."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Notes which module is looked for (`importlib.util.find_spec`); finds none."""
        if self._askers.count(sys._getframe(1), importing=True):
            self._sought.add(name)

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Notes what is looked for; finds nothing.

        Args:
            context: has a `name`, which is None where all are asked for, and a `path`, the folders.
        """
        frame = sys._getframe(1)
        if self._askers.is_users_own(frame) or self._askers.is_called_by_user(frame):
            self._asked.add(distributions.ALL if context.name is None else distributions.normal(context.name))
            self.folders.update(map(os.path.abspath, context.path))
        return iter(())

    def states(self) -> dict[str, str]:
        """Returns names and present states of what was asked for so far, modules that nobody imported among it."""
        modules = map(distributions.FORM.__add__, self._there())
        return {name: distributions.state(name) for name in {*self._asked, *modules}}

    @property
    def goes_by_path(self) -> bool:
        """Whether metadata of all distributions was looked for, wherever it may be, or a module that an archive has."""
        if distributions.ALL in self._asked:
            return True
        begun = tuple(f"{archive}{os.sep}" for archive in archives())
        sought = [name for name in self._sought if name not in sys.modules] if begun else []
        return any((distributions.origin_of(name) or "").startswith(begun) for name in sought)

    def tops(self) -> set[str]:
        """Returns the top-level names of the modules that were looked for and not imported."""
        return {name.partition(".")[0] for name in self._sought if name not in sys.modules}

    def local_files(self) -> set[str]:
        """Returns the files of local modules that were looked for and not imported."""
        found = (distributions.file_of(name) for name in self._sought if name not in sys.modules)
        return {file for file in found if file is not None}

    def _there(self) -> set[str]:
        return {name for name in self._sought if name not in sys.modules and distributions.is_there(name)}
