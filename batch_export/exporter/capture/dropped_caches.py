"""Caches outside of a model (`functools.lru_cache`, a global dict) that got tensors of a capture, without numbers.

Arrives: the functions of a model's code. Leaves: caches without what a capture, or a run without numbers, put into
them: the model would be given it back afterwards, as if it were a tensor of its own. What else is in a cache stays; one
of `lru_cache` can only be emptied as a whole.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.code_state import cells, is_plain_class
from batch_export.exporter.capture.own_attributes import modules_of

_Cache: TypeAlias = "functools._lru_cache_wrapper[Any]"
_KIND = functools._lru_cache_wrapper
_OF_A_CAPTURE = (FakeTensor, FunctionalTensor, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(slots=True)
class _Caches:
    """The caches of a model's code, each once.

    Attributes:
        functions: those of `functools.lru_cache`, by their identity.
        dicts: dicts in globals, closures and classes, by their identity.
    """

    functions: dict[int, _Cache] = field(default_factory=dict)
    dicts: dict[int, dict[Any, Any]] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        """What a name of the code stands for: a cache, or something that has one."""
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, _KIND):
            self.functions[id(value)] = value
        elif issubclass(type(value), dict):
            self.dicts[id(value)] = value
        elif isinstance(value, FunctionType):
            self.functions.update((id(one), one) for _, one in cells(value) if isinstance(one, _KIND))
        elif is_plain_class(value):
            for one in vars(value).values():
                if not is_plain_class(one):
                    self.add(one)


_KNOWN: ContextVar[_Caches | None] = ContextVar("_KNOWN", default=None)


@contextlib.contextmanager
def caches_known(module: torch.nn.Module, functions: Sequence[FunctionType]) -> Iterator[None]:
    """Within, the caches of a model's code are known.

    Args:
        module: the model.
        functions: those of its code (`code_state.functions_of`).
    """
    known = _Caches()
    for kind in dict.fromkeys(base for _, one in modules_of(module) for base in type(one).__mro__):
        for value in vars(kind).values():
            known.add(value)
    for function in functions:
        for value in _named(function):
            known.add(value)
    earlier = _KNOWN.set(known)
    try:
        yield
    finally:
        _KNOWN.reset(earlier)


@contextlib.contextmanager
def caches_dropped() -> Iterator[None]:
    """Within, tensors have no numbers; known caches have none of these tensors afterwards."""
    known = _KNOWN.get() or _Caches()
    missed = [(cache, cache.cache_info().misses) for cache in known.functions.values()]
    lengths = [(held, len(held)) for held in known.dicts.values()]
    try:
        yield
    finally:
        for cache, misses in missed:
            if cache.cache_info().misses != misses and any(map(_is_of_a_capture, _results(cache))):
                cache.cache_clear()
        for held, length in lengths:
            if len(held) != length:
                for key in [key for key, value in held.items() if _is_of_a_capture(value)]:
                    del held[key]


def _results(cache: _Cache) -> Iterator[object]:
    """What a cache keeps, which Python's collector alone tells; the function itself among it."""
    for one in gc.get_referents(cache):
        yield from one.values() if isinstance(one, dict) else (one,)


def _is_of_a_capture(value: object) -> bool:
    return any(isinstance(leaf, _OF_A_CAPTURE) for leaf in pytree.tree_leaves(value))


def _named(function: FunctionType) -> Iterator[object]:
    """What a function calls by its name, or by that of a module and its own; what it has around it."""
    names = function.__code__.co_names
    for value in (function.__globals__.get(name) for name in names):
        if isinstance(value, ModuleType):
            yield from (vars(value)[name] for name in names if name in vars(value))
        else:
            yield value
    yield from (value for _, value in cells(function))
    yield from function.__defaults__ or ()
