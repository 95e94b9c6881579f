"""Plain attributes that forward changes: a file has no memory, so it computes for ever what the first call computes.

Arrives: a module, while a strategy captures it. Leaves: the dotted names of attributes (tensors that are not buffers,
numbers, lists, dicts), submodules and buffers without a tensor that were other ones after forward. Putting them back is
`kept_state.py`'s business.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

import numpy as np
import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.module import register_module_parameter_registration_hook

from batch_export.exporter.capture import code_state
from batch_export.exporter.capture.block_state import globals_of
from batch_export.exporter.capture.grad_modes import without_recording
from batch_export.exporter.capture.held_values import class_values, held_by_hooks, is_without_state, object_values
from batch_export.exporter.capture.own_attributes import OwnAttributes, modules_of
from batch_export.exporter.capture.watched_iterators import WatchedIterator

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
_DEPTH = 3
"""Containers in containers are compared down to here."""
_HOOKS = "hooks of forward"
_MISSING: Final = object()
"""In place of what is not there."""


def _attributes(module: torch.nn.Module) -> dict[str, dict[str, object]]:
    """By path, what a module has itself, its classes' values, its submodules, and what its hooks keep."""
    modules = modules_of(module)
    of_kinds = _of_kinds(type(one) for _, one in modules)
    return {path: _all_of(one, of_kinds[type(one)]) for path, one in modules}


def _of_kinds(kinds: Iterable[type]) -> dict[type, dict[str, object]]:
    """The values of modules' classes and of the globals that they name."""
    return {kind: {**_of_globals(kind), **class_values(kind)} for kind in dict.fromkeys(kinds)}


def _all_of(module: torch.nn.Module, of_kind: dict[str, object]) -> dict[str, object]:
    return {**of_kind, **_plain(module), **module._modules, **_of_hooks(module)}


def _plain(module: torch.nn.Module) -> dict[str, object]:
    return without_recording({name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE})


def _of_hooks(module: torch.nn.Module) -> dict[str, object]:
    if not module._forward_pre_hooks and not module._forward_hooks:
        return {_HOOKS: []}
    found = {getattr(hook, "__name__", type(hook).__name__): held for hook, held in held_by_hooks(module)}
    hooks = [hook for hook, _ in held_by_hooks(module)]
    return {_HOOKS: hooks, **{f"hook {name}": held for name, held in found.items() if held}}


def _of_globals(kind: type) -> dict[str, object]:
    """Numbers and lists: a dict may well be a cache, and a truth value says that something was said."""
    found = globals_of(kind)
    numbers = {name: one for name, one in found if isinstance(one, (int, float, complex, list))}
    return {f"global {name}": one for name, one in numbers.items() if not isinstance(one, bool)}


def _named_tensors(module: torch.nn.Module) -> frozenset[str]:
    """The names of buffers and parameters that have a tensor: which one it is, a capture changes itself."""
    return frozenset(
        name for held in (module._buffers, module._parameters) for name, one in held.items() if one is not None
    )


class _Freezing:
    """Gives what a container or an object holds at one moment; other values are themselves."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], object] = {}  # of objects, which many modules may have
        self._themselves = {bool, int, float, complex, str, bytes, type(None), torch.Tensor, torch.nn.Parameter}

    def __call__(self, value: object, depth: int = _DEPTH) -> object:
        if type(value) in self._themselves:
            return value
        if (id(value), depth) in self._known:
            return self._known[id(value), depth]
        if depth and isinstance(value, (list, tuple, deque)):
            return [self(item, depth - 1) for item in value]
        if isinstance(value, set):
            return set(value)
        if isinstance(value, _BITS):
            return _bits(value)
        if depth and isinstance(value, dict):
            return {key: self(item, depth - 1) for key, item in value.items()}
        inner = object_values(value) if depth else None
        if inner is None:
            if is_without_state(value):
                self._themselves.add(type(value))
            return value
        self._known[id(value), depth] = value  # while it is looked into: it may hold itself
        found: dict[object, object] = {_Freezing: type(value)}
        self._known[id(value), depth] = found | {name: self(held, depth - 1) for name, held in inner.items()}
        return self._known[id(value), depth]


_BITS = (
    *(np.ndarray, bytearray, torch.Generator, random.Random, np.random.RandomState, np.random.Generator),
    WatchedIterator,
)
"""What changes in place, and is no container."""
_LARGEST = 2**16
"""Bytes of an array that may be state."""


def _bits(value: Any) -> object:
    """What such an object is at this moment; of torch's generator its seed, since a capture draws nothing of it."""
    if isinstance(value, torch.Generator):
        return value.initial_seed()
    if isinstance(value, np.ndarray):  # a large one is a table
        return value.tobytes() if value.nbytes <= _LARGEST and not value.dtype.hasobject else value
    if isinstance(value, WatchedIterator):
        return value.position
    if isinstance(value, random.Random):
        return str(value.getstate())
    if isinstance(value, np.random.RandomState):
        return _comparable(value.get_state(legacy=False))
    return _comparable(value.bit_generator.state) if isinstance(value, np.random.Generator) else bytes(value)


