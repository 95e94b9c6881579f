"""What a function or class of somebody's own stands on in this process: code, defaults, and the globals that it names.

A dotted name arrives; short texts by name leave, which two processes compare. Followed is local code alone; of values
only those have a text of their own that `value_words.py` has words for. torch is not imported here, and nothing is
called.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import BuiltinImporter, ExtensionFileLoader, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from batch_export.digest import digest_value
from batch_export.sources.closure import PACKAGE, is_installed
from batch_export.sources.places import resolve_target
from batch_export.stages.value_words import is_plain, words_of

PLAIN, NAMED, SET, CODE, CLASS, OTHER = "plain", "named", "set", "code", "class", "other"
"""The first words of texts: of numbers and texts, of what has a name, of sets that can grow, and so on."""
OPTIMISED = "="
"""The name, which nothing else can have, of how far Python leaves out assertions: code of two kinds is not compared."""

UNCERTAIN, _VERSIONED = "?", "-"
"""The last words of texts of code that is not as its source says (pytest rewrites its own), and that is installed."""

MOST = 5_000
"""Texts that are made."""


def code_state(target: str) -> dict[str, str]:
    """Returns texts by name, such as `module.NUMBER` and `module.Class.forward`; empty where it cannot be imported."""
    module, attribute = resolve_target(target)
    try:
        holder = importlib.import_module(module)  # lazy: a user's own
        value = getattr(holder, attribute)
    except Exception:  # whoever builds the model says it better
        return {}
    found = {OPTIMISED: str(sys.flags.optimize)}
    todo: list[tuple[str, Any]] = [(f"{module}.{attribute}", value)]
    while todo and len(found) < MOST:
        name, value = todo.pop()
        if name not in found:
            found[name] = text_of(value)
            todo.extend(_below(name, value))
    return found


def text_of(value: Any) -> str:
    """Returns what a value is compared by."""
    value = _function_in(value)
    if isinstance(value, FunctionType):
        name = f"{value.__module__}.{value.__qualname__}"
        if not is_local(value.__module__):
            return f"{CODE} {name} {UNCERTAIN if _is_rewritten(value.__module__) else _VERSIONED}"
        defaults = [_default(one) for one in value.__defaults__ or ()]
        named = sorted((name, _default(one)) for name, one in (value.__kwdefaults__ or {}).items())
        hiding = sorted({*_names(value.__code__)} & value.__globals__.keys() & vars(builtins).keys())
        return f"{CODE} {name} {digest_value([_code(value.__code__), defaults, named, hiding])[:16]}"
    if isinstance(value, type):
        return " ".join([CLASS, *(f"{one.__module__}.{one.__qualname__}" for one in (value, *value.__bases__))])
    words = words_of(value)
    kind = PLAIN if is_plain(value) else SET if isinstance(value, set) else NAMED
    return f"{kind} {digest_value(words)[:16]}" if words else OTHER


def _below(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value stands on, by the name of what holds it."""
    value = _function_in(value)
    if isinstance(value, FunctionType) and is_local(value.__module__):
        for free, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                yield f"{name}.<{free}>", cell.cell_contents
            except ValueError:
                continue  # it has no value yet
        names = set(_names(value.__code__))
        for one in sorted(names & value.__globals__.keys()):
            held = value.__globals__[one]
            if isinstance(held, ModuleType):
                yield from _in_module(held, names)
            yield f"{value.__globals__.get('__name__', value.__module__)}.{one}", held
    elif isinstance(value, type) and is_local(value.__module__):
        where = f"{value.__module__}.{value.__qualname__}"
        for attribute, held in vars(value).items():
            if isinstance(_function_in(held), FunctionType) or not attribute.startswith("__"):
                yield f"{where}.{attribute}", held
        for base in (*value.__bases__, type(value)):
            yield f"{base.__module__}.{base.__qualname__}", base
    elif is_local(getattr(type(value), "__module__", None)):
        yield f"{type(value).__module__}.{type(value).__qualname__}", type(value)


def _in_module(module: ModuleType, names: set[str], known: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """What code may name in a module, and in the modules that it names in it (`package.module.function`)."""
    if not is_local(module.__name__) or module.__name__ in known:
        return
    for one in sorted(names & vars(module).keys()):
        held = vars(module)[one]
        if isinstance(held, ModuleType):
            yield from _in_module(held, names, (*known, module.__name__))
        yield f"{module.__name__}.{one}", held


def _function_in(value: Any) -> Any:
    """The function that a method of a class, a property or a cache wraps."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    wrapped = getattr(value, "__wrapped__", None) if type(value).__module__ == "functools" else None
    return value if wrapped is None else wrapped


def is_local(module: str | None) -> bool:
    """Whether a module is of somebody's own and holds what its source says."""
    spec = getattr(sys.modules.get(module or ""), "__spec__", None)
    origin = getattr(spec, "origin", None)
    if not origin or _is_rewritten(module) or is_installed(origin):
        return False
    return not origin.startswith(str(PACKAGE) + os.sep)


def _is_rewritten(module: str | None) -> bool:
    """Whether a module's code is what somebody makes of its source on the way."""
    spec = getattr(sys.modules.get(module or ""), "__spec__", None)
    return spec is not None and type(spec.loader) not in (SourceFileLoader, BuiltinImporter, ExtensionFileLoader)


def _default(value: Any) -> str:
    words = "" if isinstance(value, set) else words_of(_function_in(value))
    return words or type(value).__qualname__


def _code(code: CodeType) -> list[Any]:
    constants = [_code(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts]
    return [code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants]


def _constant(value: object) -> str:
    return f"set {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)
