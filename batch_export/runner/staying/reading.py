"""What this process has read and looked for since it began: files, folders, names of modules. So a server can tell
whether anything that it has in memory would come out differently if it were read now.

Watched by Python's audit hooks, as a finder that finds nothing, and in place of the functions that ask about files, of
which no hook tells; names of what has changed leave. A file's stamp is
taken before it is opened, so an edit while it is read shows later. What was read before the watch began, or by other
code than Python's (shared libraries), is taken down afterwards: it must be older than the process.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import source_from_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from batch_export.runner.module_files import file_of
from batch_export.runner.opened import mapped_files
from batch_export.sources.closure import PACKAGE, is_installed

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_SLACK_NS = 1_000_000_000
"""A file system's clock may go behind the process's."""
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_OF_PACKAGES = (".dist-info", ".egg-info", ".egg-link", ".egg", ".pth")
_CUSTOM = ("sitecustomize", "usercustomize")
_CACHE = "__pycache__"
_ASKING = ("stat", "lstat", "access", "readlink")
_STAT = os.stat

Stamp = tuple[int, int, int, int, int]


class Reading:
    """Watches this process; `watch` starts it, `finish` ends it.

    Args:
        began_ns: a moment before the process began, in nanoseconds since 1970.
    """

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._files: dict[str, Stamp | None] = {}
        self._made: set[str] = set()
        self._sought: dict[str, set[str]] = {}
        self._folders: dict[str, frozenset[str] | None] = {}
        self._kinds: dict[str, int] = {}
        self._late: set[str] = set()
        self._asking: dict[str, Callable[..., Any]] = {}
        self._watching = False

    def watch(self) -> None:
        """Starts watching, and takes down what has been read so far."""
        self._take_late(_module_files())
        for name in list(sys.modules):
            package, _, tail = name.rpartition(".")
            self._seek(tail, sys.path if not package else getattr(sys.modules.get(package), "__path__", ()))
        for folder, names in list(self._folders.items()):
            self._take_late(os.path.join(folder, name) for name in names or () if name.endswith(".pth"))
        self._watching = True
        sys.addaudithook(self._hook)
        sys.meta_path.insert(0, self)
        for name in _ASKING:
            self._asking[name] = getattr(os, name)
            self._put(name, self._noting(self._asking[name]))

    def finish(self) -> None:
        """Ends the watch; libraries that have come into memory meanwhile are taken down."""
        self._watching = False
        sys.meta_path.remove(self)
        for name, asking in self._asking.items():
            self._put(name, asking)
        self._take_late({*mapped_files(), *_module_files()} - self._files.keys())

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Notes that a module was looked for, and where; it is for the finders that come after to find it."""
        del target
        self._seek(name.rpartition(".")[2], sys.path if path is None else path)
        return None

    def changed(self) -> Iterator[str]:
        """Yields what would be read differently now, each once."""
        for name in _CUSTOM:
            if name in sys.modules and not _is_of_the_system(file_of(name)):
                yield f"{name}, which every start of Python imports (what it reads is not known)"
        for path, stamp in self._files.items():
            now = _stamp(path)
            if now != stamp or (now and path in self._late and now[4] > self._began_ns - _SLACK_NS):
                yield path
        for path, kind in self._kinds.items():
            if _kind(path) != kind:
                yield path
        for folder, names in self._folders.items():
            if self._listing(folder) != self._counting(folder, names):
                yield f"{folder}{os.sep}"

    def _noting(self, asking: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a note of what it is asked about."""

        @functools.wraps(asking)
        def noted(path: object, *arguments: object, **keywords: object) -> object:
            if self._watching and keywords.get("dir_fd") is None and isinstance(path, str | bytes | os.PathLike):
                name = os.path.abspath(os.fsdecode(path))
                known = name in self._kinds or name in self._files or self._is_made(name)
                if not known and not name.startswith(_SYSTEM):
                    self._kinds[name] = _kind(name)
            return asking(path, *arguments, **keywords)

        return noted

    @staticmethod
    def _put(name: str, asking: Callable[..., Any]) -> None:
        """Puts a function of `os` in its place; whoever asks what it can do is told the same as of the one before."""
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if getattr(os, name) in able:
                able.add(asking)
        setattr(os, name, asking)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if self._watching and isinstance(arguments[0], str | bytes | os.PathLike):
                self._open(os.path.abspath(os.fsdecode(arguments[0])), arguments[2] or 0)
        elif event in ("os.listdir", "os.scandir", "os.mkdir") and self._watching:
            folder = os.curdir if arguments[0] is None else arguments[0]
            if isinstance(folder, str | bytes | os.PathLike):
                path = os.path.abspath(os.fsdecode(folder))
                if event != "os.mkdir":
                    self._list(path)
                else:
                    self._make(path)

    def _open(self, path: str, flags: int) -> None:
        if path.startswith(_SYSTEM):
            return
        if flags & _WRITING:
            self._make(path)
        if os.path.basename(os.path.dirname(path)) == _CACHE:
            try:
                path = source_from_cache(path)  # made of the source, which is not opened itself
            except ValueError:
                return
        if stat.S_ISDIR(_kind(path)):
            self._list(path)
        elif path not in self._files and not self._is_made(path):
            self._files[path] = _stamp(path)

    def _list(self, folder: str) -> None:
        known = folder in self._folders or os.path.basename(folder) == _CACHE or self._is_made(folder)
        if not known and not f"{folder}{os.sep}".startswith(_SYSTEM):
            self._folders[folder] = None  # now known: listing it comes here again
            self._folders[folder] = _names(folder)

    def _make(self, path: str) -> None:
        """Notes that this process is about to make something, unless it is there: then it is not ours."""
        if not _kind(path):
            self._made.add(path)
            self._kinds.pop(path, None)

    def _is_made(self, path: str) -> bool:
        """Whether this process has made it, or a folder that it lies in; it makes few."""
        return any(path == made or path.startswith(f"{made}{os.sep}") for made in self._made)

    def _seek(self, tail: str, path: Iterable[str]) -> None:
        for entry in list(path):
            folder = os.path.abspath(entry)
            self._sought.setdefault(folder, set()).add(tail)
            if stat.S_ISREG(_kind(folder)):
                self._files.setdefault(folder, _stamp(folder))  # a zip file
            else:
                self._list(folder)

    def _listing(self, folder: str) -> frozenset[str] | None:
        return self._counting(folder, _names(folder))

    def _counting(self, folder: str, names: frozenset[str] | None) -> frozenset[str] | None:
        """The names that matter: in a folder of the user's, which also holds outputs, those of modules looked for."""
        if names is None or folder not in self._sought or _is_of_packages(folder):
            return names
        sought = self._sought[folder]
        return frozenset(name for name in names if name.partition(".")[0] in sought or name.endswith(_OF_PACKAGES))

    def _take_late(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path not in self._files and not path.startswith(_SYSTEM):
                self._files[path] = _stamp(path)
                self._late.add(path)


def _module_files() -> set[str]:
    return {name for name in map(file_of, list(sys.modules)) if name}


def _stamp(path: str) -> Stamp | None:
    try:
        status = _STAT(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _kind(path: str) -> int:
    """What is there: a file, a folder, ...; 0: nothing. Links are followed, as those who ask mostly do."""
    try:
        return stat.S_IFMT(_STAT(path).st_mode)
    except (OSError, ValueError):
        return 0


def _names(folder: str) -> frozenset[str] | None:
    try:
        return frozenset(os.listdir(folder)) - {_CACHE}
    except OSError:
        return None


def _is_of_packages(folder: str) -> bool:
    return is_installed(Path(folder)) or f"{folder}{os.sep}".startswith(f"{PACKAGE}{os.sep}")


def _is_of_the_system(file: str | None) -> bool:
    return file is not None and file.startswith("/usr/lib/")
