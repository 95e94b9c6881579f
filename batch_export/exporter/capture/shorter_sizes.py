"""Whole numbers that forward computes of sizes in a roundabout way, in a form that torch's algebra goes on with.

Arrives: a symbolic number that torch just made. Leaves: it, with a shorter expression for the same numbers: a size with
what is missing to a multiple (`w + (k - w % k) % k`) is `k * ceil(w / k)`, and a fraction of sizes that is known to be
whole, or that is rounded to a whole number, is what comes of whole numbers alone. torch (2.13) shortens neither; what
is made of such a size, as in the windows of an image, grows with every step, and its comparisons take seconds each.

Python's fractions are exact here: a quotient that is whole is one below 2**53 whatever it is made of, and one of whole
numbers below 2**53 is never rounded across, or onto, the next whole number.
"""

from __future__ import annotations

from typing import Any

import sympy
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy import functions

_REMAINDERS = (functions.Mod, functions.PythonMod)
_QUOTIENTS = (functions.IntTrueDiv, functions.FloatTrueDiv)
_ROUNDED = (functions.TruncToInt, functions.CeilToInt, functions.FloorToInt)


def shorten(number: SymNode) -> bool:
    """Gives a symbolic number its shorter expression, in place.

    Returns:
        Whether a rounded fraction has become a function of whole numbers.
    """
    written: Any = number._expr
    if type(written) is sympy.Add:
        padded = _padded(written)
        if padded is not None:
            number._expr = padded
            number._optimized_summation = False
        return False
    if type(written) not in _ROUNDED:
        return False
    whole = _whole(written.args[0])
    whole = _rounded(written, number.shape_env) if whole is None else whole
    if whole is None:
        return False
    number._expr = whole
    return True


def _padded(total: sympy.Add) -> Any:
    """A sum of a size and what is missing to a multiple of a number; None for any other sum."""
    for term in total.args:
        if type(term) not in _REMAINDERS:
            continue
        missing_of, step = term.args
        if not (isinstance(step, sympy.Integer) and step > 0):
            continue
        size = _that_lacks(missing_of, step)
        if size is None:
            continue
        parts = sympy.Add.make_args(size)
        others = [one for one in total.args if one is not term]
        if all(part in others for part in parts):
            rest = [one for one in others if one not in parts]
            return sympy.Add(step * functions.FloorDiv(size + step - 1, step), *rest)
    return None


def _that_lacks(number: Any, step: sympy.Integer) -> Any:
    """The size `w` of `-w` and `k - w % k`, which leave by `k` what `w` lacks to a multiple; None for other numbers."""
    remainder = step - number
    if type(remainder) in _REMAINDERS and remainder.args[1] == step:
        return remainder.args[0]
    size = -number
    return size if all(not one.could_extract_minus_sign() for one in sympy.Add.make_args(size)) else None


def _whole(fraction: Any) -> Any:
    """The whole number that a fraction is at all sizes, each of its steps exact; None where it may be another."""
    if isinstance(fraction, functions.ToFloat):
        return fraction.args[0]
    if isinstance(fraction, sympy.Float):
        return sympy.Integer(int(fraction)) if fraction == int(fraction) else None
    if type(fraction) not in _QUOTIENTS:
        return fraction if fraction.is_integer else None
    over, under = map(_whole, fraction.args)
    if over is None or under is None:
        return None
    quotient = over / under
    factors = quotient.as_powers_dict().items()
    are_whole = all(one.is_integer and power.is_Integer and power > 0 for one, power in factors)
    return quotient if quotient == 0 or are_whole else None


def _rounded(written: Any, environment: Any) -> Any:
    """A fraction of a whole number by a plain one, rounded; None for other fractions, and where signs are unknown."""
    (fraction,) = written.args
    if type(fraction) not in _QUOTIENTS:
        return None
    over, under = map(_whole, fraction.args)
    if over is None or not (isinstance(under, sympy.Integer) and under > 0):
        return None
    if isinstance(written, functions.CeilToInt):
        return functions.FloorDiv(over + under - 1, under)
    if isinstance(written, functions.TruncToInt) and not _is_natural(over, environment):
        return None
    return functions.FloorDiv(over, under)


def _is_natural(number: Any, environment: Any) -> bool:
    if number.is_nonnegative:
        return True
    return environment is not None and bool(environment.bound_sympy(number).lower >= 0)
