"""Decisions by numbers that Python computes of sizes alone, told apart from decisions by data.

Arrives: numbers that functions of `math` give of sizes while torch captures, to which torch has no more than a symbol
of something unknown, and the error of a capture that had to decide by one. Leaves: the sizes that it goes by, as they
were asked for. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from batch_export.exporter.capture.guard_symbols import AskedAxis
from batch_export.exporter.capture.guards import symbol_table
from batch_export.exporter.capture.strategies import Assumption

_NOTED = "_batch_export_of_sizes"
"""Where torch's environment of sizes keeps what symbols are computed of."""


def note(made: object, number: object) -> None:
    """Notes of which sizes a number was computed.

    Args:
        made: the number, as torch has it.
        number: what it was computed of.
    """
    if isinstance(made, torch.SymFloat) and isinstance(number, (torch.SymInt, torch.SymFloat)):
        known: dict[str, set[str]] = vars(made.node.shape_env).setdefault(_NOTED, {})
        of = _sizes_of(number.node.expr.free_symbols, known)
        for symbol in made.node.expr.free_symbols:
            known[str(symbol)] = of


def _sizes_of(symbols: object, known: Mapping[str, set[str]]) -> set[str]:
    assert isinstance(symbols, (set, frozenset))
    return {size for symbol in map(str, symbols) for size in known.get(symbol, {symbol})}


def by_sizes(
    decision: Assumption | None,
    error: BaseException | None,
    environment: ShapeEnv | None,
    asked: Sequence[AskedAxis],
    aliases: Mapping[str, str],
) -> Assumption | None:
    """A decision with the sizes that it goes by, where it goes by nothing else.

    Args:
        decision: what a capture failed at, as a decision by data.
        error: its error.
        environment: torch's environment of sizes then.
        asked, aliases: as in `guards.fixed_sizes`.
    """
    seen = error
    while seen is not None and not isinstance(seen, GuardOnDataDependentSymNode):
        seen = seen.__cause__ or seen.__context__
    symbols = getattr(getattr(seen, "cond", None), "free_symbols", None)
    if decision is None or environment is None or not symbols:
        return decision
    axes = symbol_table(environment, asked, aliases).axes
    sizes = _sizes_of(symbols, vars(environment).get(_NOTED, {}))
    if not sizes <= axes.keys():
        return decision
    return replace(decision, sizes=tuple(sorted({axes[size].text for size in sizes})))
