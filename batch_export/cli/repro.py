"""`repro CELL [--run RUN]`: the smallest thing that fails as the cell does, with a script that tries it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from batch_export.cli.arguments import offered_cells
from batch_export.cli.follow_up import answer


def run(arguments: list[str]) -> int:
    """Prints what was written; see `follow_up.answer` for the exit code."""
    return answer(
        "repro", "Writes the smallest thing that fails as a cell does, with a script that tries it.", arguments
    )


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else offered_cells(before)
