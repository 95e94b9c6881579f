"""State that a model's code keeps outside of the model: default arguments, closures, globals of functions it calls.

Arrives: a module. Leaves: the places in its code and in the functions that it calls where numbers and lists stand, and
which of them are other ones later. What is only added to a dict, such as a cache, is none; nothing is changed here.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

import torch

from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.own_attributes import modules_of
from batch_export.exporter.capture.watched_iterators import ITERATORS, place

_CALLS = 1
"""How far functions that call one another are followed."""
_FUNCTIONS = 1000
_NUMBERS = (int, float, complex)
"""NOTE: here kinds are told by `type(value)`: `isinstance` asks the object, and some warn when they are asked."""
_MISSING: Final = object()

_Place = tuple[str, Callable[[], object]]


def places(functions: Sequence[FunctionType]) -> dict[str, Callable[[], object]]:
    """Where the code of a module keeps numbers and lists: what it is called -> what reads it."""
    found: dict[str, Callable[[], object]] = {}
    for function in functions:
        for name, read in _of_function(function):
            found.setdefault(name, read)
    return found


def contents(known: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    """What stands at some places now: numbers, and copies of lists and of the numbers in dicts."""
    return {f"{name}{key}": value for name, read in known.items() for key, value in _parts(read())}


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """The names of what is another one now; what was not there before may be a cache."""
    return [name for name, value in before.items() if now.get(name, _MISSING) != value]


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if issubclass(kind, (list, deque)):
        yield "", [one if type(one) in _NUMBERS else id(one) for one in value]
    elif issubclass(kind, dict):
        yield from ((f"[{key!r}]", one) for key, one in list(value.items()) if _is_number(one))
    elif _is_number(value):
        yield "", value
    elif kind in ITERATORS:
        yield "", place(value)
    elif is_plain_class(value) or _is_plain_object(value):
        own = {**({} if issubclass(kind, type) else vars(kind)), **vars(value)}
        yield from ((f".{key}", one) for key, one in own.items() if _is_number(one))


def _is_number(value: object) -> bool:
    return type(value) in _NUMBERS and value == value


def is_plain_class(value: Any) -> bool:
    """Whether something is a class of the user's and no module's, whose own values are known."""
    return issubclass(type(value), type) and not issubclass(value, torch.nn.Module) and _is_users(value)


def _is_plain_object(value: object) -> bool:
    kind = type(value)
    if issubclass(kind, (torch.nn.Module, type)) or callable(value) or not _is_users(kind):
        return False
    return type(getattr(value, "__dict__", None)) is dict


def _is_users(kind: type) -> bool:
    return is_users(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def functions_of(module: torch.nn.Module) -> list[FunctionType]:
    """The functions of the user's that a module's code consists of: methods, and what they call."""
    waiting: deque[tuple[object, int]] = deque()
    modules = [one for _, one in modules_of(module)]
    kinds = dict.fromkeys(map(type, modules))
    for kind in dict.fromkeys(base for one in kinds for base in one.__mro__):
        waiting.extend((one, _CALLS) for one in vars(kind).values())
    for owner in modules:
        waiting.extend((one, _CALLS) for one in vars(owner).values() if callable(one))
    found: dict[int, FunctionType] = {}
    while waiting and len(found) < _FUNCTIONS:
        one, depth = waiting.popleft()
        function = _plain(one)
        if function is None or id(function) in found or not is_users(function.__code__.co_filename):
            continue
        found[id(function)] = function
        if depth:
            names = (function.__globals__.get(name) for name in function.__code__.co_names)
            inner = [*names, *(value for _, value in cells(function))]
            waiting.extend((value, depth - 1) for value in inner if callable(value))
    return list(found.values())


def _plain(value: Any) -> FunctionType | None:
    """The function that something is or stands for; no attribute is asked of what may raise at any (a lazy import)."""
    while issubclass(type(value), functools.partial):
        value = value.func
    if issubclass(type(value), (MethodType, classmethod, staticmethod)):
        value = value.__func__
    if not issubclass(type(value), FunctionType):
        return None
    function = inspect.unwrap(value)
    return function if issubclass(type(function), FunctionType) else None


def cells(function: FunctionType) -> Iterator[tuple[str, object]]:
    """What a function has of the functions around it, by name."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing is in it yet
            continue


def _of_function(function: FunctionType) -> Iterator[_Place]:
    title = function.__qualname__
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value in given:
        if isinstance(value, (list, dict, deque)):
            yield f"default argument of {title}", functools.partial(_same, value)
    for name, _ in cells(function):
        yield f"{name} in the closure of {title}", functools.partial(_cell_of, function, name)
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        is_container = issubclass(type(value), (*_NUMBERS, list, dict, deque)) or type(value) in ITERATORS
        if is_container or is_plain_class(value) or _is_plain_object(value):
            yield f"global {name}", functools.partial(function.__globals__.get, name)
    if vars(function):
        yield f"attribute of {title}", functools.partial(vars, function)


def _same(value: object) -> object:
    return value


def _cell_of(function: FunctionType, name: str) -> object:
    return dict(cells(function)).get(name)
