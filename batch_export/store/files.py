"""Writing files so that a reader sees all of one or none: temporary file, fsync, rename. And copies that share blocks.

Bytes and paths arrive, files leave. Nothing here knows what a digest, an action or a model is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from batch_export.errors import StoreError
from batch_export.files import put_in_place, whole_file

_FICLONE = 0x40049409
"""Linux' ioctl that makes a file share another's blocks (`linux/fs.h`)."""
_READABLE = 0o644


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turns an `OSError` into a `StoreError` that names `path`, the reason and what to do about it."""
    try:
        yield
    except OSError as error:
        raise StoreError(_sentence(path, error)) from error


@contextlib.contextmanager
def handing_out(path: Path) -> Iterator[None]:
    """Turns an `OSError` about a file outside the store into a `StoreError` that names the folder."""
    try:
        yield
    except OSError as error:
        first = "free space in" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "look at"
        step = f"{first} {path.parent}, or name another folder, and run the command again"
        raise StoreError(
            f"{path} could not be written: {error.strerror or error}. Next step: {step}; the store keeps what was made"
        ) from error


def _sentence(path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        step = "free space on that disk, or run `batch-export cache gc --max-size=...`"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        step = "choose a folder that you may write to, with `store.path=...`"
    else:
        step = "look at the disk, or choose another folder with `store.path=...`"
    return f"the store could not write {path}: {reason}. Next step: {step}"


def write_atomic(path: Path, data: bytes, scratch: Path) -> None:
    """Puts `data` at `path` in one step; `scratch` is a folder of the same file system."""
    with storing(path), whole_file(path, scratch=scratch) as stream:
        os.fchmod(stream.fileno(), _READABLE)
        stream.write(data)


def move_in(source: Path, path: Path, scratch: Path) -> None:
    """Moves `source` to `path` in one step; from another file system by way of a copy in `scratch`."""
    with storing(path):
        with source.open("rb+") as stream:
            os.fsync(stream.fileno())
        try:
            source.chmod(_READABLE)
            put_in_place(source, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy_in(source, path, scratch)
            source.unlink()


def make_independent(path: Path) -> None:
    """Replaces a link, or a file with another name besides, by a copy, which nobody else writes."""
    with storing(path):
        if path.is_symlink() or path.stat().st_nlink > 1:
            copy_in(path, path, path.parent)


def copy_in(source: Path, path: Path, scratch: Path) -> None:
    """Copies `source` to `path` in one step, sharing blocks where the file system can; never a link."""
    with storing(path):
        _copy(source, path, scratch)


def copy_out(source: Path, path: Path) -> None:
    """Copies a stored file to a place outside the store, in one step; the folder is made when it does not exist."""
    with handing_out(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(source, path, path.parent)


def _copy(source: Path, path: Path, scratch: Path) -> None:
    with whole_file(path, scratch=scratch) as target, source.open("rb") as stream:
        os.fchmod(target.fileno(), _READABLE)
        if not _clone(stream.fileno(), target.fileno()):
            shutil.copyfileobj(stream, target, 1 << 20)


def _clone(source: int, target: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl  # lazy: the module exists on POSIX only

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
