"""Sizes that a capture took as a number, as `unbind` does: at which other sizes it would do so again.

Arrives: torch's environment of sizes after a capture that fixed an axis. Leaves: what was true of the sizes before;
where that is true of others, a capture from these goes the same way, up to the same line, and fixes the axis there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.exporter.capture import guard_points
from batch_export.exporter.capture.guard_sources import TAKEN
from batch_export.exporter.capture.guard_symbols import AskedAxis, Symbols
from batch_export.exporter.capture.guards import symbol_table


@dataclass(frozen=True, slots=True)
class TakenSize:
    """A size that became a number, and the conditions under which it does."""

    symbols: Symbols
    conditions: tuple[sympy.Basic, ...]

    def is_taken_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether a capture from these sizes of the axes takes that size as a number, too."""
        return guard_points.all_hold(self.conditions, self.symbols, sizes)


def taken_size(
    environment: ShapeEnv | None, asked: Sequence[AskedAxis], aliases: Mapping[str, str]
) -> TakenSize | None:
    """The first size that was taken so; None where there is none, or a branch at one size came before.

    Args:
        environment: torch's environment of sizes.
        asked, aliases: as in `guards.fixed_sizes`.
    """
    if environment is None:
        return None
    before: list[sympy.Basic] = []
    for guard in environment.guards:
        expression = guard.expr
        sides = expression.args if isinstance(expression, sympy.Eq) else ()
        if any(side.is_Integer for side in sides) and any(isinstance(side, sympy.Symbol) for side in sides):
            if guard.sloc.framework_loc != TAKEN:
                return None
            return TakenSize(symbol_table(environment, asked, aliases), tuple(before))
        before.append(expression)
    return None
