"""Quotients of sizes are cancelled term by term, without a search for their shortest form.

Nothing arrives. Leaves: a context in which `(64*n*a + 64*n*b) // (16*n)` becomes `4*a + 4*b` at once. torch (2.13) has
found the common factor by then, and asks sympy to simplify what is left, which for sizes behind several layers of
windows takes a quarter of a second each time: half of a capture with free images.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import sympy
from torch.utils._sympy import functions

_NAME = "sympy"


class _Cancelling:
    """sympy, but for quotients that cancel."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sympy, name)

    @staticmethod
    def simplify(expression: Any, **given: Any) -> Any:
        """Returns an expression without denominators where its terms have none left; else what sympy makes of it."""
        made = cancelled(expression)
        if made is None:
            made = sympy.cancel(expression)  # a sum in the denominator
        return made if all(map(_is_whole, sympy.Add.make_args(made))) else sympy.simplify(expression, **given)


def cancelled(expression: Any) -> Any:
    """Returns a quotient as a sum of whole terms; None where there is none, or several sums are its factors."""
    if all(map(_is_whole, sympy.Add.make_args(expression))):
        return expression
    factors = sympy.Mul.make_args(expression)
    sums = [factor for factor in factors if isinstance(factor, sympy.Add)]
    if len(sums) != 1:
        return None
    rest = sympy.Mul(*(factor for factor in factors if factor is not sums[0]))
    terms = [rest * term for term in sums[0].args]
    return sympy.Add(*terms) if all(map(_is_whole, terms)) else None


def _is_whole(term: Any) -> bool:
    return not any(
        (isinstance(factor, sympy.Rational) and not isinstance(factor, sympy.Integer))
        or (isinstance(factor, sympy.Pow) and not factor.exp.is_nonnegative)
        for factor in sympy.Mul.make_args(term)
    )


@contextlib.contextmanager
def cancelled_quotients() -> Iterator[None]:
    """Within, torch's symbolic divisions simplify so.

    NOTE: this replaces a name in a private module of torch's; where it is not there everything stays as it is.
    """
    if not hasattr(functions, _NAME):
        yield
        return
    with patch.object(functions, _NAME, _Cancelling()):
        yield
