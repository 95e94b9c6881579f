"""Entries with all that they name, on their way between stores: what a remote store holds, and tar files.

Both have one layout: `actions/ab/<key>.json` and `blobs/ab/<digest>`, ONNX files and external data among the blobs.
Bytes from elsewhere arrive, verified entries and files in the content store leave; no path is ever taken from them.
"""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from batch_export.digest import Digest
from batch_export.errors import StoreError
from batch_export.files import whole_file
from batch_export.store.adopt import adopt
from batch_export.store.entry import encode_entry
from batch_export.store.files import handing_out

if TYPE_CHECKING:
    from batch_export.store.store import Store


_ACTION = re.compile(r"actions/[0-9a-f]{2}/([0-9a-f]{64})\.json")
_BLOB = re.compile(r"blobs/[0-9a-f]{2}/([0-9a-f]{64})")
_MAX_ENTRY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Moved:
    """How many results an export or import took, and how many it left out."""

    entries: int
    left_out: int
    bytes: int


def export_tar(store: Store, path: Path, keys: Collection[Digest] | None, local_only: Collection[str]) -> Moved:
    """Writes results and all that they name to a tar file.

    Args:
        store: the store.
        path: the tar file.
        keys: of the results; None: all.
        local_only: mnemonics that stay here.
    """
    path = path.absolute()
    with handing_out(path), _opened(path) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        return _packed(store, tar, keys, local_only)


def _opened(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """The file, which appears when it is whole; a pipe or a device is written as it is."""
    special = path.exists() and not path.is_file()
    return path.open("wb") if special else whole_file(path)


def _packed(store: Store, tar: tarfile.TarFile, keys: Collection[Digest] | None, local_only: Collection[str]) -> Moved:
    written: set[Digest] = set()
    entries = left_out = size = 0
    for place, entry in store.entries():
        key = entry.result.key
        if place != store.entry_path(key) or (keys is not None and key not in keys):
            continue
        if entry.result.mnemonic in local_only or entry.result.attempts or not store.is_complete(entry):
            left_out += 1
            continue
        for digest, file in store.content.files_of(entry.result):
            if digest not in written:
                written.add(digest)
                size += file.stat().st_size
                with file.open("rb") as stream:
                    _add(tar, f"blobs/{digest[:2]}/{digest}", stream, file.stat().st_size)
        data = encode_entry(replace(entry, run=""))
        _add(tar, f"actions/{key[:2]}/{key}.json", io.BytesIO(data), len(data))
        entries += 1
    return Moved(entries, left_out, size)


def import_tar(store: Store, path: Path) -> Moved:
    """Takes over the results of a tar file that `export_tar` wrote; members of any other name are left alone.

    Raises:
        StoreError: the file cannot be read as such.
    """
    entries = left_out = size = 0
    scratch = store.scratch()
    try:
        with tarfile.open(path, "r:") as tar:
            members = {member.name: member for member in tar.getmembers() if member.isfile()}

            def fetch(digest: Digest, target: Path) -> bool:
                member = members.get(f"blobs/{digest[:2]}/{digest}")
                source = tar.extractfile(member) if member is not None else None
                if source is None:
                    return False
                with target.open("wb") as stream:
                    while chunk := source.read(1 << 20):
                        stream.write(chunk)
                return True

            for name, member in members.items():
                found = _ACTION.fullmatch(name)
                source = tar.extractfile(member) if found and member.size <= _MAX_ENTRY_BYTES else None
                if found is None or source is None:
                    left_out += not _BLOB.fullmatch(name)
                    continue
                try:
                    entry = adopt(source.read(), found[1], store.content, fetch, scratch)
                except StoreError:
                    entry = None
                if entry is None:
                    left_out += 1
                    continue
                store.write_entry(entry)
                entries += 1
                size += sum(entry.sizes.values())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise StoreError(
            f"{path} cannot be read as an exported store: {error}. Next step: name a file that `cache export` wrote"
        ) from error
    finally:
        store.discard(scratch)
    return Moved(entries, left_out, size)


def _add(tar: tarfile.TarFile, name: str, stream: io.BufferedReader | io.BytesIO, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    tar.addfile(info, stream)
