"""The files of the verb `export` at their destination: written where they differ, with their data beside or inside, and
those of an earlier export named or removed.

Digests of stored files arrive, files appear, sentences are printed. onnx is imported only to put data inside.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from batch_export.cli.cache import size_text
from batch_export.digest import Digest, digest_file
from batch_export.errors import ArtifactError, RunError
from batch_export.record import Cell
from batch_export.store import Store
from batch_export.store.files import copy_out, handing_out

MOST_IN_ONE = (2 << 30) - (1 << 20)
"""Bytes of a file with its data inside: a protobuf message ends at 2 GiB."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One cell's files, relative to the destination, with their digests; `external` are its data files.

    `stored` says where each lies in the store. `whole` says that the data are inside and the file is in place already,
    `written` that it was not there before.
    """

    cell: Cell
    path: str
    sha256: Digest
    external: dict[str, Digest] = field(default_factory=dict)
    stored: dict[str, Path] = field(default_factory=dict)
    whole: bool = False
    written: bool = False

    @property
    def parts(self) -> dict[str, Digest]:
        """The digests of all its files."""
        return {self.path: self.sha256, **self.external}

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
    sources = {name: store.content.checked(made.stored[name], digest) for name, digest in made.parts.items()}
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
        written = not _has(path, digest)
        if written:
            os.replace(whole, path)
    return replace(made, sha256=digest, external={}, written=written, whole=True)


def outdated(made: Iterable[ExportedFile], dest: Path) -> dict[str, tuple[Path, Digest]]:
    """Returns the files that the destination does not have as they should be: where they lie in the store, and digests.

    Raises:
        RunError: two of them have one name.
    """
    wanted: dict[str, tuple[Path, Digest]] = {}
    for item in made:
        if item.whole:
            continue
        for name, digest in item.parts.items():
            if wanted.setdefault(name, (item.stored[name], digest))[1] != digest:
                raise RunError(
                    f"{name} would be two different files (the exporter writes data per opset). "
                    "Next step: export one opset per destination"
                )
    there = {name for name, (_, digest) in wanted.items() if _has(dest / name, digest)}
    return {name: wanted[name] for name in sorted(wanted.keys() - there)}


def damaged(store: Store, wanted: Iterable[tuple[Path, Digest]]) -> list[str]:
    """Returns a sentence for each stored file that cannot be handed out; the store has let go of it (see `checked`)."""
    found = []
    for path, digest in dict.fromkeys(wanted):
        try:
            store.content.checked(path, digest)
        except ArtifactError as error:
            found.append(str(error))
    return found


def write(store: Store, dest: Path, wanted: Mapping[str, tuple[Path, Digest]]) -> None:
    """Brings files into the destination, as `outdated` returned them.

    Raises:
        ArtifactError: a stored file is damaged or gone.
        StoreError: the destination cannot be written.
    """
    for name, (path, digest) in wanted.items():
        copy_out(store.content.checked(path, digest), dest / name)


def _has(path: Path, digest: Digest) -> bool:
    return path.is_file() and digest_file(path) == digest
