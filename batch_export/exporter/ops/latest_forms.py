"""Torch operators that opset 26 and later have whole: running products, and numbers read as others of the same bits.

Arrives: the torch operator's arguments. Leaves: ONNX's operator. A file of an older opset has what the rules of
`legalise/` make of it, or an error that names it. Integers read as integers are a Cast at every opset.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op, op26
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.accumulations import as_number
from batch_export.exporter.ops.marking import lowering

_WITH_KERNEL = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64})


@lowering("aten::cumprod", opset=26)
def cumprod_as_one(self: ir.Value, dim: int, dtype: int = -1) -> ir.Value:
    """The products of the elements so far along an axis."""
    data = as_number(self, dtype)
    if axes.rank(self) == 0:
        return data
    wide = data if data.dtype in _WITH_KERNEL else op.Cast(data, to=_wider(data.dtype))
    position = op.Constant(value=ir.tensor(axes.axis(self, dim), dtype=ir.DataType.INT64))
    products = axes.shaped(op26.CumProd(wide, position), self.shape)
    return products if wide is data else op.Cast(products, to=data.dtype)


def _wider(dtype: ir.DataType | None) -> ir.DataType:
    return ir.DataType.FLOAT if dtype is None or dtype.is_floating_point() else ir.DataType.INT64


@lowering("aten::view.dtype")
def view_as_dtype(self: ir.Value, dtype: int) -> RecordedValue:
    """The same bits read as another dtype of the same width.

    Raises:
        TranslationError: if the widths differ, or if numbers are read as truth values, which lose all but 0 and 1.
    """
    wanted = ir.DataType(dtype)
    if self.dtype == wanted:
        return op.Identity(self)
    if self.dtype is None or self.dtype.itemsize != wanted.itemsize:
        raise TranslationError(
            f"a view of {self.dtype} as {wanted}, which is of another width, has no form in ONNX",
            next_step="view it as a dtype of as many bytes",
        )
    if wanted == ir.DataType.BOOL:
        raise TranslationError(
            f"a view of {self.dtype} as BOOL has no form in ONNX, whose truth values keep no other bits than 0 and 1",
            next_step="compare with 0 (x != 0) for truth values, or write to a copy of another dtype",
        )
    same_bits = wanted.is_integer() and (self.dtype.is_integer() or self.dtype == ir.DataType.BOOL)
    if same_bits:  # Cast keeps an integer's lower bits, here all of them, and gives 0 and 1 for truth values
        return axes.shaped(op.Cast(self, to=wanted), self.shape)
    return axes.shaped(op26.BitCast(self, to=wanted), self.shape)
