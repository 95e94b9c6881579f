"""`arange`: lengths and values as torch computes them, in float64 wherever one of the numbers is a fraction."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops import core

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.never_negative import is_never_negative


@lowering("aten::arange")
def arange(end: Number, dtype: int | None = None) -> RecordedValue:
    """0, 1, ... up to `end`."""
    return _range(0, end, 1, dtype)


@lowering("aten::arange.start")
def arange_from(start: Number, end: Number, dtype: int | None = None) -> RecordedValue:
    """`start`, `start + 1`, ... up to `end`."""
    return _range(start, end, 1, dtype)


@lowering("aten::arange.start_step")
def arange_by(start: Number, end: Number, step: Number = 1, dtype: int | None = None) -> RecordedValue:
    """`start`, `start + step`, ... up to `end`."""
    return _range(start, end, step, dtype)


def _range(start: Number, end: Number, step: Number, dtype: int | None) -> RecordedValue:
    wanted = None if dtype is None or dtype == -1 else ir.DataType(dtype)
    if all(_is_whole(number) for number in (start, end, step)):
        bounds = [_as(number, ir.DataType.INT64) for number in (start, end, step)]
        numbers = op.Range(*bounds) if _stays_whole(start, step) else op.Neg(op.Range(*map(op.Neg, bounds)))
        return numbers if wanted is None else op.Cast(numbers, to=wanted)
    if wanted is not None and not wanted.is_floating_point():
        plain = cast("Callable[..., RecordedValue]", core.aten_arange_start_step)
        return plain(start, end, step, dtype=int(wanted))
    numbers = op.Range(*(_as(number, ir.DataType.DOUBLE) for number in (start, end, step)))
    return op.Cast(numbers, to=wanted or ir.DataType.FLOAT)


def _stays_whole(start: Number, step: Number) -> bool:
    """Whether the numbers rise from zero or more.

    Of a Gather by a Range onnxruntime makes a Slice, which counts a start or an end below zero from the back. It does
    not see through the negative of a Range.
    """
    if isinstance(step, int) and step < 0:
        return False
    return not isinstance(start, (int, ir.Value)) or is_never_negative(start)


def _is_whole(number: Number) -> bool:
    if isinstance(number, ir.Value):
        return number.dtype is not None and number.dtype.is_integer()
    return isinstance(number, int)


def _as(number: Number, dtype: ir.DataType) -> RecordedValue:
    if isinstance(number, ir.Value):
        return op.Cast(number, to=dtype)
    return op.Constant(value=ir.tensor(number, dtype=dtype))
