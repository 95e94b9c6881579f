"""What torch asks of expressions of sizes again and again is worked out once.

Nothing arrives. Leaves: a context in which an expression that was multiplied out, made as the greatest or least of
several, walked for its parts or bounded is not worked through again: an answer depends on nothing but the expression,
and bounds on its symbols within a question. What is multiplied out and what is made is remembered by the process, since
a model that is captured again, from another example, has the same sizes. torch (2.13) keeps few of these answers or
drops them with each guard, and walks through a part as often as it stands in an expression: behind deep windows of
images, whose sizes are quotients of quotients, that was half of a capture, and where sizes decide three quarters.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import sympy
from sympy.core.parameters import global_parameters
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy import interp, value_ranges
from torch.utils._sympy.functions import MinMaxBase

_EXPAND, _INTERPRET = "_fast_expand", "sympy_interp"
_KEPT = 50_000
"""Answers that are kept of each kind."""


@contextlib.contextmanager
def remembered_expressions() -> Iterator[None]:
    """Within, such answers are kept.

    NOTE: this replaces names in private modules of torch's, and sympy's walk for parts of an expression; what is not
    there stays as it is.
    """
    with contextlib.ExitStack() as stack:
        expand: Any = getattr(symbolic_shapes, _EXPAND, None)
        if expand is not None:
            stack.enter_context(patch.object(symbolic_shapes, _EXPAND, _kept(expand)))
        interpret: Any = getattr(interp, _INTERPRET, None)
        if getattr(value_ranges, _INTERPRET, None) is interpret and interpret is not None:
            once = _Once(interpret)
            stack.enter_context(patch.object(interp, _INTERPRET, once))
            stack.enter_context(patch.object(value_ranges, _INTERPRET, once))
        stack.enter_context(patch.object(sympy.Basic, "atoms", _parts(sympy.Basic.atoms)))
        stack.enter_context(patch.object(MinMaxBase, "__new__", _made))
        yield


@functools.cache
def _kept(answer: Callable[..., Any]) -> Callable[..., Any]:
    return functools.lru_cache(maxsize=_KEPT)(answer)


_NEW: Callable[..., Any] = MinMaxBase.__new__


def _made(kind: type, *parts: Any, **options: Any) -> Any:
    """The greatest or the least of some sizes; what is made plainly, or of other things, is made each time."""
    is_plain = options or not global_parameters.evaluate or not all(isinstance(one, sympy.Basic) for one in parts)
    return _NEW(kind, *parts, **options) if is_plain else _kept(_NEW)(kind, *parts)


def _parts(original: Callable[..., set[sympy.Basic]]) -> Callable[..., set[sympy.Basic]]:
    kept = functools.lru_cache(maxsize=_KEPT)(lambda expression, *types: frozenset(original(expression, *types)))

    def atoms(expression: sympy.Basic, *types: Any) -> set[sympy.Basic]:
        try:
            return set(kept(expression, *types))
        except TypeError:  # a part that has no hash
            return original(expression, *types)

    return atoms


class _Once:
    """Interprets each part of one expression once, however often it stands there."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self._known: dict[Any, Any] = {}
        self._asked: tuple[int, int] | None = None

    def __call__(self, analysis: Any, env: Any, expression: Any, **options: Any) -> Any:
        asked = id(analysis), id(env)
        if self._asked == asked:  # torch's function, on its way through the parts
            if expression not in self._known:
                self._known[expression] = self._original(analysis, env, expression, **options)
            return self._known[expression]
        outer = self._known, self._asked
        self._known, self._asked = {}, asked
        try:
            return self._original(analysis, env, expression, **options)
        finally:
            self._known, self._asked = outer
