"""What a block's forward may read beside its inputs and weights, as it is at one moment: a block that finds anything
else than another one found, or that leaves anything else behind, cannot be captured by that other one's call.

Arrives: a module, while forward runs or before. Leaves: its state as a value to compare: plain attributes of all its
modules, lists and objects in them, simple globals of its classes' code, and which tensors stand where.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import torch

_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_PLAIN = frozenset(_SIMPLE) - {float, complex}
_OWN = frozenset(vars(torch.nn.Module())) - {"training"}
_DEPTH = 3

State = Mapping[tuple[str, str], object]
"""Path in the block and name -> what stands there."""


def settings(block: torch.nn.Module, objects: dict[tuple[int, int], object] | None = None) -> State:
    """Everything but tensors: also before a capture, when tensors are others than during it.

    Args:
        block: the module.
        objects: what is known of objects at this moment, which several blocks may have.
    """
    found: dict[tuple[str, str], object] = {}
    objects = {} if objects is None else objects
    for path, module in block.named_modules():
        for name, value in vars(module).items():
            if name not in _OWN:
                found[path, name] = _frozen(value, objects, _DEPTH)
        for name, value in globals_of(type(module)):
            found[path, f"global {name}"] = _frozen(value, objects, _DEPTH)
    return found


def tensors(block: torch.nn.Module) -> State:
    """Which tensor each buffer and each plain attribute is, while forward runs."""
    found: dict[tuple[str, str], object] = {}
    for path, module in block.named_modules():
        plain = (
            (name, one) for name, one in vars(module).items() if name not in _OWN and isinstance(one, torch.Tensor)
        )
        for name, value in (*module._buffers.items(), *plain):
            found[path, name] = id(value)
    return found


def changed(before: State, after: State) -> str:
    """The name of something that is not as it was; empty where all is."""
    if before == after:
        return ""
    places = (place for place in {**before, **after} if before.get(place) != after.get(place))
    path, name = next(places, ("", ""))
    return f"{path}.{name}" if path else name


def _frozen(value: Any, objects: dict[tuple[int, int], object], depth: int) -> object:
    kind = value.__class__
    if kind in _PLAIN:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)  # NaN is NaN, and 0.0 not -0.0
    if isinstance(value, torch.Tensor):
        return torch.Tensor
    if depth and isinstance(value, (list, tuple, deque)):
        return type(value), tuple(_frozen(one, objects, depth - 1) for one in value)
    if depth and isinstance(value, dict):
        return type(value), tuple((repr(key), _frozen(one, objects, depth - 1)) for key, one in value.items())
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(repr, value))
    if isinstance(value, ContextVar):
        return ContextVar, _frozen(value.get(None), objects, depth)
    key = (id(value), depth)
    if key in objects:
        return objects[key]
    objects[key] = id(value)
    inner = getattr(value, "__dict__", None)
    if (
        depth
        and type(inner) is dict
        and not isinstance(value, (torch.nn.Module, type))
        and not inspect.isroutine(value)
    ):
        listed = tuple((name, _frozen(one, objects, depth - 1)) for name, one in inner.items())
        objects[key] = id(value), listed
    return objects[key]


def globals_of(kind: type) -> list[tuple[str, object]]:
    """The globals that the methods of a class name and that may change: numbers, texts, lists, context variables."""
    found: dict[tuple[str, int], tuple[str, object]] = {}
    if kind not in _known():
        _known()[kind] = _naming(kind)
    for place, method, names in _known()[kind]:
        space: Mapping[str, object] = getattr(_unwrapped(vars(kind.__mro__[place]).get(method)), "__globals__", {})
        for name in names:
            value = space.get(name)
            if isinstance(value, (*_SIMPLE, list, dict, set, ContextVar)) and name in space:
                found[name, id(space)] = name, value
    return list(found.values())


_Naming = tuple[tuple[int, str, tuple[str, ...]], ...]


@functools.cache
def _known() -> weakref.WeakKeyDictionary[type, _Naming]:
    """What was found of classes, as long as they live: only names, since a function holds its class."""
    return weakref.WeakKeyDictionary()


def _naming(kind: type) -> _Naming:
    """Which methods of a class name which globals, with the places of their classes in its order of classes."""
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for place, one in enumerate(kind.__mro__):
        if one.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for name, method in vars(one).items():
            inner = _unwrapped(method)
            space, code = getattr(inner, "__globals__", None), getattr(inner, "__code__", None)
            if code is not None and space is not None and (names := tuple(n for n in code.co_names if n in space)):
                found.append((place, name, names))
    return tuple(found)


def _unwrapped(method: object) -> object:
    return inspect.unwrap(method) if inspect.isroutine(method) and callable(method) else None
