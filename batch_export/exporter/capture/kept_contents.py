"""What modules hold, and what that holds in its turn: attributes, submodules, lists, dicts, objects, generators.

Arrives: modules and other holders of state. Leaves: every container with the entries that it had, and the tensors that
were found. The numbers in tensors are `kept_tensors.py`'s business.
"""

from __future__ import annotations

import enum
import functools
import inspect
import random
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from batch_export.exporter.capture.alike import of_class
from batch_export.exporter.capture.kept_tensors import memory_of
from batch_export.exporter.capture.watched_iterators import ITERATORS, WatchedIterator

_DEPTH = 4
"""Containers in containers (a module's own attributes are the first) are looked into down to here."""
_ENTRIES = 10_000
"""A larger container is put back, and nothing in it: a vocabulary, not state."""
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_DICTS = frozenset({dict, OrderedDict})
_GENERATORS = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)
_LEFT = (
    type,
    types.ModuleType,
    enum.Enum,
    weakref.ReferenceType,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
    torch.Size,
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
)
"""What has no state, or none that a model's forward has to do with."""
_METHODS = frozenset({types.FunctionType, property, classmethod, staticmethod})
"""What most entries of a class are; told apart at once, since every run of a model looks at all of its classes."""
_NOTHING = property()
"""In the place of a value that a class does not have: one that is left out as methods are."""
_VALUES = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, deque, torch.Tensor)
_OTHERS = frozenset({"torch", "functools", "logging", "threading", "abc", "_thread", "builtins"})
"""Whose objects hold nothing of a model's: graphs, modes, sizes, locks, remembered properties."""


