"""Functions of a model that have other code while torch captures it, and their own while the model is run beside it.

Arrives: functions with new code. Leaves: that code for a capture; the model's own within, for a run with which the
captured program is compared: new code may fail where the model does not (`n // m if m else 1`, both worked out).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import CodeType
from typing import Any

_CHANGED: ContextVar[Sequence[tuple[Any, CodeType]]] = ContextVar("_CHANGED", default=())
"""Functions that have new code now, with their own."""


@contextlib.contextmanager
def rewritten(changed: Sequence[tuple[Any, CodeType]], called: Mapping[str, Any]) -> Iterator[None]:
    """Within, some functions have other code.

    Args:
        changed: the functions, each with its new code.
        called: what new code calls, by names that are globals of the functions meanwhile.
    """
    before = [(one, one.__code__, one.__globals__) for one, _ in changed]
    earlier = _CHANGED.get()
    try:  # from here on: an interrupt may come at any line
        for one, code in changed:
            one.__code__ = code
            one.__globals__.update(called)
        known = {id(one) for one, _ in earlier}
        _CHANGED.set([*earlier, *((one, code) for one, code, _ in before if id(one) not in known)])
        yield
    finally:
        _CHANGED.set(earlier)
        for one, code, names in before:
            one.__code__ = code
            for name in called:
                names.pop(name, None)


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """Within, these functions have their own code again."""
    changed = [(one, one.__code__, code) for one, code in _CHANGED.get()]
    try:
        for one, _, code in changed:
            one.__code__ = code
        yield
    finally:
        for one, made, _ in changed:
            one.__code__ = made
