"""The files of the verb `export` at their destination: written where they differ, with their data beside or inside, and
those of an earlier export named or removed.

Digests of stored files arrive, files appear, sentences are printed. onnx is imported only to put data inside.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from batch_export.cli.cache import size_text
from batch_export.digest import Digest, digest_file
from batch_export.errors import RunError
from batch_export.record import Cell
from batch_export.store import Store
from batch_export.store.files import copy_out, handing_out

MOST_IN_ONE = (2 << 30) - (1 << 20)
"""Bytes of a file with its data inside: a protobuf message ends at 2 GiB."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One cell's files, relative to the destination, with their digests; `external` are its data files.

    `whole` says that the data are inside and the file is in place already, `written` that it was not there before.
    """

    cell: Cell
    path: str
    sha256: Digest
    external: dict[str, Digest] = field(default_factory=dict)
    whole: bool = False
    written: bool = False

    def entry(self) -> dict[str, Any]:
        """What the manifest says of it: the value on each axis that a file depends on, then the rest."""
        values = {axis: getattr(self.cell, axis) for axis in type(self.cell).axes() if axis != "provider"}
        return {**values, "path": self.path, "sha256": self.sha256, "external": self.external}


class _ListedFile(msgspec.Struct):
    path: str
    external: dict[str, str] = {}


class _Listed(msgspec.Struct):
    """As much of a manifest as says which files it has."""

    files: list[_ListedFile]


def listed(manifest: Path) -> set[str]:
    """The files that a manifest lists; none when there is no manifest that can be read."""
    try:
        entries = msgspec.json.decode(manifest.read_bytes(), type=_Listed).files
    except (OSError, msgspec.MsgspecError):
        return set()
    return {name for entry in entries for name in (entry.path, *entry.external)}


def tell_dropped(dest: Path, dropped: Collection[str], prune: bool) -> None:
    """Names the files that an earlier export left and this one does not have, or removes them."""
    root = dest.resolve()
    for name in sorted(dropped):
        path = (root / name).resolve()
        if not path.is_file() or not path.is_relative_to(root):  # a manifest is a file that anybody can edit
            continue
        if prune:
            path.unlink()
        print(f"{'removed' if prune else 'left over'}  {name}: no longer in the manifest")
        if not prune and name == max(dropped):
            print("`--prune` removes such files")


def in_one(made: ExportedFile, store: Store, dest: Path, limit: int) -> ExportedFile:
    """Writes a file with its data inside, where that is no larger than the limit; otherwise nothing changes."""
    parts = {made.path: made.sha256, **made.external}
    sources = {name: _stored(store, digest) for name, digest in parts.items()}
    size = sum(source.stat().st_size for source in sources.values())
    if not made.external:
        return made
    if size > limit:
        print(f"{made.path}: its data stay beside it, for they take {size_text(size)}")
        return made
    import onnx  # lazy: only this needs it

    path = dest / made.path
    with contextlib.ExitStack() as stack:
        stack.enter_context(handing_out(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=path.parent, prefix=".one-"))
        for name, source in sources.items():
            place = Path(scratch, os.path.relpath(name, Path(made.path).parent))
            copy_out(source, place)
        whole = Path(scratch, "whole.onnx")
        onnx.save_model(onnx.load(Path(scratch, path.name)), whole)
        digest = digest_file(whole)
        written = not path.is_file() or digest_file(path) != digest
        if written:
            os.replace(whole, path)
    return replace(made, sha256=digest, external={}, written=written, whole=True)


def write(store: Store, dest: Path, made: Iterable[ExportedFile]) -> int:
    """Brings the files into the destination; returns how many had to be written."""
    wanted: dict[str, Digest] = {}
    for item in made:
        if item.whole:
            continue
        for name, digest in {item.path: item.sha256, **item.external}.items():
            if wanted.setdefault(name, digest) != digest:
                raise RunError(
                    f"{name} would be two different files (the exporter writes data per opset). "
                    "Next step: export one opset per destination"
                )
    changed = 0
    for name, digest in sorted(wanted.items()):
        path = dest / name
        if path.is_file() and digest_file(path) == digest:
            continue
        copy_out(_stored(store, digest), path)
        changed += 1
    return changed


def _stored(store: Store, digest: Digest) -> Path:
    return store.content.find(digest) or next(store.content.models.glob(f"*/{digest}.onnx"))
