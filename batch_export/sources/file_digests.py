"""Digests of files and folders on the disk, each read once as long as its time, size and inode stay.

Paths arrive, digests leave. Within a process they are remembered in memory; those of large files and of folders also in
small files in a folder that `remember_in` names, so that an unchanged sweep reads no checkpoint twice. Files that may
change without their time changing are not remembered (`file_times`): those written within the last minute, and those in
memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from batch_export.digest import Digest, digest_file, digest_value
from batch_export.nouns import counted
from batch_export.sources.file_times import NEVER, is_settled, last_change, stamp_of

REMEMBERED_FROM_BYTES = 1 << 20
LARGE_BYTES, LARGE_FILES = 1 << 30, 10_000
"""Reading more than that takes a while, which is said."""
WHOLE_BYTES, WHOLE_FILES = 4 << 30, 20_000
"""Of a folder with more than that only names and sizes are in its digest."""
BYTECODE_SUFFIXES = (".pyc", ".pyo")
LEFT_BEHIND_SUFFIXES = (".lock", ".log")
"""What those who use a folder leave in it; as data such files may be read too."""
_LOCK = LEFT_BEHIND_SUFFIXES[0]
_SIDE_SUFFIXES = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a database while it is open."""
_LOCK_OF_EDITORS = ".#"
"""Begins the name of a link to nowhere that says who edits a file."""
_FOLDER, _LINK = "folder", "link "
_MAGIC = b"SQLite format 3\0"
_LONG_RECORD_BYTES = 1 << 16
_OF_INSTALLERS = re.compile(
    r"^\"?(?:\.\.|/)|\.py[co]\"?,|\.dist-info/(?:INSTALLER|REQUESTED|RECORD|direct_url\.json|uv_[a-z]+\.json)\"?,"
)
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__"})


class _Remembered:
    """Where this process remembers digests from run to run, and who is told that reading takes a while."""

    folder: Path | None = None
    tell: Callable[[str], None] = staticmethod(lambda _: None)


def remember_in(folder: Path, tell: Callable[[str], None] | None = None) -> None:
    """Makes this process remember digests in `folder`, and tell `tell` when reading takes a while.

    What it remembered in its own memory is forgotten, so that one process may run several sweeps.
    """
    _Remembered.folder = folder
    _file_digest.cache_clear()
    _record_digest.cache_clear()
    _was_database.cache_clear()
    if tell is not None:
        _Remembered.tell = staticmethod(tell)


def file_digest(path: Path) -> Digest:
    """Returns the digest of a file's bytes."""
    status = path.stat()
    return _file_digest(os.path.abspath(path), stamp_of(status), status.st_size, last_change(status))


def content_digest(path: Path) -> Digest:
    """Returns the digest of a file's bytes; of a database's also what SQLite has written beside it for the time being.

    A reader of the database reads both, and the file itself may stay as it is for long.
    """
    status = path.stat()
    name, stamp = os.path.abspath(path), stamp_of(status)
    digest = _file_digest(name, stamp, status.st_size, last_change(status))
    if _was_database(name, stamp):
        log = Path(f"{os.path.realpath(path)}-wal")
        with contextlib.suppress(OSError):  # the usual case: there is none
            if log.stat().st_size:
                return digest_value([digest, file_digest(log)])
    return digest


@cache
def _was_database(path: str, _: str) -> bool:
    """Whether it is a database, asked once as long as its time, size and inode stay."""
    return _is_database(Path(path))


def is_side_file(path: str) -> bool:
    """Whether it is what SQLite keeps beside a database for the time being, which is part of that one's content."""
    suffix = next((one for one in _SIDE_SUFFIXES if path.endswith(one)), None)
    return suffix is not None and _is_database(Path(path.removesuffix(suffix)))


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


@cache
def _file_digest(path: str, stamp: str, size: int, newest: int) -> Digest:
    if size < REMEMBERED_FROM_BYTES:
        return digest_file(Path(path))
    known = _recall(path, stamp)
    if known is not None:
        return known
    if size >= LARGE_BYTES:
        often = "each time: it is in memory" if newest == NEVER else "once for as long as it does not change"
        _Remembered.tell(f"reading {path} ({size / 1e9:.1f} GB), {often}")
    found = digest_file(Path(path))
    if stamp_of(os.stat(path)) == stamp:
        _remember(path, stamp, newest, found)
    return found


