"""Python's floor division and remainder in ONNX, whose own follow C: for numbers made of sizes, negative ones included.

Arrives: ONNX scalars or plain numbers. Leaves: ONNX scalars. Where neither operand can be negative, one node does.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue


def rounds_alike(dividend: object, divisor: object) -> bool:
    """Whether rounding a quotient down is rounding it towards zero: the dividend is >= 0 and the divisor > 0.

    Args:
        dividend, divisor: integers, or torch's symbolic ones; of anything else it is not known.
    """
    if not isinstance(dividend, (int, torch.SymInt)) or not isinstance(divisor, (int, torch.SymInt)):
        return False
    return statically_known_true(dividend >= 0) and statically_known_true(divisor > 0)


def floor_quotient(dividend: Number, divisor: Number) -> RecordedValue:
    """`dividend // divisor` of integers of either sign."""
    quotient = op.Div(dividend, divisor)
    inexact = op.Not(op.Equal(op.Mul(quotient, divisor), dividend))
    signs_differ = op.Xor(op.Less(dividend, 0), op.Less(divisor, 0))
    return op.Sub(quotient, op.Cast(op.And(inexact, signs_differ), to=ir.DataType.INT64))


def float_remainder(dividend: RecordedValue, divisor: RecordedValue) -> RecordedValue:
    """`dividend % divisor` of float64 numbers, with the sign of the divisor, of zeros too."""
    remainder = op.Mod(dividend, divisor, fmod=1)
    zero = op.Mul(divisor, 0.0)
    signs_differ = op.Xor(op.Less(remainder, 0.0), op.Less(divisor, 0.0))
    shifted = op.Where(signs_differ, op.Add(remainder, divisor), remainder)
    return op.Where(op.Equal(remainder, 0.0), zero, shifted)
