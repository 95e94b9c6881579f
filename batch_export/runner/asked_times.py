"""In which order files were changed last, where the user's own code asks for it: `max(paths, key=os.path.getmtime)`.

Frames of calls and paths arrive; what was asked for and `(path, state)` pairs leave. Times themselves differ from
checkout to checkout and say nothing; which of two files is the newer one decides what is loaded, or made anew.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from batch_export.runner.askers import Askers, is_of_library, top_of
from batch_export.sources.asked import ALTERED, CHANGED, order_of, time_of

_NAMES = {
    **dict.fromkeys(("getmtime", "st_mtime", "st_mtime_ns", "ST_MTIME"), CHANGED),
    **dict.fromkeys(("getctime", "st_ctime", "st_ctime_ns", "ST_CTIME"), ALTERED),
}
_BETWEEN = frozenset({"os", "posixpath", "genericpath", "pathlib", "glob", "functools"})
"""Modules by which code asks about paths; others that do so (what shows source lines, say) look for something else."""


def asked_for(frame: FrameType | None, askers: Askers) -> frozenset[str]:
    """What the user's own code may learn of a file's times by a call: `CHANGED`, `ALTERED`, both or nothing.

    Whoever asks for a file's status by one function may compare its times in another one, so that all counts that the
    code's file names, functions that it has from other files and modules of the user's that it names, and the files of
    those who called it. A library counts as far as it was handed a function that gives a time.

    Args:
        frame: the caller's.
        askers: tell whose code it is.
    """
    handed: frozenset[str] = frozenset()
    while frame is not None and top_of(frame) in _BETWEEN:
        handed |= _named([frame.f_code.co_name])
        frame = frame.f_back
    if frame is None:
        return frozenset()
    if askers.is_users_own(frame, directly=True):
        return handed | of_files(frame, askers)
    is_handed = handed and not handed & _named(frame.f_code.co_names)
    return handed if is_handed and askers.is_for_user(frame) else frozenset()


def of_files(frame: FrameType | None, askers: Askers) -> frozenset[str]:
    """Of which times the user's own code that runs in a frame, and whoever called it, may speak.

    Args:
        frame: the caller's.
        askers: tell whose code it is.
    """
    found: frozenset[str] = frozenset()
    while frame is not None and askers.is_users_own(frame, directly=True):
        found |= _of_file(frame)
        frame = frame.f_back
    return found


def _of_file(frame: FrameType) -> frozenset[str]:
    """Of which times code speaks, the file that has it, functions that it gets, and modules of the user's it names."""
    file = frame.f_code.co_filename
    known = file, len(frame.f_globals), len(sys.modules)
    if known not in _OF_FILES:
        functions = (code for code in _functions(list(frame.f_globals.values())) if not is_of_library(code.co_filename))
        named = {path for name, path in _own_modules() if name.rpartition(".")[2] in _words_of(file)}
        words = frozenset().union(*map(_words_of, {file, *named}))
        _OF_FILES[known] = _named(words).union(*map(_within, functions))
    return _within(frame.f_code) | _OF_FILES[known]


def _own_modules() -> Iterator[tuple[str, str]]:
    """The modules so far that are no library's, and their files."""
    for name, module in list(sys.modules.items()):
        path = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(path, str) and not is_of_library(path):
            yield name, path


@functools.cache
def _words_of(file: str) -> frozenset[str]:
    """The names in a module's text, which is read once more for that; of other code there are none."""
    if not (os.path.isabs(file) and file.endswith(".py")):  # nothing is to be looked for in vain
        return frozenset()
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return frozenset(re.findall(r"\w+", stream.read()))
    except (OSError, ValueError):
        return frozenset()


_OF_FILES: dict[tuple[str, int, int], frozenset[str]] = {}
"""What functions speak of, by their file, how many names their module has by then, and how many modules there are."""


def orders(paths: Iterable[str], what: str) -> Iterator[tuple[str, str]]:
    """Yields for each of the files but the oldest one in which order it and the next older one were changed.

    Args:
        paths: of the files.
        what: `CHANGED`, or `ALTERED` where that order is meant.
    """
    found: list[tuple[int, str]] = []
    for path in dict.fromkeys(paths):
        try:
            found.append((time_of(path, what), path))
        except (OSError, ValueError):
            continue
    found.sort()
    for (_, older), (_, newer) in itertools.pairwise(found):
        yield newer, order_of(newer, os.path.relpath(older, os.path.dirname(newer)), what)


def _named(names: Iterable[str]) -> frozenset[str]:
    return frozenset(_NAMES[name] for name in names if name in _NAMES)


def _functions(values: Iterable[Any]) -> Iterator[CodeType]:
    """The codes of functions, and of those that classes have. Objects that stand for others are not asked which."""
    for value in values:
        kind = type(value)
        if issubclass(kind, type):
            yield from _functions(one for one in vars(value).values() if not issubclass(type(one), type))
        elif kind is property:
            yield from _functions([value.fget])
        elif kind in (staticmethod, classmethod):
            yield from _functions([value.__func__])
        elif kind is FunctionType:
            yield getattr(inspect.unwrap(value), "__code__", value.__code__)


@functools.cache
def _within(code: CodeType) -> frozenset[str]:
    texts = (one for one in code.co_consts if isinstance(one, str))
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return _named((*code.co_names, *texts)).union(*map(_within, inner))
