"""Torch operators that opset 26 and later have whole: running products, and numbers read as others of the same bits.

Arrives: the torch operator's arguments. Leaves: ONNX's operator. A file of an older opset has what the rules of
`legalise/` make of it, or an error that names it. Integers read as integers are a Cast at every opset.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.utils._python_dispatch import _disable_current_modes

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op, op26
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.accumulations import as_number
from batch_export.exporter.ops.marking import lowering

_EIGHT_BITS = {
    ir.DataType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ir.DataType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ir.DataType.FLOAT8E5M2: torch.float8_e5m2,
    ir.DataType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ir.DataType.FLOAT8E8M0: torch.float8_e8m0fnu,
}
"""Numbers of eight bits, which BitCast has no kernel for in onnxruntime."""

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
    """The same bits read as another dtype of the same width; integers as float8 are looked up in a table of all 256.

    Raises:
        TranslationError: if the widths differ, if numbers are read as truth values, which lose all but 0 and 1, or
            float8 as anything else, for which onnxruntime has no kernel.
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
    if wanted in _EIGHT_BITS and _is_a_byte(self.dtype):
        return axes.shaped(_looked_up(self, wanted), self.shape)
    if self.dtype in _EIGHT_BITS or wanted in _EIGHT_BITS:
        raise TranslationError(
            f"a view of {self.dtype} as {wanted} has no form that runs: onnxruntime's BitCast has no kernel for float8",
            next_step="convert the numbers (x.to(torch.float32)), or keep the bytes as uint8 and view those as float8",
        )
    return axes.shaped(op26.BitCast(self, to=wanted), self.shape)


def _is_a_byte(dtype: ir.DataType) -> bool:
    """Whether a Cast to uint8 keeps the eight bits of such a number."""
    return dtype in (ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.BOOL)


def _looked_up(self: ir.Value, wanted: ir.DataType) -> RecordedValue:
    """The float8 numbers of bytes: each is a number of float32, which a Cast rounds to itself."""
    with _disable_current_modes():  # it may be a part of what torch decomposes
        numbers = torch.arange(256, dtype=torch.uint8).view(_EIGHT_BITS[wanted]).to(torch.float32).numpy()
    table = op.Constant(value=ir.tensor(numbers))
    places = op.Cast(op.Cast(self, to=ir.DataType.UINT8), to=ir.DataType.INT64)
    return op.Cast(op.Gather(table, places), to=wanted)
