"""Entries of an axis that are each repeated, taken by one Gather: heads that several queries share.

Arrives: the copy of a model that is written to a file. Leaves: the same model, changed in place. The program itself
keeps the Unsqueeze, Expand and Reshape that it was translated to, which rewriters for runtimes look for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise.edits import constant, insert, known, only_use, same_sizes
from batch_export.exporter.optimise.neutral_operators import broadcast
from batch_export.legalise.nested import graphs_of

_MOST = 4096
"""Places that the Gather takes."""


def merge(model: ir.Model) -> int:
    """Rewrites in place; returns how often."""
    return sum(
        _repeats(model, node)
        for graph in graphs_of(model.graph)
        for node in [one for one in graph if one.op_type == "Reshape" and not one.domain]
    )


def _repeats(model: ir.Model, node: ir.Node) -> int:
    """Unsqueeze, Expand and Reshape that repeat each entry of an axis: a Gather of the entries, each several times."""
    expand = only_use(node.inputs[0], "Expand")
    unsqueeze = None if expand is None else only_use(expand.inputs[0], "Unsqueeze")
    if expand is None or unsqueeze is None:
        return 0
    data, axes = unsqueeze.inputs[0], known(unsqueeze.inputs[1])
    wide: Sequence[object] | ir.Shape | None = expand.outputs[0].shape
    result = node.outputs[0].shape
    if data is None or data.shape is None or axes is None or axes.size != 1 or result is None:
        return 0
    sizes = list(data.shape)
    place = int(axes.item()) % (len(sizes) + 1)
    if wide is None:
        wide = broadcast([*sizes[:place], 1, *sizes[place:]], expand.inputs[1])
    if wide is None or place == 0 or len(wide) != len(sizes) + 1 or len(result) != len(sizes):
        return 0
    entries, times = sizes[place - 1], wide[place]
    if not isinstance(entries, int) or not isinstance(times, int) or entries * times > _MOST:
        return 0
    if not same_sizes([*sizes[:place], times, *sizes[place:]], wide):
        return 0
    if not same_sizes([*sizes[: place - 1], entries * times, *sizes[place:]], result):
        return 0
    indices = constant(model, np.repeat(np.arange(entries, dtype=np.int64), times), "repeated")
    insert(node, "Gather", [data, indices], {"axis": place - 1}, [node])
    return 1
