"""The folders that a child listed, as they are recorded.

What was heard of listings arrives, `(name, digest)` pairs leave. A folder to which somebody else added something after
it was listed, or from which something was taken, is not what was listed: that is said instead.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batch_export.digest import Digest
from batch_export.runner.heard import Heard
from batch_export.runner.opened import Opened
from batch_export.runner.recorded_names import Names
from batch_export.runner.witness import Testimony
from batch_export.sources.asked import ABSENT
from batch_export.sources.closure import is_installed
from batch_export.sources.recorded import (
    CHANGED,
    METADATA_OF,
    UNREADABLE,
    is_listed,
    listing_digest,
    metadata_digest,
)


def listed_elsewhere(told: Testimony, heard: Heard, roots: Collection[Path]) -> set[str]:
    """Returns the folders that were listed by code other than Python's, in this process or one that it started.

    Where another process executes Python, folders from which it may import are left out.

    Args:
        told: by the kernel.
        heard: of this process' Python.
        roots: folders of local modules.
    """
    found = set()
    for name, counts in told.listed.items():
        folder = os.path.abspath(name)
        for process, count in counts.items():
            if process == os.getpid():
                more = count > heard.listings[folder]
            else:
                more = process not in told.interpreters or not _is_imported_from(folder, roots)
            if more:
                found.add(folder)
    return found


def _is_imported_from(folder: str, roots: Collection[Path]) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return True
    return Path(os.path.realpath(folder)) in roots or any(name.endswith(".py") for name in names)


@dataclass(slots=True)
class Listings:
    """Records folders.

    Attributes:
        names: name them.
        heard: of this process' Python.
        avoided: folders that are in no listing.
        opened: what was opened, or made.
        used: the folders that were recorded, without links.
        changed: those that somebody else has changed since they were listed.
    """

    names: Names
    heard: Heard
    avoided: Sequence[Path]
    opened: Mapping[str, Opened]
    used: set[str] = field(default_factory=set)
    changed: list[Path] = field(default_factory=list)

    def digests(self, folders: Collection[str], ending: str = "") -> dict[str, Digest]:
        """Returns what is to be recorded of folders: name -> digest.

        Args:
            folders: their paths.
            ending: `METADATA_OF` where only the distributions count whose metadata is there.
        """
        found: dict[str, Digest] = {}
        for name in sorted(folders):
            real = Path(os.path.realpath(name))
            of_package = is_installed(real)
            if (
                self.names.is_of_run(name)
                or not self.names.may_count(f"{name}{os.sep}")
                or (of_package and name not in self.heard.looked_into)
            ):
                continue
            recorded = str(real) if of_package else self.names.of(self.names.chosen(name, real), os.sep)
            if recorded is None:
                continue
            is_metadata = ending == METADATA_OF
            if os.path.isdir(real) and os.path.isdir(name):
                try:
                    digest = metadata_digest(real) if is_metadata else self._digest(name, real)
                except OSError:
                    digest = UNREADABLE
                found[f"{recorded}{os.sep}{ending}"] = digest
                if further := self.names.of_project(real, f"{os.sep}{ending}"):
                    found[further] = digest
                self.used.add(str(real))
            elif is_metadata and not os.path.exists(real):
                found[f"{recorded}{os.sep}{ending}"] = ABSENT
        return found

    def _digest(self, name: str, real: Path) -> Digest:
        """The digest of a folder's listing, unless somebody else has made it another since it was listed first."""
        entries = frozenset(os.listdir(real))
        changed = self.heard.entries.get(name, entries) ^ entries
        if any(is_listed(real, one, self.avoided) and not self._is_own_doing(name, real, one) for one in changed):
            self.changed.append(real)
            return CHANGED
        return listing_digest(real, self.avoided)

    def _is_own_doing(self, name: str, real: Path, entry: str) -> bool:
        """Whether this process or one that it started made something in a folder, or this process removed it."""
        paths = [os.path.join(folder, entry) for folder in (name, str(real))]
        notes = map(self.opened.get, paths)
        return any(note is not None and note.wrote for note in notes) or not self.heard.removed.isdisjoint(paths)
