"""How long units of work will take, as far as that can be told: recorded, else from other units of the model, else
from its config.

Units and recorded seconds arrive, seconds by unit name leave; pure. A guess only orders work (the longest first) and
is never shown: over the zoo's 74 recorded groups it has a rank correlation of 0.7 with what they took.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from batch_export import axes
from batch_export.errors import BatchExportError
from batch_export.runner.units import Unit
from batch_export.spec import ModelSpec

_BASE_S = 0.6
_LIBRARY = 2.8
"""What a library's model takes, compared with one that a file of one's own builds."""
_LARGE = 3.0
"""Likewise for the tag `large`."""
_PER_CASE = 1.4
"""Likewise for each further size that the file is checked at: dynamic files are captured with symbols."""
_ELEMENTS_POWER = 0.06


def estimated(units: Iterable[Unit], recorded: Mapping[str, float]) -> dict[str, float]:
    """Returns seconds for every unit, by name.

    Args:
        units: what there is to do.
        recorded: what units took when they were last executed, by name (`model/dynamic/exporter`).
    """
    todo = list(units)
    if all(unit.name in recorded for unit in todo):
        return {unit.name: recorded[unit.name] for unit in todo}
    models = {unit.cells[0].cell.model: unit.cells[0].model for unit in todo}
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    whole = len(todo[0].cells[0].cell.capture.split("/"))  # words of a name; a part of a group has one more
    for name, seconds in recorded.items():
        words = name.split("/")
        model, dynamic = words[0], words[1] if len(words) == whole else ""
        if model in models and dynamic:
            ratios[model].append(seconds / guess(models[model], dynamic))
    usual = median([ratio for found in ratios.values() for ratio in found] or [1.0])
    return {unit.name: recorded.get(unit.name) or _scaled(unit, ratios, usual) for unit in todo}


def _scaled(unit: Unit, ratios: Mapping[str, list[float]], usual: float) -> float:
    """The guess, corrected by how wrong it was about the model's other units, or else about all."""
    cell = unit.cells[0].cell
    return guess(unit.cells[0].model, cell.dynamic) * median(ratios.get(cell.model) or [usual])


def guess(model: ModelSpec, dynamic: str) -> float:
    """Returns seconds of a whole group, told from the model's config alone."""
    sizes = axes.example_sizes(model)
    elements = sum(math.prod(axes.size_of(entry, sizes) for entry in leaf.shape) for leaf in model.inputs if leaf.dtype)
    try:
        cases = len(axes.case_indices(model, dynamic))
    except BatchExportError:
        cases = 1  # a setting of an earlier run that the model no longer has
    seconds: float = _BASE_S * (1 + elements) ** _ELEMENTS_POWER * _PER_CASE ** (cases - 1)
    return seconds * (_LIBRARY if model.requires else 1.0) * (_LARGE if "large" in model.tags else 1.0)