def _comparable(state: Any) -> object:
    """A generator's state, whose arrays `==` would compare one number at a time."""
    if isinstance(state, dict):
        return {key: _comparable(part) for key, part in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _equal(before: object, after: object) -> bool:
    if before is after:
        return True
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_equal, before, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_equal(before[key], after[key]) for key in before)
    if isinstance(before, set) and isinstance(after, set):
        return before == after
    simple = (bool, int, float, complex, str, bytes, type(None))
    return type(before) is type(after) and isinstance(before, simple) and before == after


def _is_remembered(module: torch.nn.Module, name: str) -> bool:
    """Whether an attribute is the remembered value of a property, or torch's own book of a layer's weights."""
    if isinstance(getattr(type(module), name, None), functools.cached_property):
        return True
    classes = [one for one in type(module).__mro__ if one is not torch.nn.Module]
    if name.startswith("_") and any(one.__module__.startswith("torch.nn.") for one in classes):
        return True
    hooks = module._forward_pre_hooks.values()  # torch's older weight_norm and spectral_norm compute it in each call
    own = [one for one in hooks if type(one).__module__.startswith("torch.nn.")]
    return name in {getattr(one, key, None) for one in own for key in ("name", "_tensor_name")}


@dataclass(slots=True)
class _Held:
    """What a module held: all that is compared by name, and what tells at a glance that nothing of it has changed.

    Attributes:
        module: the module.
        values: by name, its own, its class's, its submodules and what its hooks keep, as they were.
        own: its plain attributes.
        deep: those of them that may change in place, as they are and as they were.
        modules: its submodules.
        tensors: names of buffers and parameters that have a tensor.
    """

    module: torch.nn.Module
    values: dict[str, object]
    own: OwnAttributes
    deep: Sequence[tuple[object, object]]
    modules: OwnAttributes
    tensors: frozenset[str]

    def is_same(self, frozen: _Freezing) -> bool:
        """Whether nothing of the module itself has changed; what its class holds is not looked at.

        Args:
            frozen: of this moment.
        """
        one = self.module
        return (
            not one._forward_pre_hooks
            and not one._forward_hooks
            and not self.values[_HOOKS]
            and self.own.are_same()
            and self.modules.are_same()
            and all(_equal(before, frozen(value)) for value, before in self.deep)
        )


def _held_by(module: torch.nn.Module, of_kind: dict[str, object], frozen: _Freezing) -> _Held:
    values = {name: frozen(value) for name, value in _all_of(module, of_kind).items()}
    own = OwnAttributes(vars(module), _OF_EVERY_MODULE)
    deep = [(value, now) for name, value in own.values if (now := values[name]) is not value]
    return _Held(module, values, own, deep, OwnAttributes(module._modules), _named_tensors(module))


