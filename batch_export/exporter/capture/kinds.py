"""What a model's code is told of the kinds of what it holds: `isinstance(x.shape[0], int)`, `type(x) is torch.Tensor`.

Arrives: a module, before torch captures it. Leaves: a context within which its code is answered as in eager, where a
size is an int; while torch captures, it is a SymInt, and a tensor one of torch's stand-ins for tensors. What torch's
code is told stays as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from batch_export.exporter.capture.free_sequences import FreeSequence
from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.own_attributes import modules_of

_PLAIN: tuple[tuple[Any, object], ...] = ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False))

_EMPTY: Mapping[type, object] = {list: [], tuple: (), range: range(0)}


def _isinstance(one: object, kinds: Any) -> bool:
    """As Python's, and true of a symbolic number for what is true of a number."""
    if builtins.isinstance(one, kinds):
        return True
    if builtins.isinstance(one, FreeSequence):
        return builtins.isinstance(_EMPTY[one.kind], kinds)
    return any(builtins.type(one) is symbolic and builtins.isinstance(like, kinds) for symbolic, like in _PLAIN)


def _kind_of(one: object) -> type:
    for symbolic, like in _PLAIN:
        if builtins.type(one) is symbolic:
            return builtins.type(like)
    if builtins.isinstance(one, FreeSequence):
        return one.kind
    kind = builtins.type(one)
    if builtins.isinstance(one, torch.Tensor) and kind.__module__.startswith("torch._subclasses."):
        return torch.nn.Parameter if builtins.isinstance(one, torch.nn.Parameter) else torch.Tensor
    return kind


class _Kind(type):
    """What makes `_type` behave as Python's `type`."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return _kind_of(args[0]) if len(args) == 1 and not options else builtins.type(*args, **options)

    def __instancecheck__(cls, one: object) -> bool:
        return builtins.isinstance(one, type)

    def __subclasscheck__(cls, one: type) -> bool:
        return issubclass(one, type)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type

    def __hash__(cls) -> int:
        return hash(type)


class _type(type, metaclass=_Kind):  # noqa: N801
    """As Python's `type`, and of a symbolic number the kind of a number."""


_TOLD: tuple[tuple[str, object], ...] = (("isinstance", _isinstance), ("type", _type))


def reached(module: torch.nn.Module) -> Iterator[FunctionType]:
    """The functions that a module's code may come to.

    Those of its classes and of what its modules hold, and of what these see as globals and in closures: functions, and
    of files that are not installed also classes and modules.
    """
    pending: list[object] = []
    modules = modules_of(module)
    for _, owner in modules:
        pending += vars(owner).values()
    for kind in dict.fromkeys(base for _, owner in modules for base in type(owner).__mro__):
        pending += vars(kind).values()
    seen: set[int] = set()
    lead_nowhere: set[type] = set()
    while pending:
        one: Any = pending.pop()
        kind = type(one)
        if kind in lead_nowhere:
            continue
        if kind is FunctionType:
            if id(one) in seen or not is_users(one.__code__.co_filename):
                continue
            seen.add(id(one))
            pending += _cells(one)
            yield one
            if id(one.__globals__) not in seen:
                seen.add(id(one.__globals__))
                pending += one.__globals__.values()
        elif issubclass(kind, (type, ModuleType)):
            if id(one) not in seen and _is_own(one.__module__ if issubclass(kind, type) else one.__name__):
                pending += vars(one).values()
            seen.add(id(one))
        elif issubclass(kind, (classmethod, staticmethod, MethodType)):
            pending.append(one.__func__)
        elif issubclass(kind, functools.partial):
            pending.append(one.func)
        else:
            lead_nowhere.add(kind)


def _cells(function: FunctionType) -> list[object]:
    found: list[object] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing is in it yet
            found.append(cell.cell_contents)
    return found


def _is_own(name: str) -> bool:
    """Whether a module's file is the user's own, and not that of something installed."""
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return is_users(file) and "site-packages" not in file


@contextlib.contextmanager
def eager_kinds(module: torch.nn.Module) -> Iterator[None]:
    """While open, `isinstance` and `type` in the files of a model's code answer as in eager; own names stay theirs."""
    files = list({id(one.__globals__): one.__globals__ for one in reached(module)}.values())
    changed = [(names, name, told) for names in files for name, told in _TOLD if name not in names]

    def tell() -> None:
        for names, name, told in changed:
            names[name] = told

    def tell_nothing() -> None:
        for names, name, _ in changed:
            names.pop(name, None)

    try:
        tell()
        with left_to_dynamo(tell_nothing, tell):
            yield
    finally:
        tell_nothing()


@contextlib.contextmanager
def left_to_dynamo(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Within, dynamo reads the code of a branch (`torch.cond`) with Python's own names, of which it knows the answers.

    NOTE: a private method of dynamo is wrapped; without it such a model is captured strictly.
    """
    reader: Any = getattr(importlib.import_module("torch._dynamo.symbolic_convert"), "InstructionTranslator", None)
    run: Any = getattr(reader, "run", None)
    if run is None:
        yield
        return

    def left(*given: Any) -> Any:
        before()
        try:
            return run(*given)
        finally:
            after()

    reader.run = left
    try:
        yield
    finally:
        reader.run = run
