"""Numbers made of fractions of sizes are computed as the model does, also where torch's algebra knows a shorter way.

Nothing arrives. Leaves: a context in which torch's pass that puts equal sizes together leaves alone what was made of
fractions. By algebra `n / 5 + 0.4 - 0.4` is `n / 5`, and `(1 - 0.9) * n` is `n - 0.9 * n`; Python's numbers are not,
and what `int` makes of them differs by one at some sizes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.fx.passes import runtime_assert
from torch.utils._sympy import functions

_OWN = "_get_sym_val"
_FRACTIONS = tuple(
    kind
    for name in ("FloatTrueDiv", "IntTrueDiv", "FloatPow", "ToFloat", "RoundDecimal")
    if (kind := getattr(functions, name, None)) is not None
)


@contextlib.contextmanager
def rounded_numbers() -> Iterator[None]:
    """Within, what was made of fractions keeps its own steps.

    NOTE: this replaces a function of a pass of torch's; a torch without it puts them together.
    """
    own: Any = getattr(runtime_assert, _OWN, None)
    if own is None:
        yield
        return

    def without_fractions(node: torch.fx.Node) -> Any:
        found = own(node)
        return None if isinstance(found, sympy.Basic) and found.has(sympy.Float, *_FRACTIONS) else found

    setattr(runtime_assert, _OWN, without_fractions)
    try:
        yield
    finally:
        setattr(runtime_assert, _OWN, own)
