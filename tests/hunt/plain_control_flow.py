"""torch's control flow as plain Python, for runs that look at every operator: its own lets no dispatch mode in.

Nothing arrives. Leaves: a context in which `torch.cond`, `torch.while_loop` and `scan` are an `if`, a `while` and a
`for`, with the same numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from hunt.programs import Program


def _cond(chosen: Any, first: Callable[..., Any], other: Callable[..., Any], operands: Any = ()) -> Any:
    return first(*operands) if chosen else other(*operands)


def _while_loop(condition: Callable[..., Any], body: Callable[..., Any], carried: Any) -> Any:
    while condition(*carried):
        carried = body(*carried)
    return carried


def _scan(
    step: Callable[..., Any], carry: torch.Tensor, over: torch.Tensor, *, dim: int = 0, reverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    made = []
    for one in reversed(over.unbind(dim)) if reverse else over.unbind(dim):
        carry, given = step(carry, one)
        made.append(given)
    return carry, torch.stack(made[::-1] if reverse else made, dim)


def names_control_flow(program: Program) -> bool:
    """Whether a step of a program is one of these."""
    return any(name in step.code for step in program.steps for name in ("torch.cond(", "while_loop(", "scan("))


@contextlib.contextmanager
def plain_control_flow() -> Iterator[None]:
    """Within, a program's control flow is Python's."""
    with (
        mock.patch.object(torch, "cond", _cond),
        mock.patch.object(torch, "while_loop", _while_loop),
        mock.patch.object(torch._higher_order_ops, "scan", _scan),
    ):
        yield
