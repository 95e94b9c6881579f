"""Whether something of sizes is true at every size that the file is for, and not only where the capture's guards hold.

Arrives: conditions on torch's symbols, and guards that were false at sizes at which the program was seen to be right.
Leaves: truth values. Torch's environment of sizes knows all guards: `(l - w) // 2` is 0 where sizes are equal, as they
are in the example, and negative at other sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

_DOUBTED = "_batch_export_doubted"
"""Where torch's environment of sizes keeps guards that nothing is to be concluded from."""
_DECLARED = "_batch_export_declared"
"""Where it keeps the least sizes that were declared."""


def declare(environment: Any, lowest: Mapping[str, int]) -> None:
    """Says which sizes the file is for.

    Args:
        environment: torch's, of sizes; None where there is none.
        lowest: torch's symbol -> the least size that was declared for the axis.
    """
    if environment is not None:
        vars(environment)[_DECLARED] = dict(lowest)


def doubt(environment: Any, guards: Iterable[sympy.Basic]) -> None:
    """Says that the file is for sizes at which some guards are false, too.

    Args:
        environment: torch's, of sizes; None where there is none.
        guards: their conditions.
    """
    if environment is not None:
        vars(environment)[_DOUBTED] = frozenset(guards)


def is_sure(condition: object) -> bool:
    """Whether a condition on sizes is true whatever is doubted.

    Args:
        condition: a truth value of Python's or of torch's.

    NOTE: by a private method of torch; a torch without it has what statically holds.
    """
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    environment: Any = condition.node.shape_env
    doubted: frozenset[Any] = vars(environment).get(_DOUBTED, frozenset())
    lowest: Mapping[str, int] = vars(environment).get(_DECLARED, {})
    is_declared = any(lowest.get(one.name) for one in condition.node.expr.free_symbols)
    if not is_declared or not hasattr(environment, "_maybe_evaluate_static"):
        if not statically_known_true(condition):
            return False
        if not doubted or not hasattr(environment, "_maybe_evaluate_static"):
            return True
    symbols = frozenset().union(*(one.free_symbols for one in doubted))
    ranges = tuple(
        (
            symbol,
            (ValueRanges(0, int_oo) if symbol in symbols else known) & ValueRanges(lowest.get(symbol.name, 0), int_oo),
        )
        for symbol, known in environment.var_to_range.items()
    )
    axioms = tuple(one for one in environment.get_axioms() if one not in doubted)
    found = environment._maybe_evaluate_static(condition.node.expr, axioms=axioms, var_to_range=ranges)
    return bool(found == True)  # noqa: E712  (a sympy value, or None)
