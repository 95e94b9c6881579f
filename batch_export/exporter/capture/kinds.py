"""What a model's code is told of the kinds of what it holds: `isinstance(x.shape[0], int)`, `type(x) is torch.Tensor`.

Arrives: a module, before torch captures it. Leaves: a context within which its code is answered as in eager, where a
size is an int; while torch captures, it is a SymInt, and a tensor one of torch's stand-ins for tensors. What torch's
code is told stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from batch_export.exporter.capture import class_reads
from batch_export.exporter.capture.guard_sources import is_generated, is_users
from batch_export.exporter.capture.kind_answers import TOLD
from batch_export.exporter.capture.own_attributes import modules_of

_IN_ONE = 256
"""In how large a list or mapping functions are looked for."""


def reached(module: torch.nn.Module, *, with_generated: bool = False) -> Iterator[FunctionType]:
    """The functions that a module's code may come to.

    Those of its classes and of what its modules hold, and of what these see as globals and in closures: functions, also
    in a list or a mapping (`ACTIVATIONS["swish"]`), and of files that are not installed also classes and modules.

    Args:
        module: the module.
        with_generated: whether those without a file are some (`eval`, `exec`).
    """
    modules = modules_of(module)
    held = [one for _, owner in modules for one in vars(owner).values()]
    return _reached(held, (type(owner) for _, owner in modules), with_generated=with_generated)


def reached_by_loaded_classes() -> Iterator[FunctionType]:
    """The functions that the code of any class of modules loaded so far may come to."""
    found, pending = dict[type, None](), [torch.nn.Module]
    while pending:
        kind = pending.pop()
        if kind not in found:
            found[kind] = None
            pending += kind.__subclasses__()
    return _reached([], found)


def _reached(pending: list[object], kinds: Iterable[type], *, with_generated: bool = False) -> Iterator[FunctionType]:
    for kind in dict.fromkeys(base for one in kinds for base in one.__mro__):
        pending += vars(kind).values()
    seen: set[int] = set()
    lead_nowhere: set[type] = set()
    while pending:
        one: Any = pending.pop()
        kind = type(one)
        if kind in lead_nowhere:
            continue
        if kind is FunctionType:
            if id(one) in seen:
                continue
            file = one.__code__.co_filename
            if not is_users(file) and not (with_generated and is_generated(file)):
                if (wrapped := vars(one).get("__wrapped__")) is not None:  # `@torch.no_grad()` and its like
                    pending.append(wrapped)
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
        elif kind in (dict, list, tuple):
            inner = (one.values() if kind is dict else one) if len(one) <= _IN_ONE else ()
            pending += [value for value in [*inner] if isinstance(value, (FunctionType, functools.partial))]
        else:
            lead_nowhere.add(kind)


def _cells(function: FunctionType) -> list[object]:
    found: list[object] = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing is in it yet
            found.append(cell.cell_contents)
    return found


def knows_torch(names: Mapping[str, object]) -> bool:
    """Whether a file's names have torch among them, or anything of torch's."""
    return any(_home(one).partition(".")[0] == "torch" for one in list(names.values()))


def _home(one: object) -> str:
    """The module that something is, or comes from; empty where it does not say so."""
    try:
        home = one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None)
    except Exception:  # what stands for something that is not there yet may raise anything
        return ""
    return home if isinstance(home, str) else ""


def _is_own(name: str) -> bool:
    """Whether a module's file is the user's own, and not that of something installed."""
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return is_users(file) and "site-packages" not in file


@contextlib.contextmanager
def eager_kinds(module: torch.nn.Module) -> Iterator[None]:
    """While open, the files of a model's code ask of kinds what eager answers; own names stay theirs."""
    functions = list(reached(module))
    files = list({id(one.__globals__): one.__globals__ for one in functions}.values())
    changed = [(names, name, told) for names in files for name, told in TOLD if name not in names]
    codes = [(one, one.__code__, class_reads.with_reads(one.__code__)) for one in functions]
    reading = [(one, code, other) for one, code, other in codes if other is not code]
    left: list[list[CodeType]] = []

    def tell() -> None:
        for names, name, told in changed:
            names[name] = told
        for (one, *_), code in zip(reading, left.pop(), strict=True):
            one.__code__ = code

    def tell_nothing() -> None:
        for names, name, _ in changed:
            names.pop(name, None)
        left.append([one.__code__ for one, *_ in reading])
        for one, *_ in reading:
            one.__code__ = class_reads.as_written(one.__code__)

    try:
        left.append([other for *_, other in reading])
        tell()
        with left_to_dynamo(tell_nothing, tell):
            yield
    finally:
        tell_nothing()
        for one, code, _ in reading:
            one.__code__ = code


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
