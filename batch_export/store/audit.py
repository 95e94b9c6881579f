"""`cache verify`: reads everything that lies in a store and compares it with its name. Runs beside sweeps.

A store arrives, a report leaves. What is damaged goes to the quarantine and is made again by the next run that needs
it; nothing sound is touched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batch_export.digest import Digest
from batch_export.store import earlier
from batch_export.store.content import POINTER_SUFFIX
from batch_export.store.entry import Entry, read_entry
from batch_export.store.quarantine import content_of, quarantine

if TYPE_CHECKING:
    from batch_export.store.store import Store


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found.

    Attributes:
        entries, files: sound ones.
        corrupted: files whose content was not what their name says, now in quarantine.
        incomplete: entries that name a file which is not there (any more); they do not count as results.
        unnamed: files that no entry names: what killed writers left, for `gc` to remove.
    """

    entries: int
    files: int
    bytes: int
    corrupted: tuple[str, ...]
    incomplete: int
    unnamed: int
    seconds: float

    @property
    def sound(self) -> bool:
        """Whether nothing was corrupted."""
        return not self.corrupted


def audit(store: Store) -> Audit:
    """Reads all files of a store."""
    began = time.monotonic()
    corrupted: list[str] = []
    entries: list[Entry] = []
    for path in sorted(store.actions.glob("*/*.json")):
        entry = read_entry(path)
        key = earlier.key_of(path)
        if entry is None or entry.result.key != key:
            if path.exists():
                corrupted.append(_aside(store, path, key))
        else:
            entries.append(entry)
    files = size = unnamed = 0
    for path, digest in _files(store, entries):
        if digest is None:
            unnamed += 1
            continue
        try:
            found = content_of(path)
        except FileNotFoundError:
            continue  # moved into a model's folder, or collected, while we read
        if found != digest:
            quarantine(store.root, path, digest, found)
            corrupted.append(path.relative_to(store.root).as_posix())
        else:
            files += 1
            size += path.stat().st_size
    incomplete = sum(1 for entry in entries if not store.is_complete(entry))
    return Audit(len(entries), files, size, tuple(corrupted), incomplete, unnamed, round(time.monotonic() - began, 3))


def _aside(store: Store, path: Path, name: str) -> str:
    quarantine(store.root, path, name[:64], content_of(path))
    return path.relative_to(store.root).as_posix()


def _files(store: Store, entries: list[Entry]) -> list[tuple[Path, Digest | None]]:
    """Every file of the content store with the digest that it should have; None where nothing says."""
    content = store.content
    external: dict[Path, Digest] = {}
    for entry in entries:
        model = entry.result.model
        if model is not None:
            folder = content.model_folder(model.external)
            external.update((folder / name, digest) for name, digest in model.external)
    found: list[tuple[Path, Digest | None]] = []
    for path in sorted(content.blobs.glob("*/*")):
        if path.suffix == POINTER_SUFFIX:
            continue
        found.append((path, path.name))
    for path in sorted(content.models.glob("*/*")):
        found.append((path, path.stem if path.suffix == ".onnx" else external.get(path)))
    return found
