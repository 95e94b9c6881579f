"""Words for values that are the same in each process that makes them: what two of them can be told apart by.

A value leaves as a text: numbers and texts, tuples and sets, members of enums, functions, classes and modules by their
names, dtypes, devices and operators as they show themselves. torch is not imported here, and nothing is called.
"""

from __future__ import annotations

from enum import Enum
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

_SINGLE = (bool, int, float, complex, str, bytes, type(None))
_BUILTIN = (BuiltinFunctionType, MethodDescriptorType, ClassMethodDescriptorType, WrapperDescriptorType)
_SHOWN = frozenset(
    f"torch.{one}"
    for one in ("dtype", "device", "layout", "memory_format", "qscheme", "_ops.OpOverload", "_ops.OpOverloadPacket")
) | {"numpy.ufunc"}
"""Types, by name, of values whose `repr` tells them apart and is the same in each process."""


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text or nothing, or a tuple of such."""
    return type(value) in _SINGLE or (type(value) is tuple and all(map(is_plain, value)))


def words_of(value: Any) -> str:
    """Returns a text for a value; an empty one for lists, dicts, objects and what else has none."""
    kind = type(value)
    if is_plain(value):
        return repr(value)
    if kind in (tuple, set, frozenset):
        parts = [words_of(one) for one in value]
        inner = parts if kind is tuple else sorted(parts)
        return f"{kind.__name__} {inner}" if all(parts) else ""
    if isinstance(value, Enum):
        inner = [repr(one) for one in (value._name_, value._value_) if is_plain(one)]
        return f"member {kind.__module__}.{kind.__qualname__} {inner}"
    if isinstance(value, ModuleType):
        return f"module {getattr(value, '__name__', '')}"
    if isinstance(value, (type, FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, _BUILTIN):
        owner = getattr(value, "__objclass__", value)
        return f"builtin {getattr(owner, '__module__', None)}.{value.__qualname__}"
    return repr(value) if f"{kind.__module__}.{kind.__qualname__}" in _SHOWN else ""
