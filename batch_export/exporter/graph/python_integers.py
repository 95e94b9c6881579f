"""Python's floor division and remainder in ONNX, whose own follow C: for numbers made of sizes, negative ones included.

Arrives: ONNX scalars or plain numbers. Leaves: ONNX scalars. Where neither operand can be negative, one node does.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.graph.sure_sizes import is_sure


def rounds_alike(dividend: object, divisor: object) -> bool:
    """Whether rounding a quotient down is rounding it towards zero: the dividend is >= 0 and the divisor > 0.

    Args:
        dividend, divisor: integers, or torch's symbolic ones; of anything else it is not known.
    """
    if not isinstance(dividend, (int, torch.SymInt)) or not isinstance(divisor, (int, torch.SymInt)):
        return False
    return is_sure(dividend >= 0) and is_sure(divisor > 0)


def floor_quotient(dividend: Number, divisor: Number) -> RecordedValue:
    """`dividend // divisor` of integers of either sign.

    ONNX's remainder has the divisor's sign, as Python's; by a number that may be 0 runtimes end the process, though.
    """
    if _is_positive(divisor):
        return op.Div(op.Sub(dividend, op.Mod(dividend, divisor)), divisor)
    quotient = op.Div(dividend, divisor)
    inexact = op.Not(op.Equal(op.Mul(quotient, divisor), dividend))
    signs_differ = op.Xor(op.Less(dividend, 0), op.Less(divisor, 0))
    return op.Sub(quotient, op.Cast(op.And(inexact, signs_differ), to=ir.DataType.INT64))


def _is_positive(number: Number) -> bool:
    """Whether a number is known, and above 0."""
    content = number.const_value if isinstance(number, ir.Value) else None
    if content is not None and content.size == 1:
        return bool(content.numpy().item() > 0)
    return isinstance(number, int) and number > 0


def float_remainder(dividend: RecordedValue, divisor: RecordedValue) -> RecordedValue:
    """`dividend % divisor` of float64 numbers, with the sign of the divisor, of zeros too."""
    remainder = op.Mod(dividend, divisor, fmod=1)
    zero = op.Mul(divisor, 0.0)
    signs_differ = op.Xor(op.Less(remainder, 0.0), op.Less(divisor, 0.0))
    shifted = op.Where(signs_differ, op.Add(remainder, divisor), remainder)
    return op.Where(op.Equal(remainder, 0.0), zero, shifted)


def rounded(number: RecordedValue, digits: int) -> RecordedValue:
    """`round(number, digits)` of float64 numbers: by the exact number, halves to the even digit.

    Where the number times a power of ten is rounded to a half, what was lost in the product decides (Dekker 1971).
    """
    power = 10.0**digits

    def halves(of: RecordedValue) -> tuple[RecordedValue, RecordedValue]:
        spread = op.Mul(of, 134217729.0)  # 2^27 + 1
        high = op.Sub(spread, op.Sub(spread, of))
        return high, op.Sub(of, high)

    product = op.Mul(number, power)
    high, low = halves(number)
    factor_high, factor_low = halves(op.CastLike(power, number))
    lost = op.Sub(op.Mul(high, factor_high), product)
    lost = op.Add(op.Add(lost, op.Mul(high, factor_low)), op.Mul(low, factor_high))
    lost = op.Add(lost, op.Mul(low, factor_low))
    is_half = op.Equal(op.Sub(product, op.Floor(product)), 0.5)
    nearest = op.Where(op.And(is_half, op.Greater(lost, 0.0)), op.Ceil(product), op.Round(product))
    nearest = op.Where(op.And(is_half, op.Less(lost, 0.0)), op.Floor(product), nearest)
    return op.Div(nearest, power)
