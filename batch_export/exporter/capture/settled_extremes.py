"""During capture, the larger or smaller of two sizes is one of them where whole quotients alone decide which.

What pads as TensorFlow does ("same") takes `max((ceil(h / 2) - 1) * 2 + 3 - h, 0)`, whose first number is at least 1 at
every size. torch (2.13) keeps the choice, so that each such layer has the length before it three times in its own, and
a model with five of them has expressions that take minutes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import sympy
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy.functions import FloorDiv, Max, Min

_DEPTH = 8
_METHODS = {"_sym_max": 1, "_sym_min": -1}


def least(expression: sympy.Expr) -> int | None:
    """A number that an expression of whole sizes is never below, whatever they are; None where none is found.

    For `k > 0`, `k * (n // k)` is at most `n` and at least `n - k + 1`.
    """
    for _ in range(_DEPTH):
        if expression.is_number:
            return int(sympy.ceiling(expression)) if expression.is_real else None
        parts = sympy.expand(expression).as_coefficients_dict()
        if not any(_is_quotient(term) for term in parts):
            return None
        expression = sympy.expand(sum(_below(term, count) for term, count in parts.items()))
    return None


def _is_quotient(term: sympy.Expr) -> bool:
    return isinstance(term, FloorDiv) and bool(term.args[1].is_Integer) and int(term.args[1]) > 0


def _below(term: sympy.Expr, count: sympy.Expr) -> sympy.Expr:
    """What so many times a term is at least."""
    if not _is_quotient(term):
        return term * count
    whole, of = term.args
    return count * (whole - (of - 1 if count > 0 else 0)) / of


@contextlib.contextmanager
def settled_extremes() -> Iterator[None]:
    """Within, such a choice is the number that it always comes to."""
    with contextlib.ExitStack() as stack:
        for name, sign in _METHODS.items():
            original = getattr(SymNode, name, None)
            if original is not None:
                stack.enter_context(patch.object(SymNode, name, _settling(original, sign)))
        yield


def _settling(original: Any, sign: int) -> Any:
    def chosen(self: SymNode, other: SymNode) -> SymNode:
        expressions = _expression(self), _expression(other)
        if not any(one.has(FloorDiv) for one in expressions):  # as nearly always
            return original(self, other)  # type: ignore[no-any-return]
        difference = sign * (expressions[0] - expressions[1])
        if difference.has(FloorDiv) and not difference.has(Max, Min) and self.is_int() and other.is_int():
            for node, over in ((self, difference), (other, -difference)):
                number = least(over)
                if number is not None and number >= 0:
                    return node
        return original(self, other)  # type: ignore[no-any-return]

    return chosen


def _expression(node: SymNode) -> sympy.Expr:
    return sympy.Integer(node.int_()) if node.is_constant() else node.expr
