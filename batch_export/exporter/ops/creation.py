"""Tensors made from numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops.marking import lowering

_INT64 = int(ir.DataType.INT64)


def _triangle(places: Sequence[NDArray[np.integer]], dtype: int) -> RecordedValue:
    table = np.stack(places).astype(np.int64)
    return op.Cast(op.Constant(value=ir.tensor(table)), to=_INT64 if dtype == -1 else dtype)


@lowering("aten::tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, dtype: int = -1) -> RecordedValue:
    """Rows and columns of the lower triangle: `[2, count]`."""
    return _triangle(np.tril_indices(row, offset, col), dtype)


@lowering("aten::triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, dtype: int = -1) -> RecordedValue:
    """Rows and columns of the upper triangle: `[2, count]`."""
    return _triangle(np.triu_indices(row, offset, col), dtype)


def _pairs(self: ir.Value, number: complex) -> RecordedValue:
    """A complex number in the shape of a complex tensor, which is pairs of real numbers here."""
    pair = op.Constant(value=ir.tensor([number.real, number.imag], dtype=self.dtype))
    return op.Expand(pair, op.Shape(self))


@lowering("aten::full_like", is_complex=True)
def full_like(self: ir.Value, fill_value: complex, dtype: int = -1) -> RecordedValue:
    """One number in the shape of a complex tensor."""
    if dtype not in (-1, None, ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        raise TranslationError(
            "full_like of a complex tensor to a real dtype has no translation",
            operator="aten::full_like",
            next_step="use torch.full(x.shape, ...)",
        )
    return _pairs(self, complex(fill_value))


@lowering("aten::zeros_like", is_complex=True)
def zeros_like(self: ir.Value, dtype: int = -1) -> RecordedValue:
    """Zeros in the shape of a complex tensor."""
    return full_like(self, 0, dtype)


@lowering("aten::ones_like", is_complex=True)
def ones_like(self: ir.Value, dtype: int = -1) -> RecordedValue:
    """Ones in the shape of a complex tensor."""
    return full_like(self, 1, dtype)


@lowering("aten::empty.memory_format", "aten::_efficientzerotensor")
def empty(size: Sequence[Size], dtype: int = -1) -> RecordedValue:
    """Memory without content is zeros here. Float4 is pairs of numbers to torch, and Expand has none at any opset."""
    wanted = ir.DataType.FLOAT if dtype in (-1, None) else ir.DataType(dtype)
    if wanted != ir.DataType.FLOAT4E2M1:
        return op.Expand(op.Constant(value=ir.tensor(0, dtype=wanted)), list(size))
    last = [one * 2 if isinstance(one, int) else op.Mul(one, 2) for one in size[-1:]]
    zero = ir.serde.serialize_tensor(ir.tensor([0.0], dtype=wanted))
    return op.ConstantOfShape([*size[:-1], *last], value=zero)


@lowering("aten::empty_permuted")
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], dtype: int = -1) -> RecordedValue:
    """Memory without content is zeros here; the order of axes in memory has no counterpart."""
    zeros = op.ConstantOfShape(list(size))
    return zeros if dtype == -1 else op.Cast(zeros, to=dtype)


@lowering("aten::hann_window", "aten::hann_window.periodic")
def hann_window(window_length: Size, periodic: bool = True, dtype: int = -1) -> RecordedValue:
    """The raised cosine over a length; over a length of 1 it is 1, not the 0 at which it begins."""
    wanted = ir.DataType.FLOAT if dtype in (-1, None) else ir.DataType(dtype)
    length = window_length if isinstance(window_length, ir.Value) else op.Constant(value_int=window_length)
    window = op.HannWindow(length, periodic=int(periodic), output_datatype=wanted)
    one = op.Constant(value=ir.tensor(1.0, dtype=wanted))
    return op.Where(op.Equal(length, op.Constant(value_int=1)), one, window)


@lowering("aten::hamming_window")
def hamming_window(window_length: Size, dtype: int = -1) -> RecordedValue:
    """The raised cosine of 0.54 and 0.46; ONNX's operator of that name has 25/46 and 21/46."""
    wanted = ir.DataType.FLOAT if dtype in (-1, None) else ir.DataType(dtype)
    length = window_length if isinstance(window_length, ir.Value) else op.Constant(value_int=window_length)
    turn = op.Constant(value=ir.tensor(2 * np.pi, dtype=ir.DataType.DOUBLE))
    places = op.Cast(op.Range(0, length, 1), to=ir.DataType.DOUBLE)
    waves = op.Cos(op.Mul(op.Div(places, op.Cast(length, to=ir.DataType.DOUBLE)), turn))
    mean, height = (op.Constant(value=ir.tensor(one, dtype=ir.DataType.DOUBLE)) for one in (0.54, 0.46))
    one = op.Constant(value=ir.tensor(1.0, dtype=ir.DataType.DOUBLE))
    window = op.Where(op.Equal(length, op.Constant(value_int=1)), one, op.Sub(mean, op.Mul(height, waves)))
    return op.Cast(window, to=wanted)