def folder_digest(path: Path, avoided: Collection[Path] = ()) -> Digest:
    """Returns the digest of a folder's files by name and content, of its folders by name and of its links by what they
    say; those in its folders included.

    Of a very large one (`WHOLE_FILES`, `WHOLE_BYTES`) names and sizes stand for the content. Caches and empty locks
    are left out; a file that cannot be read counts as that.

    Args:
        path: the folder.
        avoided: folders that are left out where they lie in it.
    """
    aside = frozenset(os.path.realpath(one) for one in avoided)
    start = len(os.path.join(path, ""))
    forms: list[tuple[str, str]] = []
    found = sorted(((name[start:], status) for name, status in _files(str(path), aside, forms)), key=_name)
    others = sorted((name[start:], form) for name, form in forms)
    sizes = sum(status.st_size for _, status in found)
    what = f"{path} ({counted(len(found), 'file')}, {sizes / 1e9:.1f} GB)"
    if len(found) > WHOLE_FILES or sizes > WHOLE_BYTES:
        _Remembered.tell(f"of {what} names and sizes are compared, and the content of the files that a model opens")
        return digest_value([[(name, status.st_size) for name, status in found], others])
    stamp = digest_value([[(name, stamp_of(status)) for name, status in found], others])
    place = f"{os.path.abspath(path)}{os.sep}"
    known = _recall(place, stamp)
    if known is not None:
        return known
    if len(found) > LARGE_FILES or sizes > LARGE_BYTES:
        _Remembered.tell(f"reading {what}, once for as long as nothing in it changes")
    digest = digest_value([[(name, _content(path / name)) for name, _ in found], others])
    _remember(place, stamp, max((last_change(status) for _, status in found), default=0), digest)
    return digest


def files_digest(folder: Path, names: Sequence[str]) -> Digest:
    """Returns the digest of certain files in a folder by name and content; one that cannot be read counts as that."""
    stamp = digest_value([(name, _stamp_at(folder / name)) for name in names])
    place = f"{os.path.abspath(folder)}{os.sep}{digest_value(names)}"
    known = _recall(place, stamp)
    if known is not None:
        return known
    digest = digest_value([(name, _content(folder / name)) for name in names])
    _remember(place, stamp, max((_last_change_at(folder / name) for name in names), default=0), digest)
    return digest


def record_digest(path: Path) -> Digest:
    """Returns the digest of what an installed distribution's RECORD lists, in any order.

    Byte code, scripts and what installers leave there differ from one environment to the next.

    Raises:
        OSError: there is none.
    """
    status = path.stat()
    return _record_digest(str(path), stamp_of(status), last_change(status), status.st_size)


@cache
def _record_digest(path: str, stamp: str, newest: int, size: int) -> Digest:
    place = f"{path}{os.sep}lines"
    known = _recall(place, stamp) if size >= _LONG_RECORD_BYTES else None
    if known is not None:
        return known
    lines = Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    found = sorted(line for line in lines if not _OF_INSTALLERS.search(line))
    digest = digest_value("\n".join(found))
    if size >= _LONG_RECORD_BYTES:
        _remember(place, stamp, newest, digest)
    return digest


def _name(entry: tuple[str, os.stat_result]) -> str:
    return entry[0]


def _content(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _files(
    folder: str, avoided: frozenset[str], forms: list[tuple[str, str]], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, os.stat_result]]:
    """Yields path and status of the regular files in a folder; links are followed, never in a circle.

    Args:
        folder: where.
        avoided: folders that are left out.
        forms: gets the paths of folders and links, each with what it is.
        above: the folders above this one.
    """
    real = os.path.realpath(folder)
    if real in avoided:
        return
    if above:
        forms.append((folder, _FOLDER))
    if real in above:
        return
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name in _LEFT_OUT or entry.name.endswith(BYTECODE_SUFFIXES):
            continue
        link = _link(entry)
        try:
            status = entry.stat()
            if is_side_file(entry.path) and not (status.st_size and entry.name.endswith("-wal")):
                continue
        except OSError:  # a link to nowhere, or to where nobody may look
            if link and not (entry.name.endswith(_LOCK) or entry.name.startswith(_LOCK_OF_EDITORS)):
                forms.append((entry.path, link))
            continue
        if stat.S_ISREG(status.st_mode) and not status.st_size and entry.name.endswith(_LOCK):
            continue
        if link:
            forms.append((entry.path, link))
        if stat.S_ISDIR(status.st_mode):
            yield from _files(entry.path, avoided, forms, (*above, real))
        elif stat.S_ISREG(status.st_mode):
            yield entry.path, status


def _link(entry: os.DirEntry[str]) -> str:
    """What a link says; empty where there is none."""
    try:
        return _LINK + os.readlink(entry.path) if entry.is_symlink() else ""
    except OSError:
        return ""


def _stamp_at(path: Path) -> str:
    try:
        return stamp_of(path.stat())
    except OSError:
        return ""


def _last_change_at(path: Path) -> int:
    try:
        return last_change(path.stat())
    except OSError:
        return 0


def _place(path: str) -> Path | None:
    return None if _Remembered.folder is None else _Remembered.folder / f"{digest_value(path)}.json"


def _recall(path: str, stamp: str) -> Digest | None:
    place = _place(path)
    if place is None:
        return None
    try:
        before, digest = msgspec.json.decode(place.read_bytes(), type=tuple[str, Digest])
    except (OSError, msgspec.MsgspecError):
        return None
    return digest if before == stamp else None


def _remember(path: str, stamp: str, newest: int, digest: Digest) -> None:
    place = _place(path)
    if place is None or not is_settled(newest):
        return
    with contextlib.suppress(OSError):  # it is read again next time
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.encode((stamp, digest)))
        os.replace(temporary, place)
