"""`repro CELL [--run RUN]`: the smallest thing that fails as the cell does, with a script that tries it."""

from __future__ import annotations

from batch_export.verbs.after_cell import answer


def run(arguments: list[str]) -> int:
    """Prints what was written; see `after_cell.answer` for the exit code."""
    return answer(
        "repro", "Writes the smallest thing that fails as a cell does, with a script that tries it.", arguments
    )
