"""During capture, NumPy makes no arrays of numbers of the data.

NumPy has no other word for a symbolic number than an object. Of objects it takes the largest and the smallest by
comparisons, where NaN gets lost, and what it would change of a number (`nan_to_num`) it leaves as it is. Sizes are
never NaN, and their arrays stay arrays of objects.

Nothing arrives. Leaves: a context in which torch's symbolic numbers say what array they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.symbol import SymT, symbol_is_type

_KINDS: tuple[Any, ...] = (torch.SymInt, torch.SymFloat)
_OF_DATA = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)


def _as_array(number: Any, *_: object, **__: object) -> np.ndarray[Any, Any]:
    """What NumPy takes a symbolic number for.

    Raises:
        GuardOnDataDependentSymNode: the number is one of the data.
    """
    expression = number.node.expr
    if any(symbol_is_type(one, _OF_DATA) for one in expression.free_symbols):
        raise GuardOnDataDependentSymNode(expression, "NumPy computes with a number of the data")
    array = np.empty((), dtype=object)
    array[()] = number
    return array


@contextlib.contextmanager
def array_numbers() -> Iterator[None]:
    """Within, what NumPy would make of a number of the data is refused as a decision by data is."""
    lacking = [kind for kind in _KINDS if not hasattr(kind, "__array__")]
    for kind in lacking:
        kind.__array__ = _as_array
    try:
        yield
    finally:
        for kind in lacking:
            del kind.__array__
