"""What classes, hooks and objects hold, and what has no state that a model's forward has to do with.

Arrives: a value, a class or a module. Leaves: what it holds, by name where it has one. Nothing is remembered or changed
here.
"""

from __future__ import annotations

import enum
import inspect
import types
import weakref
from collections import deque
from typing import Any

import torch

from batch_export.exporter.capture.alike import of_class

LEFT = (
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
_WITHOUT_STATE = (*LEFT, torch.nn.Module, torch.Tensor)
_METHODS = frozenset({types.FunctionType, property, classmethod, staticmethod})
"""What most entries of a class are; told apart at once, since every run of a model looks at all of its classes."""
_NOTHING = property()
"""In the place of a value that a class does not have: one that is left out as methods are."""
_VALUES = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, deque, torch.Tensor)
_OTHERS = frozenset({"torch", "functools", "logging", "threading", "abc", "_thread", "builtins"})
"""Whose objects hold nothing of a model's: graphs, modes, sizes, locks, remembered properties."""


def object_values(value: object) -> dict[str, object] | None:
    """The attributes of an object that may be state; None for torch's own, locks, functions, classes and the like."""
    inner = getattr(value, "__dict__", None)
    return None if type(inner) is not dict or is_without_state(value) else inner


def is_without_state(value: object) -> bool:
    """Whether a value's class says that its attributes are no state."""
    return (
        isinstance(value, _WITHOUT_STATE)
        or inspect.isroutine(value)
        or type(value).__module__.partition(".")[0] in _OTHERS
    )


def own_classes(kind: type) -> list[type]:
    """A module's classes that are a user's."""
    return [one for one in kind.__mro__ if one.__module__.partition(".")[0] not in ("torch", "builtins", "typing")]


def class_values(kind: type) -> dict[str, object]:
    """What a module's classes hold: numbers, lists, tensors."""
    return {name: value for one in reversed(own_classes(kind)) for name, value in values_of(one).items()}


def held_by_hooks(module: torch.nn.Module) -> list[tuple[object, list[object]]]:
    """The hooks of a module's forward, each with the lists, dicts and objects that it keeps for itself."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [
        (hook, [one.cell_contents for one in getattr(hook, "__closure__", None) or () if is_filled(one)])
        for hook in hooks
    ]


def values_of(kind: type) -> dict[str, object]:
    """What a class holds itself, but for its methods."""
    return {
        name: value
        for name, found in vars(kind).items()
        if (value := of_class(found, _NOTHING)).__class__ not in _METHODS
        and not name.startswith(("__", "_abc_"))
        and not isinstance(value, type)
        and (isinstance(value, _VALUES) or object_values(value) is not None)
    }


def is_filled(cell: Any) -> bool:
    """Whether a cell of a closure holds anything yet."""
    try:
        cell.cell_contents  # noqa: B018  (an empty cell raises)
    except ValueError:
        return False
    return True
