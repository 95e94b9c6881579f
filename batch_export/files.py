"""Writing files so that a reader sees all of one or none: a temporary file, fsync, rename.

Paths and bytes arrive, files leave. Errors stay what the system says; whoever writes knows what the file is and which
sentence to make of them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(path: Path, *, scratch: Path | None = None, durable: bool = False) -> Iterator[BinaryIO]:
    """Yields a stream; what is written to it is at `path` when the block ends well, and nowhere when it does not.

    Args:
        path: where the file appears in one step.
        scratch: a folder of the same file system for the unfinished file; by default that of `path`, which must exist.
        durable: whether the folder's entry is on the disk too before this returns.

    Raises:
        OSError: it cannot be written.
    """
    folder = path.parent if scratch is None else scratch
    temporary = folder / f".{path.name}-{os.getpid()}-{threading.get_ident()}"
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        put_in_place(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        _sync_folder(path.parent)


def put_in_place(written: Path, path: Path) -> None:
    """Renames a finished file to its place, making the folder when it is the first there."""
    try:
        os.replace(written, path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(written, path)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder(variable: str, name: str) -> Path:
    """Returns the folder that an environment variable names, or `batch_export/NAME` in the user's cache folder.

    It may not exist.
    """
    given = os.environ.get(variable, "")
    if given:
        return Path(given).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "batch_export" / name
