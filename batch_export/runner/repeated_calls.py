"""Calls of `os` that a signal has ended are made again, without signals.

Nothing arrives; the functions of `os` that take a path leave with that habit. A call that the kernel holds until a
listener has answered, and that nobody has seen yet, is ended by a signal that this process handles (EINTR), also one
that never is otherwise: `os.stat`, `os.listdir`, an import. Whoever asks takes that for a file which is not there, as a
`DataLoader`'s worker ends (SIGCHLD) or a clock rings. The handler runs before the call is made again, and what it
raises ends the call, as it does for `open` (PEP 475). Signals themselves stay as they are: with SA_RESTART, by which
the kernel begins such a call again itself, a handler would wait for whatever the main thread waits for.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from batch_export.runner.functions_of_os import ToldFunction

_OF_A_PATH = (
    *("stat", "lstat", "listdir", "readlink", "statvfs", "getxattr", "listxattr", "setxattr", "removexattr"),
    *("chdir", "mkdir", "mkfifo", "mknod", "rmdir", "remove", "unlink", "rename", "replace", "link", "symlink"),
    *("truncate", "chmod", "chown", "lchown", "utime", "execv", "execve"),
)
"""Functions that say it by an exception when a signal has ended the call."""
_LEAVING = frozenset({"execv", "execve"})
"""Those that do not come back: the signals that are kept back would stay so."""
_OF_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")
_KEPT_BACK = signal.valid_signals() - {getattr(signal, name) for name in _OF_FAULTS if hasattr(signal, name)}
SUPPORTED = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)
"""What tells which functions take which arguments."""


def begin() -> None:
    """Puts such functions in place of those of `os`, and of the module of C's that imports go by; no way to stop."""
    _replace("access", _undisturbed)  # which does not say why it says no
    _replace("scandir", _listed_at_once)
    for name in _OF_A_PATH:
        _replace(name, _made_again)


def caller_of(frame: FrameType | None) -> FrameType | None:
    """The frame of the code that called a function of `os`.

    Args:
        frame: that from which C's function was called.
    """
    while frame is not None and frame.f_code in _CODES:
        frame = frame.f_back
    return frame


def _replace(name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    own = getattr(os, name, None)
    if own is None:
        return
    instead = ToldFunction(own, made(own))
    for functions in SUPPORTED:
        functions.update({instead} if own in functions else ())
    for module in (os, sys.modules.get(os.name)):
        if getattr(module, name, None) is own:
            setattr(module, name, instead)


def _made_again(own: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **named: Any) -> Any:
        try:
            return own(*args, **named)
        except InterruptedError as error:
            if _is_raised_elsewhere(error):
                raise  # by a handler
        return undisturbed(*args, **named)

    undisturbed = own if own.__name__ in _LEAVING else _undisturbed(own)
    return called


def _undisturbed(own: Callable[..., Any]) -> Callable[..., Any]:
    """Calls with signals kept back from this thread: several calls of the kernel may never all come to their end."""

    def called(*args: Any, **named: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT_BACK)
        try:
            return own(*args, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return called


def _is_raised_elsewhere(error: InterruptedError) -> bool:
    """Whether code of Python's raised it, and no function of C's that is called here."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code not in _CODES


def _listed_at_once(own: Callable[..., Any]) -> Callable[..., Any]:
    def read(*args: Any, **named: Any) -> list[os.DirEntry[Any]]:
        with own(*args, **named) as entries:
            return list(entries)

    again = _made_again(read)

    def listed(*args: Any, **named: Any) -> _Entries:
        return _Entries(again(*args, **named))

    return listed


class _Entries:
    """What `os.scandir` gives, read to its end: a listing that a signal has ended can only be begun anew."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._left = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._left)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._left = iter(())


def _codes_of(*made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[CodeType]:
    for one in made:
        pending = [one.__code__]
        while pending:
            code = pending.pop()
            yield code
            pending += [const for const in code.co_consts if isinstance(const, CodeType)]


_CODES = frozenset((*_codes_of(_made_again, _undisturbed, _listed_at_once), ToldFunction.__call__.__code__))
