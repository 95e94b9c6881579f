"""`bisect CELL [--run RUN]`: the first wrong node of a failing cell, the line of the model, and who is to blame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from batch_export.cli.arguments import offered_cells
from batch_export.cli.follow_up import answer


def run(arguments: list[str]) -> int:
    """Prints what was found; see `follow_up.answer` for the exit code."""
    return answer(
        "bisect", "Names the first wrong node of a failing cell, its source line, and who is to blame.", arguments
    )


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else offered_cells(before)
