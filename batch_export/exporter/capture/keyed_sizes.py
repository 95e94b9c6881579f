"""Free sizes as keys of dicts and members of sets: `if n not in self.cache`, `cache[height, width] = table`.

Nothing arrives. Leaves: a context in which a model's code may look for them and keep things under them. A symbolic size
has no hash, since equal ones may have different symbols; here it has that of its number in the example, and what Python
does not compare for that reason, keys of other numbers, is compared before: each answer leaves torch's guard. What
`functools.lru_cache` keeps is what its function would give again: there a size is a key like no number.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import sympy
import torch

from batch_export.exporter.capture.calls_without_numbers import note_line
from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.read_values import value_of

_Place = tuple[int | None, int | None, int | None, int | None]

_KINDS = frozenset({dict, OrderedDict, defaultdict, set, frozenset})
"""What is looked through; a class of somebody's may look for a key in another way."""
_METHODS = frozenset({"get", "pop", "setdefault", "add", "discard", "remove"})


@contextlib.contextmanager
def sizes_as_keys() -> Iterator[None]:
    """Within, a model's code has symbolic sizes as keys where it is known which container is meant.

    The line is noted, so that the program is compared with the model at other sizes.

    Raises:
        TypeError: at the end, where a number was stored beside such a key that it was not compared with.
    """
    own, keys = torch.SymInt.__hash__, _Keys()

    def hashed(size: torch.SymInt) -> int:
        frame = sys._getframe(1)
        if is_users(frame.f_code.co_filename):
            if _remembers(frame):
                note_line(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                return hash(("size", size.node.expr))
            if not size.node.has_hint() or not keys.are_compared(frame):
                return own(size)
            keys.sizes[id(size)] = size
            note_line(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        elif id(size) in keys.sizes:  # the container is copied or compared, as a module's state is
            keys.require_compared()
        else:
            return own(size)
        return hash(size.node.hint)

    with patch.object(torch.SymInt, "__hash__", hashed):
        yield
        keys.require_compared()


@dataclass(slots=True)
class _Keys:
    """Symbolic keys of a capture.

    Attributes:
        sizes: by identity.
        containers: in which they were looked for.
        compared: two keys each that were.
    """

    sizes: dict[int, torch.SymInt] = field(default_factory=dict)
    containers: dict[int, Any] = field(default_factory=dict)
    compared: set[tuple[object, object]] = field(default_factory=set)

    def are_compared(self, frame: FrameType) -> bool:
        """Whether it is known what is looked for in what; it is compared with all keys that are there."""
        looked = _looked_up(frame)
        if looked is None:
            return False
        container, key = (_value(one, frame) for one in looked)
        if type(container) not in _KINDS or key is None:
            return False
        self.containers[id(container)] = container
        for one in list(container):
            self.compared |= {(_named(key), _named(one)), (_named(one), _named(key))}
            if _is_same(key, one):
                break
        return True

    def require_compared(self) -> None:
        """Raises where a container has a key by now that a symbolic one was not compared with."""
        for container in self.containers.values():
            names = [_named(one) for one in container]
            symbolic = [one for one in names if _is_symbolic(one)]
            if any(one != other and (one, other) not in self.compared for one in symbolic for other in names):
                raise TypeError("a number is a key beside a size that may be the same number")


def _named(key: Any) -> Any:
    """A key, with the expression of each symbolic size in it."""
    if isinstance(key, tuple):
        return tuple(map(_named, key))
    return key.node.expr if isinstance(key, torch.SymInt) else key


def _is_symbolic(name: Any) -> bool:
    return any(map(_is_symbolic, name)) if isinstance(name, tuple) else isinstance(name, sympy.Expr)


def _is_same(key: Any, other: Any) -> bool:
    """As `==` of keys; Python asks it of those of one hash only."""
    if isinstance(key, tuple) and isinstance(other, tuple):
        return len(key) == len(other) and all(map(_is_same, key, other))
    return bool(key == other)


def _value(read: ast.expr, frame: FrameType) -> Any:
    """What is read at a place, and sets and tuples of such; None where it cannot be told."""
    match read:
        case ast.Tuple(elts=parts):
            values = [_value(one, frame) for one in parts]
            is_known = [one is not None or _is_none(part) for one, part in zip(values, parts, strict=True)]
            return tuple(values) if all(is_known) else None
        case ast.Set(elts=parts) if all(isinstance(one, ast.Constant) for one in parts):
            return frozenset(one.value for one in parts if isinstance(one, ast.Constant))
    return value_of(read, frame)


def _is_none(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is None


def _looked_up(frame: FrameType) -> tuple[ast.expr, ast.expr] | None:
    """What is looked through at the place where a frame is, and for what; None where it does something else."""
    place = _places(frame.f_code)[frame.f_lasti // 2]
    match _nodes(frame.f_code.co_filename).get(place):
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[container]):
            return container, key
        case ast.Subscript(value=container, slice=key) if not isinstance(key, ast.Slice):
            return container, key
        case ast.Call(func=ast.Attribute(value=container, attr=name), args=[key, *_]) if name in _METHODS:
            return container, key
    return None


def _remembers(frame: FrameType) -> bool:
    """Whether a function of `functools.lru_cache` is called at the place where a frame is."""
    match _nodes(frame.f_code.co_filename).get(_places(frame.f_code)[frame.f_lasti // 2]):
        case ast.Call(func=called):
            function = value_of(called, frame)
            return isinstance(getattr(function, "__func__", function), functools._lru_cache_wrapper)
    return False


@functools.lru_cache(maxsize=256)
def _places(code: CodeType) -> tuple[_Place, ...]:
    """Where the instructions of a code stand in its file: first and last line, first and last column."""
    return tuple((first, last, begin, end) for first, last, begin, end in code.co_positions())


@functools.lru_cache(maxsize=16)
def _nodes(file: str) -> Mapping[_Place, ast.expr]:
    """Comparisons, subscripts and calls of a file by where they stand."""
    tree = parsed(file)
    if tree is None:
        return {}
    kinds = (ast.Compare, ast.Subscript, ast.Call)
    found = (one for one in ast.walk(tree) if isinstance(one, kinds))
    return {(one.lineno, one.end_lineno, one.col_offset, one.end_col_offset): one for one in found}
