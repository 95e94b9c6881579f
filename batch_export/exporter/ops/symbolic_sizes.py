"""Arithmetic on sizes (torch.SymInt, SymFloat, SymBool) that is known only when the model runs: scalars in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import INT64

from batch_export.errors import TranslationError
from batch_export.exporter.graph import python_integers
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import exponents
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.stable import logarithm_to


def _double(number: Number) -> RecordedValue:
    """A size or a plain number as float64, which is what Python computes with."""
    if isinstance(number, ir.Value):
        return op.Cast(number, to=ir.DataType.DOUBLE)
    return op.Constant(value=ir.tensor(float(number), dtype=ir.DataType.DOUBLE))


@lowering("torch::sym_max")
def sym_max(a: ir.Value, b: ir.Value) -> RecordedValue:
    """The larger of two sizes."""
    return op.Max(a, b)


@lowering("torch::sym_min")
def sym_min(a: ir.Value, b: ir.Value) -> RecordedValue:
    """The smaller of two sizes."""
    return op.Min(a, b)


@lowering("torch::sym_not")
def sym_not(a: ir.Value) -> RecordedValue:
    """The negation of a symbolic condition."""
    return op.Not(a)


@lowering("torch::sym_float")
def sym_float(a: ir.Value) -> RecordedValue:
    """A size as a floating-point number, with the precision of Python's."""
    return op.Cast(a, to=ir.DataType.DOUBLE)


@lowering("_operator::truediv")
def truediv(a: int | float | ir.Value, b: int | float | ir.Value) -> RecordedValue:
    """The quotient of two sizes, with the precision of Python's."""
    return op.Div(_double(a), _double(b))


@lowering("torch::_sym_sqrt")
def sym_sqrt(a: ir.Value) -> RecordedValue:
    """`math.sqrt` of a size."""
    return op.Sqrt(_double(a))


@lowering("torch::_sym_log2")
def sym_log2(a: ir.Value) -> RecordedValue:
    """`math.log2` of a size."""
    return logarithm_to(2, _double(a))


@lowering("torch::sym_int")
def sym_int(a: ir.Value) -> RecordedValue:
    """A symbolic number truncated to an integer."""
    return op.Cast(a, to=INT64.dtype)


@lowering("torch::sym_ite")
def sym_ite(condition: ir.Value, then: ir.Value, otherwise: ir.Value) -> RecordedValue:
    """One of two sizes, by a symbolic condition."""
    return op.Where(condition, then, otherwise)


@lowering("torch::sym_sum")
def sym_sum(args: Sequence[ir.Value]) -> RecordedValue:
    """The sum of several sizes."""
    total: RecordedValue = op.Constant(value_int=0)
    for item in args:
        total = op.Add(total, item)
    return total


@lowering("_operator::floordiv", "math::floordiv")
def floordiv(a: ir.Value, b: ir.Value) -> RecordedValue:
    """Floor division of what may be negative, such as a difference of sizes."""
    return python_integers.floor_quotient(a, b)


@lowering("batch_export::quotient_of_sizes")
def quotient_of_sizes(a: ir.Value, b: ir.Value) -> RecordedValue:
    """Floor division of what is never negative."""
    return op.Div(a, b)


@lowering("_operator::mod")
def mod(a: int | float | ir.Value, b: int | float | ir.Value) -> RecordedValue:
    """Python's remainder, with the sign of the divisor."""
    if any(isinstance(number, float) or getattr(number, "dtype", None) == ir.DataType.DOUBLE for number in (a, b)):
        return python_integers.float_remainder(_double(a), _double(b))
    return op.Mod(a, b)


@lowering("_operator::pos")
def pos(a: ir.Value) -> RecordedValue:
    """A size as it is."""
    return op.Identity(a)


@lowering("_operator::pow")
def pow_of_sizes(a: int | float | ir.Value, b: int | float | ir.Value) -> RecordedValue:
    """A power: of integers an integer, else with the precision of Python's numbers."""
    if any(isinstance(number, float) or getattr(number, "dtype", None) == ir.DataType.DOUBLE for number in (a, b)):
        return op.Pow(_double(a), _double(b))
    if isinstance(a, ir.Value) and isinstance(b, int) and b >= 0:
        return op.Identity(exponents.whole_power(a, b))
    if isinstance(a, int) and abs(a) > 1 and not isinstance(b, float):
        return _from_table(a, b)
    return op.Pow(a, b)


def _from_table(base: int, exponent: ir.Value | int) -> RecordedValue:
    """A power of a known number, as far as int64 goes: ONNX Runtime computes those of integers in float64."""
    known = [1]
    while abs(known[-1] * base) < 1 << 63:
        known.append(known[-1] * base)
    return op.Gather(op.Constant(value_ints=known), op.Max(op.Min(exponent, len(known) - 1), 0), axis=0)


@lowering("builtins::round")
def python_round(number: ir.Value, ndigits: int | None = None) -> ir.Value:
    """Python's `round`: to the nearest integer or to so many digits, halves to the even one.

    Raises:
        TranslationError: for digits before the point.
    """
    if ndigits is None:
        return op.Cast(op.Round(number), to=ir.DataType.INT64)
    if ndigits < 0:
        raise TranslationError(
            f"round(..., {ndigits}) of a number made of sizes has no translation",
            next_step="divide, round and multiply",
        )
    return number if number.dtype == ir.DataType.INT64 else python_integers.rounded(_double(number), ndigits)
