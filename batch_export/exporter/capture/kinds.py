"""What a model's code is told of the kinds of what it holds: `isinstance(x.shape[0], int)`, `type(x) is torch.Tensor`.

Arrives: a module, before torch captures it. Leaves: a context within which its code is answered as in eager, where a
size is an int; while torch captures, it is a SymInt, and a tensor one of torch's stand-ins for tensors. What torch's
code is told stays as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from batch_export.exporter.capture.guard_sources import is_users

_PLAIN: tuple[tuple[Any, object], ...] = ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False))


def _isinstance(one: object, kinds: Any) -> bool:
    """As Python's, and true of a symbolic number for what is true of a number."""
    if builtins.isinstance(one, kinds):
        return True
    return any(builtins.type(one) is symbolic and builtins.isinstance(like, kinds) for symbolic, like in _PLAIN)


def _kind_of(one: object) -> type:
    for symbolic, like in _PLAIN:
        if builtins.type(one) is symbolic:
            return builtins.type(like)
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


def _functions(module: torch.nn.Module) -> Iterator[FunctionType]:
    """The functions of a module's classes, and those of the user's that stand beside them."""
    pending = [one for owner in module.modules() for one in (*_methods(type(owner)), vars(owner).get("forward"))]
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        if not isinstance(function, FunctionType) or not is_users(function.__code__.co_filename):
            continue
        if id(function.__globals__) not in seen:
            seen.add(id(function.__globals__))
            yield function
            pending += list(function.__globals__.values())


def _methods(kind: type) -> list[object]:
    return [one for base in kind.__mro__ for one in vars(base).values()]


@contextlib.contextmanager
def eager_kinds(module: torch.nn.Module) -> Iterator[None]:
    """While open, `isinstance` and `type` in the files of a model's code answer as in eager; own names stay theirs."""
    files = [one.__globals__ for one in _functions(module)]
    changed = [(names, name, told) for names in files for name, told in _TOLD if name not in names]

    def tell() -> None:
        for names, name, told in changed:
            names[name] = told

    def tell_nothing() -> None:
        for names, name, _ in changed:
            names.pop(name, None)

    try:
        tell()
        with _left_to_dynamo(tell_nothing, tell):
            yield
    finally:
        tell_nothing()


@contextlib.contextmanager
def _left_to_dynamo(before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
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
