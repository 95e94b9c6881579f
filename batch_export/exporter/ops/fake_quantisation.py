"""Fake quantisation to ranges that ONNX's QuantizeLinear has no dtype for, such as the 0 to 15 of four bits.

torch: `(clamp(round(x / scale) + zero, low, high) - zero) * scale`, halves rounded to the even number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_OF_EIGHT_BITS = ((0, 255), (-128, 127), (0, 127))


def _written_out(self: ir.Value, scale: ir.Value, zero: ir.Value, low: int, high: int) -> RecordedValue:
    data = self if self.dtype == ir.DataType.FLOAT else op.Cast(self, to=ir.DataType.FLOAT)
    moved = op.Add(op.Round(op.Mul(data, op.Reciprocal(scale))), zero)
    held = op.Min(op.Max(moved, op.Constant(value_float=float(low))), op.Constant(value_float=float(high)))
    result = op.Mul(op.Sub(held, zero), scale)
    return result if self.dtype == ir.DataType.FLOAT else op.CastLike(result, self)


def _float(number: Number) -> ir.Value:
    if isinstance(number, ir.Value):
        return number if number.dtype == ir.DataType.FLOAT else op.Cast(number, to=ir.DataType.FLOAT)
    return op.Constant(value_float=float(number))


@lowering("aten::fake_quantize_per_tensor_affine")
def per_tensor(self: ir.Value, scale: float, zero_point: int, quant_min: int, quant_max: int) -> RecordedValue:
    """Fake quantisation with numbers for scale and zero."""
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    if (quant_min, quant_max) in _OF_EIGHT_BITS:
        plain = cast("Callable[..., RecordedValue]", core.aten_fake_quantize_per_tensor_affine)
        return plain(self, scale, zero_point, quant_min, quant_max)
    return _written_out(self, _float(scale), _float(zero_point), quant_min, quant_max)


@lowering("aten::fake_quantize_per_tensor_affine.tensor_qparams")
def per_tensor_by_tensors(
    self: ir.Value, scale: ir.Value, zero_point: ir.Value, quant_min: int, quant_max: int
) -> RecordedValue:
    """Fake quantisation with tensors of one element for scale and zero."""
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    if (quant_min, quant_max) in _OF_EIGHT_BITS and zero_point.dtype == ir.DataType.INT32:
        plain = cast("Callable[..., RecordedValue]", core.aten_fake_quantize_per_tensor_affine_tensor_qparams)
        return plain(self, scale, zero_point, quant_min, quant_max)
    return _written_out(self, _float(scale), _float(zero_point), quant_min, quant_max)


@lowering("aten::fake_quantize_per_channel_affine")
def per_channel(
    self: ir.Value, scale: ir.Value, zero_point: ir.Value, axis: int, quant_min: int, quant_max: int
) -> RecordedValue:
    """Fake quantisation with a scale and a zero for each slice along an axis."""
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    if (quant_min, quant_max) in _OF_EIGHT_BITS and zero_point.dtype == ir.DataType.INT32:
        plain = cast("Callable[..., RecordedValue]", core.aten_fake_quantize_per_channel_affine)
        return plain(self, scale, zero_point, axis, quant_min, quant_max)
    others = [other for other in range(axes.rank(self)) if other != axes.axis(self, axis)]
    scales, zeros = (op.Unsqueeze(_float(one), others) if others else _float(one) for one in (scale, zero_point))
    return _written_out(self, scales, zeros, quant_min, quant_max)
