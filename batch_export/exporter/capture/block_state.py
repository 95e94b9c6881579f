"""What a block's forward may read beside its inputs and weights, as it is at one moment: a block that finds anything
else than another one found, or that leaves anything else behind, cannot be captured by that other one's call.

Arrives: a module, while forward runs or before. Leaves: its state as a value to compare: plain attributes of all its
modules, lists and objects in them, simple globals of its classes' code, and which tensors stand where.
"""

from __future__ import annotations

import functools
import inspect
import operator
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from batch_export.exporter.capture.own_attributes import OwnAttributes, modules_of

_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_PLAIN = frozenset(_SIMPLE) - {float, complex}
_FLAT = frozenset({*_SIMPLE, torch.Tensor, torch.nn.Parameter})
_OWN = frozenset(vars(torch.nn.Module())) - {"training"}
_DEPTH = 3

State = Mapping[str, Mapping[str, object]]
"""Path in the block -> name -> what stands there."""


def settings(block: torch.nn.Module, moment: Moment | None = None) -> State:
    """Everything but tensors: also before a capture, when tensors are others than during it.

    Args:
        block: the module.
        moment: what is known of objects and globals at this moment, which several blocks may have.
    """
    moment = moment or Moment()
    return {path: moment.of_module(module) for path, module in modules_of(block)}


def tensors(block: torch.nn.Module, known: dict[int, Mapping[str, object]] | None = None) -> State:
    """Which tensor each buffer and each plain attribute is, while forward runs.

    Args:
        block: the module.
        known: what was found of modules at this moment, which several blocks may have, by identity.
    """
    known = {} if known is None else known
    found: dict[str, Mapping[str, object]] = {}
    for path, module in modules_of(block):
        of_module = known.get(id(module))
        if of_module is None:
            own = [(name, one) for name, one in vars(module).items() if issubclass(type(one), torch.Tensor)]
            of_module = known[id(module)] = {name: id(one) for name, one in (*module._buffers.items(), *own)}
        if of_module:
            found[path] = of_module
    return found


def changed(before: State, after: State) -> str:
    """The name of something that is not as it was; empty where all is."""
    if before == after:
        return ""
    for path in {**before, **after}:
        one, other = before.get(path, {}), after.get(path, {})
        for name in {**one, **other} if one != other else ():
            if (name in one, one.get(name)) != (name in other, other.get(name)):
                return f"{path}.{name}" if path else name
    return ""


@dataclass(slots=True)
class _Looked:
    """An object as it was: its attributes, what those were that may change in place, and what was made of them all."""

    value: object
    attributes: dict[str, object]
    deep: Sequence[tuple[str, object]]
    frozen: object


@dataclass(slots=True)
class _Module:
    """A module as it was: its attributes, its globals, what those were that may change in place, and all of that."""

    module: torch.nn.Module
    attributes: OwnAttributes
    of_globals: Sequence[tuple[str, object]]
    deep: Sequence[tuple[object, object]]
    settings: dict[str, object]


@dataclass(slots=True)
class Earlier:
    """What was found at earlier moments: what is the same in all parts is not made anew.

    Attributes:
        objects: by identity and depth.
        modules: by identity.
    """

    objects: dict[tuple[int, int], _Looked] = field(default_factory=dict)
    modules: dict[int, _Module] = field(default_factory=dict)


class Moment:
    """Values as they are at one moment.

    Args:
        earlier: what was found before; it is added to.
    """

    def __init__(self, earlier: Earlier | None = None) -> None:
        self._objects: dict[tuple[int, int], object] = {}
        self._globals: dict[type, list[tuple[str, object]]] = {}
        self._earlier = Earlier() if earlier is None else earlier
        self._modules: dict[int, dict[str, object]] = {}

    def of_module(self, module: torch.nn.Module) -> dict[str, object]:
        """What one module holds itself but for tensors, and the globals that its class names."""
        found = self._modules.get(id(module))
        if found is None:
            of_globals = self.of_globals(type(module))
            looked = self._earlier.modules.get(id(module))
            if (
                looked is not None
                and looked.module is module
                and looked.of_globals == of_globals
                and looked.attributes.are_same()
                and all(self.frozen(value) == before for value, before in looked.deep)
            ):
                found = looked.settings
            else:
                found = self._module_anew(module, of_globals)
            self._modules[id(module)] = found
        return found

    def _module_anew(self, module: torch.nn.Module, of_globals: Sequence[tuple[str, object]]) -> dict[str, object]:
        attributes = OwnAttributes(vars(module), _OWN)
        found = {name: self.frozen(value) for name, value in attributes.values}
        deep = [(value, found[name]) for name, value in attributes.values if type(value) not in _FLAT]
        found.update(of_globals)
        self._earlier.modules[id(module)] = _Module(module, attributes, of_globals, deep, found)
        return found

    def of_globals(self, kind: type) -> list[tuple[str, object]]:
        """What the globals are that the methods of a class name."""
        found = self._globals.get(kind)
        if found is None:
            found = [(f"global {name}", self.frozen(value)) for name, value in globals_of(kind)]
            self._globals[kind] = found
        return found

    def frozen(self, value: Any, depth: int = _DEPTH) -> object:
        """A value to compare."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind is float or kind is complex:
            return kind, repr(value)  # NaN is NaN, and 0.0 not -0.0
        key = (id(value), depth)
        if key in self._objects:
            return self._objects[key]
        looked = self._earlier.objects.get(key)
        if looked is not None and looked.value is value:
            return self._again(key, looked, depth)
        if isinstance(value, torch.Tensor):
            return torch.Tensor
        if depth and isinstance(value, (list, tuple, deque)):
            return kind, tuple(self.frozen(one, depth - 1) for one in value)
        if depth and isinstance(value, dict):
            return kind, tuple((repr(name), self.frozen(one, depth - 1)) for name, one in value.items())
        if isinstance(value, (set, frozenset)):
            return kind, frozenset(map(repr, value))
        if isinstance(value, ContextVar):
            return ContextVar, self.frozen(value.get(None), depth)
        self._objects[key] = id(value)
        inner = getattr(value, "__dict__", None)
        if (
            depth
            and type(inner) is dict
            and not isinstance(value, (torch.nn.Module, type))
            and not inspect.isroutine(value)
        ):
            self._objects[key] = self._anew(key, value, inner, depth)
        return self._objects[key]

    def _again(self, key: tuple[int, int], looked: _Looked, depth: int) -> object:
        """What an object is now: what was made of it earlier, where each attribute is what it was."""
        inner = vars(looked.value)
        self._objects[key] = id(looked.value)  # while it is looked into: it may hold itself
        is_same = (
            len(inner) == len(looked.attributes)
            and all(map(operator.is_, inner, looked.attributes))
            and all(map(operator.is_, inner.values(), looked.attributes.values()))
            and all(self.frozen(inner[name], depth - 1) == before for name, before in looked.deep)
        )
        found = looked.frozen if is_same else self._anew(key, looked.value, inner, depth)
        self._objects[key] = found
        return found

    def _anew(self, key: tuple[int, int], value: object, inner: dict[str, object], depth: int) -> object:
        listed = tuple((name, self.frozen(one, depth - 1)) for name, one in inner.items())
        deep = [(name, held) for name, held in listed if type(inner[name]) not in _FLAT]
        found = id(value), listed
        self._earlier.objects[key] = _Looked(value, dict(inner), deep, found)
        return found


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