class Contents:
    """Everything reachable from some holders, as it is when this is made.

    Attributes:
        tensors: each one once.
        parameters: those of them that are parameters of modules.
    """

    def __init__(self, holders: Sequence[object]) -> None:
        self.tensors: list[torch.Tensor] = []
        self._undo: list[Callable[[], None]] = []
        self._entries: list[tuple[dict[Any, Any], list[tuple[Any, Any]]]] = []
        self._seen: dict[int, object] = {}
        self._watched: dict[int, WatchedIterator] = {}
        self._places: list[tuple[Any, Any, WatchedIterator]] = []
        waiting: deque[tuple[object, int]] = deque((one, _DEPTH) for one in holders)
        while waiting:
            value, depth = waiting.popleft()
            if value.__class__ in _PLAIN or isinstance(value, _LEFT) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            waiting.extend(self._noted(value, depth))
        self.parameters = [one for one in self.tensors if isinstance(one, torch.nn.Parameter)]
        self._weights = {memory_of(one) for one in self.parameters}

    def is_weight(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a parameter or lies in the memory of one."""
        return isinstance(tensor, torch.nn.Parameter) or memory_of(tensor) in self._weights

    def put_back(self) -> None:
        """Gives every container its entries again."""
        for held, before in self._entries:
            if held or before:
                _put_entries(held, before)
        for undo in self._undo:
            undo()
        for held, place, watched in self._places:
            held[place] = watched.as_before()

    def _noted(self, value: Any, depth: int) -> Iterable[tuple[object, int]]:
        """Remembers one thing; returns what it holds."""
        if isinstance(value, torch.Tensor):
            if not is_lazy(value):
                self.tensors.append(value)
            return ()
        if isinstance(value, torch.nn.Module):
            hooks = [one for _, held in held_by_hooks(value) for one in held]
            kinds = [one for kind in own_classes(type(value)) for one in self._of_class(kind)]
            return _at(_DEPTH, [*self._of_module(value), *_scripted_buffers(value), *hooks, *kinds])
        if inspect.isroutine(value):
            return _at(depth, _held_by_routine(value))
        if isinstance(value, WatchedIterator):
            self._undo.append(functools.partial(setattr, value, "position", value.position))
            return ()
        if isinstance(value, _GENERATORS):
            self._undo.append(_setting_back(value))
            return ()
        if depth <= 0:
            return ()
        if isinstance(value, dict):
            return _at(depth - 1, self._of_dict(value))
        if isinstance(value, (list, deque)):
            before = list(value)
            self._undo.append(lambda: _put_items(value, before))
            self._watch(value, enumerate(before))
            return _at(depth - 1, before)
        if isinstance(value, set):
            members = set(value)
            self._undo.append(lambda: _put_members(value, members))
            return ()
        if isinstance(value, tuple):
            return _at(depth - 1, value)
        inner = object_values(value)
        return _at(depth - 1, self._of_dict(inner)) if inner is not None else ()

    def _of_dict(self, value: dict[Any, Any]) -> Sequence[object]:
        before = list(value.items())
        self._entries.append((value, before))
        self._watch(value, before)
        return [entry for _, entry in before]

    def _watch(self, held: Any, entries: Iterable[tuple[Any, Any]]) -> None:
        """Has iterators give their elements by way of one that can be set back."""
        for place, entry in entries:
            kind: type = entry.__class__
            if kind in ITERATORS:
                watched = self._watched.setdefault(id(entry), WatchedIterator(entry))
                held[place] = watched
                self._places.append((held, place, watched))

    def _of_module(self, module: torch.nn.Module) -> Iterator[object]:
        """What a module's attributes hold: a dozen dicts of each module, most of them empty, are looked at here."""
        for value in self._of_dict(vars(module)):
            if value.__class__ in _DICTS and id(value) not in self._seen:
                self._seen[id(value)] = value
                yield from self._of_dict(value)
            elif value.__class__ not in _PLAIN:
                yield value

    def _of_class(self, kind: type) -> Sequence[object]:
        if id(kind) in self._seen:
            return ()
        self._seen[id(kind)] = kind
        before = _values_of(kind)
        self._undo.append(lambda: _put_values(kind, before))
        return list(before.values())


def object_values(value: object) -> dict[str, object] | None:
    """The attributes of an object that may be state; None for torch's own, locks, functions, classes and the like."""
    inner = getattr(value, "__dict__", None)
    if (
        type(inner) is not dict
        or isinstance(value, (*_LEFT, torch.nn.Module, torch.Tensor))
        or inspect.isroutine(value)
    ):
        return None
    return None if type(value).__module__.partition(".")[0] in _OTHERS else inner


def own_classes(kind: type) -> list[type]:
    """A module's classes that are a user's."""
    return [one for one in kind.__mro__ if one.__module__.partition(".")[0] not in ("torch", "builtins", "typing")]


def class_values(kind: type) -> dict[str, object]:
    """What a module's classes hold: numbers, lists, tensors."""
    return {name: value for one in reversed(own_classes(kind)) for name, value in _values_of(one).items()}


def held_by_hooks(module: torch.nn.Module) -> list[tuple[object, list[object]]]:
    """The hooks of a module's forward, each with the lists, dicts and objects that it keeps for itself."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [
        (hook, [one.cell_contents for one in getattr(hook, "__closure__", None) or () if _is_filled(one)])
        for hook in hooks
    ]


def _values_of(kind: type) -> dict[str, object]:
    return {
        name: value
        for name, found in vars(kind).items()
        if (value := of_class(found, _NOTHING)).__class__ not in _METHODS
        and not name.startswith(("__", "_abc_"))
        and not isinstance(value, type)
        and (isinstance(value, _VALUES) or object_values(value) is not None)
    }


def _put_values(kind: type, before: dict[str, object]) -> None:
    now = _values_of(kind)
    for name in now.keys() - before.keys():
        delattr(kind, name)
    for name, value in before.items():
        if vars(kind).get(name) is not value:
            setattr(kind, name, value)


def _at(depth: int, values: Sequence[object]) -> Iterator[tuple[object, int]]:
    return ((one, depth) for one in values) if len(values) <= _ENTRIES else iter(())


def _held_by_routine(routine: Any) -> Sequence[object]:
    """The modules that a callable reaches: whose method it is, and those in its closure."""
    inner = [cell.cell_contents for cell in getattr(routine, "__closure__", None) or () if _is_filled(cell)]
    return [one for one in (getattr(routine, "__self__", None), *inner) if isinstance(one, torch.nn.Module)]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (an empty cell raises)
    except ValueError:
        return False
    return True


def _scripted_buffers(module: torch.nn.Module) -> Sequence[torch.Tensor]:
    """The buffers of a TorchScript module, which are not in its attributes."""
    return list(module.buffers(recurse=False)) if isinstance(module, torch.jit.ScriptModule) else []


def _setting_back(value: Any) -> Callable[[], None]:
    """What sets a generator of random numbers back."""
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: _ignore(value.set_state(state))
    if isinstance(value, random.Random):
        drawn = value.getstate()
        return lambda: value.setstate(drawn)
    if isinstance(value, np.random.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    bits = value.bit_generator.state
    return lambda: setattr(value.bit_generator, "state", bits)


def _ignore(_: object) -> None:
    """For calls that return something."""


def _put_entries(held: dict[Any, Any], before: Sequence[tuple[Any, Any]]) -> None:
    if len(held) == len(before) and all(
        key is old and value is entry for (key, value), (old, entry) in zip(held.items(), before, strict=True)
    ):
        return
    held.clear()
    held.update(before)


def _put_items(held: Any, before: Sequence[object]) -> None:
    if len(held) == len(before) and all(one is other for one, other in zip(held, before, strict=True)):
        return
    held.clear()
    held.extend(before)


def _put_members(held: set[object], members: set[object]) -> None:
    if held != members:
        held.clear()
        held.update(members)
