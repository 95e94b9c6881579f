"""Elementary functions of float64, for which onnxruntime has no kernels; float32 keeps ONNX's own operators.

A float64 model is never computed in float32. Sources: the arctangent by two halvings of its argument,
atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))), and its Taylor series; the inverse hyperbolic functions by log(1 + x), and
sinh by exp(x) - 1, so that nothing cancels near 0 or overflows far from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.stable import exp_minus_one, log_one_plus, softplus_of

_LARGE = 1e150
"""Beyond this a square would overflow, and 1 beside it is nothing."""


def _number(value: float) -> RecordedValue:
    return op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE))


def is_double(value: ir.Value) -> bool:
    """Whether the elements are float64."""
    return value.dtype == ir.DataType.DOUBLE


def _with_sign_of(x: RecordedValue, size: ir.Value) -> RecordedValue:
    """What has the size that is given and the sign of x; of a zero it is x, in the branch that keeps its sign."""
    signed = op.Where(op.Greater(x, _number(0.0)), size, op.Neg(size))
    return op.Where(op.Greater(op.Abs(x), _number(0.0)), signed, x)


def arctangent(x: RecordedValue) -> RecordedValue:
    """The arctangent of any float dtype."""
    if not is_double(x):
        return op.Atan(x)
    one = _number(1.0)
    size = op.Abs(x)
    is_far = op.Greater(size, one)
    z = op.Where(is_far, op.Reciprocal(size), size)
    for _ in range(2):
        z = op.Div(z, op.Add(one, op.Sqrt(op.Add(one, op.Mul(z, z)))))
    square = op.Mul(z, z)
    series = _number(1.0 / 25)
    for odd in range(23, 0, -2):
        series = op.Sub(_number(1.0 / odd), op.Mul(square, series))
    near = op.Mul(op.Mul(z, _number(4.0)), series)
    return _with_sign_of(x, op.Where(is_far, op.Sub(_number(math.pi / 2), near), near))


def _arcsine(x: RecordedValue) -> RecordedValue:
    one = _number(1.0)
    return arctangent(op.Div(x, op.Sqrt(op.Mul(op.Sub(one, x), op.Add(one, x)))))


def _arccosine(x: RecordedValue) -> RecordedValue:
    one = _number(1.0)
    half = arctangent(op.Sqrt(op.Div(op.Sub(one, x), op.Add(one, x))))
    return op.Mul(_number(2.0), op.Abs(half))  # of 1 it is 0 and not -0


def _sinh(x: RecordedValue) -> RecordedValue:
    size = op.Abs(x)
    near = exp_minus_one(op.Min(size, _number(1.0)))
    near = op.Mul(_number(0.5), op.Add(near, op.Div(near, op.Add(near, _number(1.0)))))
    root = op.Exp(op.Mul(size, _number(0.5)))
    far = op.Mul(op.Mul(_number(0.5), root), root)
    far = op.Sub(far, op.Div(_number(0.25), far))
    return _with_sign_of(x, op.Where(op.Less(size, _number(1.0)), near, far))


def _cosh(x: RecordedValue) -> RecordedValue:
    root = op.Exp(op.Mul(op.Abs(x), _number(0.5)))
    half = op.Mul(op.Mul(_number(0.5), root), root)
    return op.Add(half, op.Div(_number(0.25), half))


def _far(size: ir.Value, near: Callable[[RecordedValue], RecordedValue]) -> RecordedValue:
    """A function of arguments below `_LARGE`, and log(2 x) beyond."""
    is_far = op.Greater(size, _number(_LARGE))
    beyond = op.Add(op.Log(size), _number(math.log(2.0)))
    return op.Where(is_far, beyond, near(op.Where(is_far, _number(1.0), size)))


def _arsinh(x: RecordedValue) -> RecordedValue:
    def near(size: ir.Value) -> RecordedValue:
        square = op.Mul(size, size)
        root = op.Sqrt(op.Add(square, _number(1.0)))
        return log_one_plus(op.Add(size, op.Div(square, op.Add(root, _number(1.0)))))

    return _with_sign_of(x, _far(op.Abs(x), near))


def _arcosh(x: RecordedValue) -> RecordedValue:
    def near(size: ir.Value) -> RecordedValue:
        above = op.Sub(size, _number(1.0))
        return log_one_plus(op.Add(above, op.Sqrt(op.Mul(above, op.Add(above, _number(2.0))))))

    return op.Where(op.Less(x, _number(1.0)), _number(math.nan), _far(x, near))


def _artanh(x: RecordedValue) -> RecordedValue:
    size = op.Abs(x)
    ratio = op.Div(op.Mul(_number(2.0), size), op.Sub(_number(1.0), size))
    return _with_sign_of(x, op.Mul(_number(0.5), log_one_plus(ratio)))


def _tangent(x: RecordedValue) -> RecordedValue:
    return op.Div(op.Sin(x), op.Cos(x))


def _either(
    single: Callable[..., RecordedValue], double: Callable[..., RecordedValue], text: str
) -> Callable[[ir.Value], RecordedValue]:
    def function(self: ir.Value) -> RecordedValue:
        data = self if axes.is_float(self) else axes.shaped(op.Cast(self, to=ir.DataType.FLOAT), self.shape)
        return double(data) if is_double(data) else single(data)

    function.__doc__ = text
    return function


atan = lowering("aten::atan", "aten::arctan", "prims::atan")(_either(op.Atan, arctangent, "The arctangent."))
asin = lowering("aten::asin", "aten::arcsin", "prims::asin")(_either(op.Asin, _arcsine, "The arcsine."))
acos = lowering("aten::acos", "aten::arccos", "prims::acos")(_either(op.Acos, _arccosine, "The arccosine."))
tan = lowering("aten::tan", "prims::tan")(_either(op.Tan, _tangent, "The tangent."))
sinh = lowering("aten::sinh", "prims::sinh")(_either(op.Sinh, _sinh, "The hyperbolic sine."))
cosh = lowering("aten::cosh", "prims::cosh")(_either(op.Cosh, _cosh, "The hyperbolic cosine."))
asinh = lowering("aten::asinh", "prims::asinh")(_either(op.Asinh, _arsinh, "The inverse of sinh."))
acosh = lowering("aten::acosh", "prims::acosh")(_either(op.Acosh, _arcosh, "The inverse of cosh."))
atanh = lowering("aten::atanh", "prims::atanh")(_either(op.Atanh, _artanh, "The inverse of tanh."))


# Activations ----------------------------------------------------------------------------------------------------------


def _positive_or(x: ir.Value, otherwise: ir.Value) -> RecordedValue:
    return op.Where(op.Greater(x, axes.like(0.0, x)), x, otherwise)


@lowering("aten::elu")
def elu(self: ir.Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> RecordedValue:
    """scale x where x > 0, scale alpha (exp(input_scale x) - 1) elsewhere."""
    if not is_double(self) and scale == 1.0 and input_scale == 1.0:
        return op.Elu(self, alpha=alpha)
    curve = exp_minus_one(op.Mul(self, axes.like(input_scale, self)))
    return op.Mul(_positive_or(self, op.Mul(curve, axes.like(alpha, self))), axes.like(scale, self))


@lowering("aten::selu")
def selu(self: ir.Value) -> RecordedValue:
    """ELU with the constants of self-normalising networks (Klambauer et al., 2017)."""
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return elu(self, alpha, scale) if is_double(self) else op.Selu(self, alpha=alpha, gamma=scale)


@lowering("aten::celu")
def celu(self: ir.Value, alpha: float = 1.0) -> RecordedValue:
    """x where x > 0, alpha (exp(x / alpha) - 1) elsewhere."""
    if not is_double(self) and self.dtype != ir.DataType.FLOAT:
        single = axes.shaped(op.Cast(self, to=ir.DataType.FLOAT), self.shape)
        return op.Celu(single, alpha=alpha)
    return elu(self, alpha, 1.0, 1.0 / alpha) if is_double(self) else op.Celu(self, alpha=alpha)


@lowering("aten::leaky_relu")
def leaky_relu(self: ir.Value, negative_slope: float = 0.01) -> RecordedValue:
    """x where x > 0, negative_slope x elsewhere."""
    if not is_double(self):
        return op.LeakyRelu(self, alpha=negative_slope)
    return _positive_or(self, op.Mul(self, axes.like(negative_slope, self)))


@lowering("aten::prelu", "aten::_prelu_kernel")
def prelu(self: ir.Value, weight: ir.Value) -> RecordedValue:
    """x where x > 0, weight x elsewhere, with one weight or one for each channel (axis 1)."""
    count = axes.rank(self)
    if axes.rank(weight) == 1:
        weight = op.Squeeze(weight, [0]) if count == 0 else weight
        weight = op.Reshape(weight, [1, -1, *[1] * (count - 2)]) if count >= 2 else weight
    return _positive_or(self, op.Mul(self, weight)) if is_double(self) else op.PRelu(self, weight)


def _clipped_line(x: ir.Value) -> RecordedValue:
    line = op.Add(op.Div(x, _number(6.0)), _number(0.5))
    return op.Max(op.Min(line, _number(1.0)), _number(0.0))


@lowering("aten::hardsigmoid")
def hardsigmoid(self: ir.Value) -> RecordedValue:
    """x / 6 + 1/2 between 0 and 1."""
    return _clipped_line(self) if is_double(self) else op.HardSigmoid(self, alpha=1 / 6, beta=1 / 2)


@lowering("aten::hardswish")
def hardswish(self: ir.Value) -> RecordedValue:
    """x times its hardsigmoid."""
    return op.Mul(self, _clipped_line(self)) if is_double(self) else op.HardSwish(self)


@lowering("aten::mish")
def mish(self: ir.Value) -> RecordedValue:
    """x tanh(softplus(x))."""
    return op.Mul(self, op.Tanh(softplus_of(self))) if is_double(self) else op.Mish(self)
