"""Equalities of a free size that sympy cannot solve do not end a capture.

Nothing arrives. Leaves: a context in which torch passes over such an equality. torch (2.13) takes one of a single size
(`h/16 == 2*((h/16)//2)`) for a number that the size has, and fails where sympy does not find it. The equality stays a
guard of the program, which is tried at other sizes as any other one is (`guard_trials.py`). May go when torch does so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from torch.fx.experimental import symbolic_shapes


@contextlib.contextmanager
def unsolved_equalities() -> Iterator[None]:
    """While open, torch leaves a size free whose equality it cannot solve; a torch without this solver is as it is."""
    solver: Any = getattr(symbolic_shapes, "DimConstraints", None)
    own: Any = getattr(solver, "solve", None)
    if own is None:
        yield
        return

    def solve(self: Any) -> None:
        while True:
            left = len(self._symbols_with_equalities)
            try:
                return own(self)  # type: ignore[no-any-return]
            except NotImplementedError:  # sympy's; torch has put the size aside
                if len(self._symbols_with_equalities) >= left:
                    raise

    with patch.object(solver, "solve", solve):
        yield
