"""`bisect CELL [--run RUN]`: the first wrong node of a failing cell, the line of the model, and who is to blame."""

from __future__ import annotations

from batch_export.verbs.after_cell import answer


def run(arguments: list[str]) -> int:
    """Prints what was found; see `after_cell.answer` for the exit code."""
    return answer(
        "bisect", "Names the first wrong node of a failing cell, its source line, and who is to blame.", arguments
    )
