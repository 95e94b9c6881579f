"""Attention whose queries see a window of the keys, for opsets whose own has no windows: as a mask."""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.legalise.rules import NoForm, Result, attribute, first, given, needed, no_longer, rank
from batch_export.legalise.writing import Writer


def windows_as_mask(node: ir.Node, op: Writer) -> Result:
    """Attention of opset 25 as that of opset 24."""
    left, right = attribute(node, "left_window_size", -1), attribute(node, "right_window_size", -1)
    no_longer(node, "left_window_size", "right_window_size")
    if left < 0 and right < 0:
        return None
    if given(node, 6) is not None:
        raise NoForm("Attention with windows and nonpad_kv_seqlen")
    query, key, mask, past = first(node), needed(node, 1), given(node, 3), given(node, 4)
    axis = 1 if rank(query, "Attention with windows") == 3 else 2
    queries, keys = _size(op, query, axis), _size(op, key, axis)
    before = op.number(0) if past is None else _size(op, past, 2)
    place = op.Unsqueeze(op.Add(op.Range(op.number(0), queries, op.number(1)), before), op.number([1]))
    away = op.Sub(op.Range(op.number(0), op.Add(keys, before), op.number(1)), place)  # [queries, keys]
    seen = op.GreaterOrEqual(away, op.number(-left)) if left >= 0 else None
    if right >= 0:
        until = op.LessOrEqual(away, op.number(right))
        seen = until if seen is None else op.And(seen, until)
    assert seen is not None
    if mask is None:
        together = seen
    elif mask.dtype == ir.DataType.BOOL:
        together = op.And(mask, seen)
    else:
        together = op.Where(seen, mask, op.like(-math.inf, mask))
    if len(node.inputs) < 4:
        node.resize_inputs(4)
    node.replace_input_with(3, together)
    return None


def _size(op: Writer, value: ir.Value, axis: int) -> ir.Value:
    return op.Gather(op.Shape(value), op.number(axis))
