"""torch's own questions whether there is nothing, or one thing alone, of how many only the data knows.

Arrives: a capture that is about to run. Leaves: answers to such questions as at every other number, and the lines of
the model at which they were asked. `F.batch_norm(x[mask], ...)` asks for its shapes whether nothing is chosen, and
`roll`, pooling and attention do: what they give then has the shape that they give otherwise. torch (2.13) ends such a
capture. Whoever gets the program compares it with the model at extremes of its inputs, where most masks choose nothing
or all; what a decomposition asks in addition is compared by nobody. What the model itself asks
(`if x[mask].numel() == 0:`) is a decision by data, and none of this.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, free_unbacked_symbols

from batch_export.exporter.capture.guard_sources import is_torchs, is_users, quoted, users_frames

_TORCH = os.path.dirname(torch.__file__) + os.sep
_ASKING = tuple(_TORCH + room for room in ("__init__.py", "fx", "utils"))
"""Where torch puts a question that somebody else has."""
_CHOOSING = _TORCH + "_higher_order_ops"
_SEVERAL = (*range(2, 20), 31, 64, 127, 997, 4099)
"""Numbers at which a question has to have one answer, besides those that it names."""
_FEW = 4
"""What a number that torch calls no size has to reach: so the answers for 2, 3 and 4 are compared at the least."""
_MOST = 4
"""Of how many sizes a question is answered."""


@contextlib.contextmanager
def general_sizes() -> Iterator[dict[str, None]]:
    """While open, torch's own questions about sizes of the data that only 0 and 1 answer otherwise end no capture.

    Yields:
        The lines at which such a question was asked, with their places, which grow.

    NOTE: this wraps a private method of torch's symbolic numbers, by which Python's `if` and torch's kernels ask them.
    """
    asked: dict[str, None] = {}
    own: Any = SymNode.guard_bool

    def guard_bool(self: SymNode, file: str, line: int) -> bool:
        try:
            return bool(own(self, file, line))
        except GuardOnDataDependentSymNode:
            answer = _at_several(self) if _torch_asks(sys._getframe(1)) else None
            if answer is None:
                raise
            asked[next((quoted(*one) for one in users_frames()), "?")] = None
            return answer

    SymNode.guard_bool = guard_bool  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        SymNode.guard_bool = own  # type: ignore[method-assign]


def _torch_asks(frame: FrameType | None) -> bool:
    """Whether it is torch's code that asks, and neither the model's nor an operator that takes a way by the answer."""
    asking = None
    while frame is not None and not is_users(frame.f_code.co_filename):
        file = frame.f_code.co_filename
        if file.startswith(_CHOOSING):
            return False
        if asking is None and file.startswith(_TORCH) and not file.startswith(_ASKING):
            asking = file
        if asking is None and not is_torchs(file):
            return False
        frame = frame.f_back
    return asking is not None


def _at_several(node: SymNode) -> bool | None:
    """What a question is answered with at several sizes of 2 and more; None where that is not one answer."""
    question: Any = node.expr
    environment: Any = node.shape_env
    if environment is None or not isinstance(question, sympy.Basic):
        return None
    symbols = sorted(question.free_symbols, key=str)
    of_data = free_unbacked_symbols(question)
    if not of_data or not all(_is_size(one, environment) for one in of_data) or len(symbols) > _MOST:
        return None
    named = {abs(int(one)) for one in question.atoms(sympy.Integer)}
    sizes = sorted({*_SEVERAL, *_about(named)})
    limits = {one: environment.var_to_range[one] for one in of_data - environment.size_like}
    possible = (at for at in _together(symbols, sizes) if all(at[one] <= known.upper for one, known in limits.items()))
    answers = {question.xreplace(at) for at in possible}
    return bool(answers.pop()) if len(answers) == 1 and answers <= {sympy.true, sympy.false} else None


def _is_size(symbol: sympy.Symbol, environment: Any) -> bool:
    """Whether a number of the data is one of elements: torch says so, or knows that it is 0 or above.

    A truth value is 0 or 1 to torch: what is asked of it is the model's question, whoever puts it.
    """
    known = environment.var_to_range[symbol]
    return symbol in environment.size_like or bool(known.lower >= 0 and known.upper >= _FEW)


def _about(named: set[int]) -> Iterator[int]:
    """Sizes that a question with some numbers may be about: these, their quotients, and those beside them."""
    for one in named:
        for other in (1, *named):
            quotient = one // other if other else 0
            yield from (size for size in (quotient - 1, quotient, quotient + 1) if size > 1)


def _together(symbols: list[sympy.Symbol], sizes: list[int]) -> Iterator[dict[sympy.Basic, sympy.Basic]]:
    """All symbols at one size, and at others each."""
    for place, size in enumerate(sizes):
        yield dict.fromkeys(symbols, sympy.Integer(size))
        for step in (1, 7, -3):
            others = [sizes[(place + step * count) % len(sizes)] for count in range(len(symbols))]
            yield {one: sympy.Integer(other) for one, other in zip(symbols, others, strict=True)}
