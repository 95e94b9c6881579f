"""Plain values as JSON that says all of them, and back: JSON itself has no infinity, no bytes and no keys but texts.

Values of configs arrive, plain data leave that any JSON encoder writes without loss. What JSON says as it is stays so;
anything else becomes an object with one key that begins with an exclamation mark, such as `{"!float": "inf"}`.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

_MARK = "!"
_FLOAT, _BYTES, _DICT = "!float", "!bytes", "!dict"
MARKS = tuple(f'"{mark}"'.encode() for mark in (_FLOAT, _BYTES, _DICT))
"""How the marks are written in JSON."""


def to_exact(value: Any) -> Any:
    """Returns a plain value as data of which JSON loses nothing; the order of dicts is theirs.

    Args:
        value: made of dicts, lists, tuples, texts, numbers, bytes, truth values and None.
    """
    if isinstance(value, dict):
        pairs = [(to_exact(key), to_exact(one)) for key, one in value.items()]
        if all(isinstance(key, str) and not key.startswith(_MARK) for key in value):
            return dict(pairs)
        return {_DICT: [list(pair) for pair in pairs]}
    if isinstance(value, list | tuple):
        return [to_exact(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BYTES: bytes(value).hex()}
    return value


def exact(value: Any) -> Any:
    """Returns a frozen dataclass, a struct, or a plain value of them, as such data."""
    return to_exact(msgspec.to_builtins(value, builtin_types=(bytes, bytearray)))


def from_exact(value: Any) -> Any:
    """Returns the value of which `to_exact` made these data; tuples are lists."""
    if isinstance(value, list):
        return [from_exact(one) for one in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"!float": text} if len(value) == 1:
            return float(text)
        case {"!bytes": text} if len(value) == 1:
            return bytes.fromhex(text)
        case {"!dict": pairs} if len(value) == 1:
            return {from_exact(key): from_exact(one) for key, one in pairs}
    return {key: from_exact(one) for key, one in value.items()}


def beyond_64_bits(value: Any) -> int | None:
    """Returns the first whole number in a plain value that no message between processes holds; None: there is none."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return next((found for found in map(beyond_64_bits, value) if found is not None), None)
    is_large = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return value if is_large else None
