"""Answers that a model's code compares by identity (`same is True`, `match n == m: case True:`).

A model arrives. Leaves: the lines. An answer about free sizes is an object of torch's while a capture runs, so that
`is True` is false of it whatever the sizes are, and nobody hears of it: such a program is compared with its model.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType

import torch

from batch_export.exporter.capture.kinds import reached

_COMPARES, _GIVES = "IS_OP", "LOAD_CONST"


def of_answers(module: torch.nn.Module) -> Iterator[str]:
    """Yields the lines (`file:line`) at which a model's own code compares with True or False by identity."""
    for function in reached(module):
        yield from _lines(function.__code__)


@functools.lru_cache(maxsize=4096)
def _lines(code: CodeType) -> tuple[str, ...]:
    found: list[str] = []
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _lines(inner)
    if not any(one is True or one is False for one in code.co_consts):
        return tuple(found)
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if (
            one.opname == _COMPARES
            and before is not None
            and before.opname == _GIVES
            and before.argval in (True, False)
        ):
            line = one.positions.lineno if one.positions is not None else None
            found.append(f"{code.co_filename}:{line or code.co_firstlineno}")
        before = one
    return tuple(found)
