"""Which axes were asked for as free, and compared at one size only.

A record with facts and its model arrive; names of axes leave. A file may well be right at other sizes of such an axis:
nothing shows it.
"""

from __future__ import annotations

from batch_export import axes
from batch_export.record import Record
from batch_export.spec import ModelSpec


def untried_axes(record: Record, model: ModelSpec) -> list[str]:
    """Returns the free axes of a cell at which outputs were compared at the example size alone.

    An empty batch compares no element, so it is no other size. None where nothing was compared at all: the cell says
    why.
    """
    setting = record.cell.dynamic
    compared = [run.sizes for run in record.runs if run.outputs and run.variant != "empty"]
    if not compared or axes.supports(model, setting) is not None:
        return []
    examples = axes.example_sizes(model)
    return [
        name for name in axes.free_axes(model, setting) if all(sizes.get(name) == examples[name] for sizes in compared)
    ]
