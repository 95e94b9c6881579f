"""The least sizes that a model takes, as torch's environment knows them once they were tried.

Arrives: a captured program and its guards, after the trials. Leaves: the ranges of its sizes. A decomposition asks for
an equality (`min(3, h) == 3`) again, and is refused one that holds for some sizes only: what the model refuses is none
of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from batch_export.exporter.capture.guard_points import least
from batch_export.exporter.capture.guards import Guard, environment_of


def hold_to_models_limits(program: torch.export.ExportedProgram, guards: Sequence[Guard]) -> None:
    """Has torch's environment know from which size on the model takes an axis, where a guard says no more than that."""
    environment = environment_of(program)
    found = [known for guard in guards if guard.is_models and (known := least(guard.expression)) is not None]
    if environment is None or not found:
        return
    for symbol, size in found:
        sizes = environment.var_to_range.get(symbol)
        if sizes is not None and sizes.lower < size <= sizes.upper:
            environment.var_to_range[symbol] = sizes & ValueRanges(size, int_oo)
    environment._update_version_counter()
