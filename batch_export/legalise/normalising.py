"""Normalisation over the last axes, in operators of opset 13 to 17."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.rules import NoForm
from batch_export.legalise.writing import Writer

HALF = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def last_axes(value: ir.Value, axis: int) -> list[int]:
    """The axes from `axis` on, counted from the end.

    Raises:
        NoForm: the number of axes is not known, and `axis` counts from the front.
    """
    if axis >= 0:
        if value.shape is None:
            raise NoForm("a normalisation of an input whose number of axes is not known")
        axis -= len(value.shape)
    return list(range(axis, 0))


def layer_normalisation(
    op: Writer, value: ir.Value, axis: int, epsilon: float, stash: ir.DataType
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Mean 0 and variance 1 over the axes from `axis` on: the result, in the value's dtype, the mean, and the inverse
    of the standard deviation, in the dtype that it is computed in.

    The nodes are those that runtimes know as layer normalisation and merge again.
    """
    dtype = value.dtype
    if dtype is None:
        raise NoForm("a normalisation of an unknown dtype")
    axes = last_axes(value, axis)
    wide = op.Cast(value, to=stash) if dtype in HALF and dtype != stash else value
    mean = op.ReduceMean(wide, axes=axes, keepdims=1)
    centred = op.Sub(wide, mean)
    variance = op.ReduceMean(op.Pow(centred, op.like(2.0, wide)), axes=axes, keepdims=1)
    deviation = op.Sqrt(op.Add(variance, op.like(epsilon, wide)))
    normal = op.Div(centred, deviation)
    return (op.Cast(normal, to=dtype) if wide is not value else normal), mean, op.Reciprocal(deviation)
