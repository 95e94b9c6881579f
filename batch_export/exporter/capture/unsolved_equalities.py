"""Equalities of a free size that torch cannot solve do not end a capture.

Nothing arrives. Leaves: a context in which torch passes over such an equality. torch (2.13) takes one of a single size
(`h/16 == 2*((h/16)//2)`) for a number that the size has, and fails where sympy does not find it; and where a number of
the data is a multiple of a size (`torch._check(x[mask].numel() == 16 * batch)`), it computes the largest one in
float64, which makes 2**63 of 2**63 - 2, and fails on what lies beyond it. The equality stays a guard of the program,
which is tried at other sizes as any other one is (`guard_judging.py`). May go when torch does so.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from torch.fx.experimental import symbolic_shapes


@contextlib.contextmanager
def unsolved_equalities() -> Iterator[None]:
    """While open, torch leaves a size free whose equality it cannot solve; a torch without this solver is as it is."""
    with contextlib.ExitStack() as stack:
        for name, method, replacement in (
            ("DimConstraints", "solve", _solving),
            ("ShapeEnv", "_set_replacement", _replacing),
        ):
            kind: Any = getattr(symbolic_shapes, name, None)
            own: Any = getattr(kind, method, None)
            if own is not None:
                stack.enter_context(patch.object(kind, method, replacement(own)))
        yield


def _solving(own: Callable[..., Any]) -> Callable[..., Any]:
    def solve(self: Any) -> None:
        while True:
            left = len(self._symbols_with_equalities)
            try:
                return own(self)  # type: ignore[no-any-return]
            except NotImplementedError:  # sympy's; torch has put the size aside
                if len(self._symbols_with_equalities) >= left:
                    raise

    return solve


def _replacing(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def set_replacement(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            own(self, *args, **kwargs)
        except AssertionError as error:  # raised before anything was replaced
            if "not a subset of src_bound" not in str(error):
                raise

    return set_replacement
