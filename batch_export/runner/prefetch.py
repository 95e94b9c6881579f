"""What a remote store has of a run's actions, brought here before the cells are gone through one by one.

Cells arrive; entries appear in the local store. An action's key depends on the results before it, so the cells are
followed step by step together: all keys that are missing at a step are asked for at once, and only cells whose result
came go on. What the remote does not have is not asked for again by this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batch_export.digest import Digest
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import Chain, Get
from batch_export.runner.results import Results
from batch_export.steps import LOCAL

Resolve = Callable[[PlannedCell, Get], Chain]
"""`walk.resolve` with everything but the cell and the results filled in."""


def prefetch(cells: Sequence[PlannedCell], results: Results, resolve: Resolve) -> None:
    """Fetches the results of these cells that the remote store has and the local one has not.

    Args:
        cells: what there is to do.
        results: the run's.
        resolve: follows a cell as far as there are results.
    """
    going = list(cells)
    asked: set[Digest] = set()
    while going:
        pending = [(cell, resolve(cell, results.look_up_here).pending) for cell in going]
        wanted = [
            (cell, step.action.key)
            for cell, step in pending
            if step is not None and step.action.mnemonic not in LOCAL and step.action.key not in asked
        ]
        if not wanted:
            return
        keys = tuple(dict.fromkeys(key for _, key in wanted))
        asked.update(keys)
        found = results.fetch(keys)
        going = [cell for cell, key in wanted if key in found]
