"""ONNX operators of float64 that onnxruntime has no kernels for, written out in operators that it has.

Arrives: the inputs and attributes of an operator about to be recorded for float64 (convolutions: or for integers, of
whose sums float32 loses digits), by whichever translation. Leaves: its result, computed in float64 throughout.
Operators that torch itself takes apart are named in `TAKEN_APART`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, doubles, error_function, stable, windows


def _leaky(x: ir.Value, alpha: float = 0.01) -> RecordedValue:
    return doubles.leaky_relu(x, alpha)


def _selu(
    x: ir.Value, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> RecordedValue:
    return doubles.elu(x, alpha, gamma)


def _hard_sigmoid(x: ir.Value, alpha: float = 0.2, beta: float = 0.5) -> RecordedValue:
    line = op.Add(op.Mul(x, axes.like(alpha, x)), axes.like(beta, x))
    return op.Max(op.Min(line, axes.like(1.0, x)), axes.like(0.0, x))


def _softsign(x: ir.Value) -> RecordedValue:
    return op.Div(x, op.Add(op.Abs(x), axes.like(1.0, x)))


def _above(x: ir.Value, alpha: float = 1.0) -> RecordedValue:
    return op.Where(op.Greater(x, axes.like(alpha, x)), x, axes.like(0.0, x))


def _spatial(x: ir.Value) -> list[int]:
    return list(range(2, axes.rank(x)))


def _normalised(x: ir.Value, scale: ir.Value, bias: ir.Value, epsilon: float = 1e-5) -> RecordedValue:
    """Each channel of each sample by its own mean and variance."""
    spatial = _spatial(x)
    centred = op.Sub(x, op.ReduceMean(x, spatial, keepdims=1))
    variance = op.ReduceMean(op.Mul(centred, centred), spatial, keepdims=1)
    normal = op.Div(centred, op.Sqrt(op.Add(variance, axes.like(epsilon, x))))
    behind = [-1, *[1] * len(spatial)]
    return op.Add(op.Mul(normal, op.Reshape(scale, behind)), op.Reshape(bias, behind))


def _also_of_integers(form: Callable[..., RecordedValue]) -> Callable[..., RecordedValue]:
    """A form for float64 that takes integers, too: exact while every sum is below 2^53."""

    def result(x: ir.Value, *others: ir.Value | None, **given: Any) -> RecordedValue:
        if x.dtype == ir.DataType.DOUBLE or x.dtype is None:
            return form(x, *others, **given)
        wide = [None if one is None else op.Cast(one, to=ir.DataType.DOUBLE) for one in (x, *others)]
        whole = op.Cast(form(*wide, **given), to=ir.DataType.INT64)
        return whole if x.dtype == ir.DataType.INT64 else op.Cast(whole, to=x.dtype)

    return result


def is_single(value: float) -> bool:
    """Whether float32, which attributes are, holds the number."""
    return float(np.float32(value)) == value


def _layer_normalised(
    x: ir.Value, scale: ir.Value, bias: ir.Value | None = None, axis: int = -1, epsilon: float = 1e-5, **_: object
) -> tuple[RecordedValue, ...] | None:
    """Normalised values, mean and 1 / deviation; None where float32, which the attribute is, holds the epsilon."""
    if is_single(epsilon):
        return None
    count = axes.rank(x)
    listed = list(range(axis % count, count))
    mean = op.ReduceMean(x, listed, keepdims=1)
    centred = op.Sub(x, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), listed, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, axes.like(epsilon, x))))
    normal = op.Mul(op.Mul(centred, inverse), scale)
    return normal if bias is None else op.Add(normal, bias), mean, inverse


def _by_root_mean_square(
    x: ir.Value, scale: ir.Value, axis: int = -1, epsilon: float = 1e-5, **_: object
) -> RecordedValue | None:
    """None where float32, which the attribute is, holds the epsilon."""
    if is_single(epsilon):
        return None
    count = axes.rank(x)
    square = op.ReduceMean(op.Mul(x, x), list(range(axis % count, count)), keepdims=1)
    return op.Mul(op.Div(x, op.Sqrt(op.Add(square, axes.like(epsilon, x)))), scale)


def _by_running_statistics(
    x: ir.Value,
    scale: ir.Value,
    bias: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
    epsilon: float = 1e-5,
    training_mode: int = 0,
    **_: object,
) -> RecordedValue | None:
    """None where float32, which the attribute is, holds the epsilon, and where it is not given the statistics."""
    if training_mode or is_single(epsilon):
        return None
    behind = [-1, *[1] * (axes.rank(x) - 2)]
    factor = op.Div(scale, op.Sqrt(op.Add(variance, axes.like(epsilon, x))))
    return op.Add(op.Mul(op.Sub(x, op.Reshape(mean, behind)), op.Reshape(factor, behind)), op.Reshape(bias, behind))


def _averaged(x: ir.Value) -> RecordedValue:
    return op.ReduceMean(x, _spatial(x), keepdims=1)


def _largest(x: ir.Value) -> RecordedValue:
    return op.ReduceMax(x, _spatial(x), keepdims=1)


def _product(
    a: ir.Value, b: ir.Value, c: ir.Value | None = None, alpha: float = 1.0, beta: float = 1.0, **turned: int
) -> RecordedValue | None:
    """A Gemm whose factors float32, which attributes are, does not hold; None where it holds them."""
    if is_single(alpha) and is_single(beta):
        return None
    left = op.Transpose(a, perm=[1, 0]) if turned.get("transA") else a
    right = op.Transpose(b, perm=[1, 0]) if turned.get("transB") else b
    product = op.Mul(op.MatMul(left, right), axes.like(alpha, a))
    return product if c is None or beta == 0 else op.Add(product, op.Mul(c, axes.like(beta, a)))


FORMS: Mapping[str, Callable[..., RecordedValue | tuple[RecordedValue, ...] | None]] = {
    "Acos": doubles.acos,
    "Acosh": doubles.acosh,
    "Asin": doubles.asin,
    "Asinh": doubles.asinh,
    "Atan": doubles.atan,
    "Atanh": doubles.atanh,
    "AveragePool": windows.average_pool,
    "BatchNormalization": _by_running_statistics,
    "Celu": doubles.celu,
    "Conv": _also_of_integers(windows.convolution),
    "ConvTranspose": _also_of_integers(windows.transposed_convolution),
    "Cosh": doubles.cosh,
    "Elu": doubles.elu,
    "Erf": error_function.error_function,
    "Gelu": error_function.gelu,
    "Gemm": _product,
    "GlobalAveragePool": _averaged,
    "GlobalMaxPool": _largest,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": doubles.hardswish,
    "InstanceNormalization": _normalised,
    "LayerNormalization": _layer_normalised,
    "LeakyRelu": _leaky,
    "Mish": doubles.mish,
    "PRelu": doubles.prelu,
    "RMSNormalization": _by_root_mean_square,
    "Selu": _selu,
    "Sinh": doubles.sinh,
    "Softplus": stable.softplus_of,
    "Softsign": _softsign,
    "Tan": doubles.tan,
    "ThresholdedRelu": _above,
}
"""Operator -> the function of its inputs and attributes."""

TAKEN_APART = frozenset(
    (
        *("grid_sampler", "grid_sampler_2d", "col2im", "linalg_det", "det"),
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
        *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    )
)
"""Operators of torch that are decomposed where a float64 tensor is among their arguments."""
WRITTEN_OUT = frozenset(
    ("aten::upsample_linear1d.vec", "aten::upsample_bilinear2d.vec", "aten::upsample_trilinear3d.vec")
)
"""Overloads of these that have a translation for float64, and are not decomposed."""