class _Before:
    """What a module held before forward."""

    def __init__(self, module: torch.nn.Module, functions: Sequence[FunctionType]) -> None:
        self._module = module
        frozen = _Freezing()
        modules = modules_of(module)
        of_kinds = _of_kinds(type(one) for _, one in modules)
        self._of_kinds = {
            kind: {name: frozen(value) for name, value in found.items()} for kind, found in of_kinds.items()
        }
        made = [(path, one) for path, one in modules if not isinstance(one, LazyModuleMixin)]  # others become another
        self._held = {path: _held_by(one, of_kinds[type(one)], frozen) for path, one in made}
        self._places = code_state.places(functions)
        self._contents = code_state.contents(self._places)

    def changed(self) -> Iterator[str]:
        """The dotted names of what is another one now."""
        frozen = _Freezing()
        modules = modules_of(self._module)
        of_kinds = _of_kinds(type(one) for _, one in modules)
        same_kinds = {
            kind
            for kind, now in of_kinds.items()
            if kind in self._of_kinds
            and _equal(self._of_kinds[kind], {name: frozen(value) for name, value in now.items()})
        }
        for path, owner in modules:
            held = self._held.get(path)
            if held is None or owner is not held.module:  # a module that is new itself
                continue
            if type(owner) not in same_kinds or not held.is_same(frozen):
                yield from self._differing(path, held, _all_of(owner, of_kinds[type(owner)]), frozen)
            for name in sorted(_named_tensors(owner) - held.tensors - held.values.keys()):
                yield f"{path}.{name}" if path else name
        known = {name for held in self._held.values() for name in held.values}
        outside = code_state.changed(self._contents, code_state.contents(self._places))
        yield from (name for name in outside if name not in known)

    def _differing(self, path: str, held: _Held, now: dict[str, object], frozen: _Freezing) -> Iterator[str]:
        for name in held.values | now:
            old, new = held.values.get(name, _MISSING), now.get(name, _MISSING)
            if not _equal(old, frozen(new)) and not _is_remembered(held.module, name):
                line = f" (at {new.line})" if isinstance(new, WatchedIterator) and new.line else ""
                yield f"{path}.{name}{line}" if path else f"{name}{line}"

    def noting(self, changed: list[str]) -> Callable[[torch.nn.Module, str, object], None]:
        """What notes that forward gives a module another parameter, which a capture does as well, by another way."""
        paths = {id(held.module): path for path, held in self._held.items()}

        def note(module: torch.nn.Module, name: str, _: object) -> None:
            if id(module) in paths:
                changed.append(f"{paths[id(module)]}.{name}".removeprefix("."))

        return note


def holders(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> list[str]:
    """The dotted names of attributes in whose lists, dicts or objects some tensors are."""
    wanted = {id(one) for one in tensors}
    frozen = _Freezing()
    return [
        f"{path}.{name}".removeprefix(".")
        for path, found in (_attributes(module).items() if wanted else ())
        for name, value in found.items()
        if wanted.intersection(map(id, _leaves(frozen(value))))
    ]


def _leaves(frozen: object, depth: int = _DEPTH) -> Iterator[object]:
    inner = frozen.values() if isinstance(frozen, dict) else frozen if isinstance(frozen, list) else None
    if inner is None or not depth:
        yield frozen
        return
    for one in inner:
        yield from _leaves(one, depth - 1)


_NOTE: ContextVar[Callable[[], None]] = ContextVar("_NOTE")


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Has forward's changes noted when it is left; whoever puts them back stands round it."""
    try:
        yield
    finally:
        note = _NOTE.get(None)
        if note is not None:
            note()


@contextlib.contextmanager
def watching(module: torch.nn.Module, functions: Sequence[FunctionType]) -> Iterator[list[str]]:
    """While open, forward's changes to plain attributes of the module are noted in the list that is yielded.

    Args:
        module: the model.
        functions: those of its code (`code_state.functions_of`).

    NOTE: torch puts attributes back before its capture returns, so a private function of torch that does it is wrapped;
    without that function only what torch leaves behind is seen.
    """
    changed: list[str] = []
    before = _Before(module, functions)
    trace: Any = importlib.import_module("torch.export._trace")
    original: Callable[..., Any] | None = getattr(trace, "_detect_attribute_assignment", None)

    @contextlib.contextmanager
    def noticing(traced: torch.nn.Module) -> Iterator[None]:
        assert original is not None
        with original(traced):
            try:
                yield
            finally:
                if traced is module:
                    changed.extend(before.changed())

    if original is not None:
        trace._detect_attribute_assignment = noticing
    hook = register_module_parameter_registration_hook(before.noting(changed))
    earlier = _NOTE.set(lambda: changed.extend(before.changed()))
    try:
        yield changed
    finally:
        _NOTE.reset(earlier)
        hook.remove()
        if original is not None:
            trace._detect_attribute_assignment = original
        changed[:] = dict.fromkeys(changed)
