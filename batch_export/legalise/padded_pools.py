"""Padding in front of a pool stays a node of its own in onnxruntime.

onnxruntime's optimiser adds the amounts of a Pad of zeros to the pads of the pool behind it. MaxPool pads with what is
less than every number, so that a window of negative numbers no longer gives the zero beside them; and a pool whose pads
reach its kernel's size is refused. A Pad that names its axes is left alone, and so is one whose result goes through a
Concat of one input, which is for opsets whose Pad takes no axes.

Arrives: a model at its opset. Leaves: the same model in which no such Pad is taken into a pool.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.rules import attribute, given, known
from batch_export.legalise.writing import Writer

_POOLS = frozenset({"AveragePool", "MaxPool"})
_PAD_WITH_AXES = 18


def keep_apart(model: ir.Model, opset: int) -> int:
    """Changes the nodes in place.

    Returns:
        How many there were.
    """
    changed = 0
    for node in list(nodes_of(model.graph)):
        if node.domain == "" and node.op_type in _POOLS and node.inputs[0] is not None:
            pad = node.inputs[0].producer()
            if pad is not None and pad.domain == "" and pad.op_type == "Pad" and _is_merged(pad):
                changed += _named_axes(pad) if opset >= _PAD_WITH_AXES else _joined_alone(node)
    return changed


def _is_merged(pad: ir.Node) -> bool:
    """Whether the optimiser may take a padding away: by a constant number of zeros, for one use, on all axes."""
    if attribute(pad, "mode", "constant") != "constant" or given(pad, 3) is not None:
        return False
    fill = known(given(pad, 2))
    return given(pad, 2) is None or (fill is not None and not fill.any())


def _named_axes(pad: ir.Node) -> int:
    """Gives a Pad the numbers of all axes, where their count is known."""
    amounts = known(given(pad, 1))
    if amounts is None:
        return 0
    op = Writer()
    axes = op.number(range(amounts.size // 2))
    assert pad.graph is not None
    pad.graph.insert_before(pad, op.nodes)
    pad.resize_inputs(4)
    pad.replace_input_with(3, axes)
    return 1


def _joined_alone(pool: ir.Node) -> int:
    """Puts a Concat of one input in front of a pool: the optimiser knows it for nothing that it could remove."""
    padded = pool.inputs[0]
    assert padded is not None
    assert pool.graph is not None
    op = Writer()
    joined = op.Concat(padded, axis=0)
    joined.type, joined.shape = padded.type, padded.shape
    pool.graph.insert_before(pool, op.nodes)
    pool.replace_input_with(0, joined)
    return 1
