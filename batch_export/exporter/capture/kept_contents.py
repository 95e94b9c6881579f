"""What modules hold, and what that holds in its turn: attributes, submodules, lists, dicts, objects, generators.

Arrives: modules and other holders of state. Leaves: every container with the entries that it had, and the tensors that
were found. The numbers in tensors are `kept_tensors.py`'s business.
"""

from __future__ import annotations

import functools
import inspect
import operator
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from batch_export.exporter.capture.held_values import (
    LEFT,
    held_by_hooks,
    is_filled,
    is_without_state,
    own_classes,
    values_of,
)
from batch_export.exporter.capture.kept_tensors import memory_of
from batch_export.exporter.capture.watched_iterators import ITERATORS, WatchedIterator

_DEPTH = 4
"""Containers in containers (a module's own attributes are the first) are looked into down to here."""
_ENTRIES = 10_000
"""A larger container is put back, and nothing in it: a vocabulary, not state."""
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_DICTS = frozenset({dict, OrderedDict})
_GENERATORS = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)
_Held = Iterable[tuple[object, int]]
_Way = Callable[[Any, int], _Held]


def _leave(_: object, __: int) -> _Held:
    return ()


def _pass(_: object, __: int) -> _Held:
    return ()


class Contents:
    """Everything reachable from some holders, as it is when this is made.

    Attributes:
        tensors: each one once.
        parameters: those of them that are parameters of modules.
    """

    def __init__(self, holders: Sequence[object]) -> None:
        self.tensors: list[torch.Tensor] = []
        self._undo: list[Callable[[], None]] = []
        self._entries: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._empty: list[dict[Any, Any]] = []
        self._seen: dict[int, object] = {}
        self._watched: dict[int, WatchedIterator] = {}
        self._places: list[tuple[Any, Any, WatchedIterator]] = []
        ways: dict[type, _Way] = {}
        waiting: deque[tuple[object, int]] = deque((one, _DEPTH) for one in holders)
        while waiting:
            value, depth = waiting.popleft()
            kind = type(value)
            if kind in _PLAIN or id(value) in self._seen:
                continue
            way = ways.get(kind)
            if way is None:
                way = ways[kind] = self._way_of(value)
            if way is not _leave:
                self._seen[id(value)] = value
                waiting.extend(way(value, depth))
        self.parameters = [one for one in self.tensors if isinstance(one, torch.nn.Parameter)]

    @functools.cached_property
    def _weights(self) -> set[int | None]:
        return {memory_of(one) for one in self.parameters}

    def is_weight(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a parameter or lies in the memory of one."""
        return isinstance(tensor, torch.nn.Parameter) or memory_of(tensor) in self._weights

    @property
    def has_iterators(self) -> bool:
        """Whether iterators were found; they are watched until everything is put back, and then no longer."""
        return bool(self._places)

    def put_back(self) -> None:
        """Gives every container its entries again."""
        for empty in self._empty:
            if empty:
                empty.clear()
        for held, before in self._entries:
            if held or before:
                _put_entries(held, before)
        for undo in self._undo:
            undo()
        for held, place, watched in self._places:
            held[place] = watched.as_before()

    def _way_of(self, value: object) -> _Way:
        """How things of a value's class are looked at: it remembers one of them, and gives what that holds."""
        if isinstance(value, LEFT):
            return _leave
        if isinstance(value, torch.Tensor):
            return _pass if is_lazy(value) else self._of_tensor
        if isinstance(value, torch.nn.Module):
            kinds = [one for kind in own_classes(type(value)) for one in self._of_class(kind)]
            return functools.partial(self._of_module, kinds=kinds)
        if inspect.isroutine(value):
            return _of_routine
        if isinstance(value, WatchedIterator):
            return self._of_iterator
        if isinstance(value, _GENERATORS):
            return self._of_generator
        if isinstance(value, dict):
            return self._of_dict_at
        if isinstance(value, (list, deque)):
            return self._of_list
        if isinstance(value, set):
            return self._of_set
        if isinstance(value, tuple):
            return lambda value, depth: _at(depth - 1, value) if depth > 0 else ()
        return _pass if is_without_state(value) else self._of_object

    def _of_tensor(self, value: Any, _: int) -> _Held:
        self.tensors.append(value)
        return ()

    def _of_iterator(self, value: Any, _: int) -> _Held:
        self._undo.append(functools.partial(setattr, value, "position", value.position))
        return ()

    def _of_generator(self, value: Any, _: int) -> _Held:
        self._undo.append(_setting_back(value))
        return ()

    def _of_dict_at(self, value: Any, depth: int) -> _Held:
        return _at(depth - 1, self._of_dict(value)) if depth > 0 else ()

    def _of_object(self, value: Any, depth: int) -> _Held:
        inner = getattr(value, "__dict__", None)
        return self._of_dict_at(inner, depth) if type(inner) is dict else ()

    def _of_list(self, value: Any, depth: int) -> _Held:
        if depth <= 0:
            return ()
        before = list(value)
        self._undo.append(lambda: _put_items(value, before))
        self._watch(value, enumerate(before))
        return _at(depth - 1, before)

    def _of_set(self, value: Any, depth: int) -> _Held:
        if depth > 0:
            members = set(value)
            self._undo.append(lambda: _put_members(value, members))
        return ()

    def _of_dict(self, value: dict[Any, Any]) -> Sequence[object]:
        before = dict(value) if type(value) is dict else dict(value.items())
        self._entries.append((value, before))
        self._watch(value, before.items())
        return list(before.values())

    def _watch(self, held: Any, entries: Iterable[tuple[Any, Any]]) -> None:
        """Has iterators give their elements by way of one that can be set back."""
        for place, entry in entries:
            kind: type = entry.__class__
            if kind in ITERATORS:
                watched = self._watched.setdefault(id(entry), WatchedIterator(entry))
                held[place] = watched
                self._places.append((held, place, watched))

    def _of_module(self, module: Any, _: int, kinds: list[object]) -> _Held:
        """What a module's attributes hold: a dozen dicts of each module, most of them empty, are looked at here."""
        found: list[object] = []
        for value in self._of_dict(vars(module)):
            kind = type(value)
            if kind in _PLAIN:
                continue
            if kind not in _DICTS:
                found.append(value)
            elif not value:
                self._empty.append(value)  # type: ignore[arg-type]
            elif id(value) not in self._seen:
                self._seen[id(value)] = value
                found += self._of_dict(value)  # type: ignore[arg-type]
        found += _scripted_buffers(module)
        if module._forward_pre_hooks or module._forward_hooks:
            found += [one for _, held in held_by_hooks(module) for one in held]
        found += kinds  # of its classes: what they hold is found with the first of their modules
        kinds.clear()
        return _at(_DEPTH, found)

    def _of_class(self, kind: type) -> Sequence[object]:
        if id(kind) in self._seen:
            return ()
        self._seen[id(kind)] = kind
        before = values_of(kind)
        self._undo.append(lambda: _put_values(kind, before))
        return list(before.values())


def _put_values(kind: type, before: dict[str, object]) -> None:
    now = values_of(kind)
    for name in now.keys() - before.keys():
        delattr(kind, name)
    for name, value in before.items():
        if vars(kind).get(name) is not value:
            setattr(kind, name, value)


def _at(depth: int, values: Sequence[object]) -> Iterator[tuple[object, int]]:
    return ((one, depth) for one in values) if len(values) <= _ENTRIES else iter(())


def _of_routine(routine: Any, depth: int) -> _Held:
    """The modules that a callable reaches: whose method it is, and those in its closure."""
    inner = [cell.cell_contents for cell in getattr(routine, "__closure__", None) or () if is_filled(cell)]
    modules = [one for one in (getattr(routine, "__self__", None), *inner) if isinstance(one, torch.nn.Module)]
    return _at(depth, modules)


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


def _put_entries(held: dict[Any, Any], before: dict[Any, Any]) -> None:
    if (
        len(held) == len(before)
        and all(map(operator.is_, held, before))
        and all(map(operator.is_, held.values(), before.values()))
    ):
        return
    held.clear()
    held.update(before)


def _put_items(held: Any, before: Sequence[object]) -> None:
    if len(held) == len(before) and all(map(operator.is_, held, before)):
        return
    held.clear()
    held.extend(before)


def _put_members(held: set[object], members: set[object]) -> None:
    if held != members:
        held.clear()
        held.update(members)
