"""Exponentials and logarithms that neither cancel nor overflow: `exp(x) - 1` near 0, log(exp(x) + exp(y)) far from it.

What torch computes in float32 for half precision and for integers is computed so here; the caller casts results back.
Sources: log1p: what rounding 1 + x loses is added, the first term of its series; logaddexp, logsumexp and
logcumsumexp: the largest exponent is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.division import operands
from batch_export.exporter.ops.marking import lowering

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def widened(self: ir.Value) -> ir.Value:
    """float32 and float64 as they are, everything else as float32."""
    if axes.is_float(self) and self.dtype not in _HALF:
        return self
    return axes.shaped(op.Cast(self, to=ir.DataType.FLOAT), self.shape)


def exp_minus_one(x: ir.Value) -> RecordedValue:
    """exp(x) - 1; within 1 of 0 as 2 t / (1 - t) with t = tanh(x / 2)."""
    one = axes.like(1.0, x)
    half = op.Tanh(op.Mul(x, axes.like(0.5, x)))
    near = op.Div(op.Add(half, half), op.Sub(one, half))
    return op.Where(op.GreaterOrEqual(op.Abs(x), one), op.Sub(op.Exp(x), one), near)


def log_one_plus(x: ir.Value) -> RecordedValue:
    """log(1 + x); from 1 on as it stands, where what rounding 1 + x loses is nothing beside the logarithm."""
    one = axes.like(1.0, x)
    rounded = op.Add(x, one)
    logarithm = op.Log(rounded)
    # A zero keeps its sign, in the last branch; onnxruntime loses it in the other one.
    return op.Where(op.GreaterOrEqual(x, one), logarithm, _made_good(x, rounded, logarithm))


def log_one_plus_at_most_one(x: ir.Value) -> RecordedValue:
    """log(1 + x) of numbers up to 1."""
    rounded = op.Add(x, axes.like(1.0, x))
    return _made_good(x, rounded, op.Log(rounded))


def _made_good(x: ir.Value, rounded: ir.Value, logarithm: ir.Value) -> RecordedValue:
    """The logarithm of 1 + x rounded, plus what rounding lost; in this order a zero keeps its sign, and -1 is -inf."""
    return op.Sub(x, op.Sub(op.Sub(rounded, axes.like(1.0, x)), logarithm))


@lowering("aten::expm1", "aten::special_expm1", "prims::expm1")
def expm1(self: ir.Value) -> RecordedValue:
    """exp(x) - 1."""
    return exp_minus_one(widened(self))


@lowering("aten::log1p", "prims::log1p")
def log1p(self: ir.Value) -> RecordedValue:
    """log(1 + x)."""
    return log_one_plus(widened(self))


@lowering("aten::log_sigmoid", "aten::log_sigmoid_forward")
def log_sigmoid(self: ir.Value) -> RecordedValue:
    """log(sigmoid(x)) as 0 - softplus(-x), which far above zero is 0 and not -0."""
    data = widened(self)
    return op.Sub(axes.like(0.0, data), softplus_of(op.Neg(data)))


@lowering("aten::log", "prims::log")
def log(self: ir.Value) -> RecordedValue:
    """The logarithm; that of a sigmoid as `log_sigmoid`, as onnxruntime's Sigmoid is 0 below -18."""
    node = self.producer()
    if node is not None and node.op_type == "Sigmoid" and self.dtype == ir.DataType.FLOAT:
        (x,) = node.inputs
        assert x is not None
        return log_sigmoid(x)
    return op.Log(self if axes.is_float(self) else widened(self))


def softplus_of(x: ir.Value) -> RecordedValue:
    """log(1 + exp(x)); onnxruntime has no Softplus for float64."""
    if x.dtype != ir.DataType.DOUBLE:
        return op.Softplus(x)
    return op.Add(op.Max(x, axes.like(0.0, x)), log_one_plus_at_most_one(op.Exp(op.Neg(op.Abs(x)))))


@lowering("aten::softplus")
def softplus(self: ir.Value, beta: float = 1.0, threshold: float = 20.0) -> RecordedValue:
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold."""
    if beta == 1.0:
        return op.Where(op.Greater(self, axes.like(threshold, self)), self, softplus_of(self))
    scaled = op.Mul(self, axes.like(beta, self))
    curve = op.Div(softplus_of(scaled), axes.like(beta, self))
    return op.Where(op.Greater(scaled, axes.like(threshold, self)), self, curve)


def _log_add(self: Number, other: Number, base: float) -> RecordedValue:
    """The larger one plus log(1 + base^-distance); equal infinities have no distance."""
    left, right = (widened(value) for value in operands(self, other))
    largest = op.Max(left, right)
    distance = op.Abs(op.Sub(left, right))
    if base == 2.0:
        distance = op.Mul(distance, axes.like(math.log(2.0), largest))
    more = log_one_plus_at_most_one(op.Exp(op.Neg(distance)))
    if base == 2.0:
        more = op.Div(more, axes.like(math.log(2.0), largest))
    return op.Where(op.And(op.Equal(left, right), op.IsInf(left)), left, op.Add(largest, more))


@lowering("aten::logaddexp")
def logaddexp(self: Number, other: Number) -> RecordedValue:
    """log(exp(x) + exp(y))."""
    return _log_add(self, other, math.e)


@lowering("aten::logaddexp2")
def logaddexp2(self: Number, other: Number) -> RecordedValue:
    """log2(2^x + 2^y)."""
    return _log_add(self, other, 2.0)


@lowering("aten::logsumexp")
def logsumexp(self: ir.Value, dim: Sequence[int] | int, keepdim: bool = False) -> ir.Value:
    """log(sum(exp(self))) along axes; integers become float32.

    The maximum is taken out first: onnxruntime's ReduceLogSumExp does so too, but not where its first element is -inf,
    and over all axes it loses NaN beside infinity.
    """
    data = widened(self)
    rank = axes.rank(self)
    if rank == 0:
        return data
    listed = [axes.axis(self, one) for one in ([dim] if isinstance(dim, int) else dim)]
    listed = listed or list(range(rank))  # torch means all axes by none
    assert data.dtype is not None
    limits = np.finfo(data.dtype.numpy())
    least, most = (axes.like(float(limit), data) for limit in (limits.min, limits.max))
    largest = op.Clip(op.ReduceMax(data, listed, keepdims=1), least, most)  # infinity less infinity is NaN
    below = op.Sub(data, largest)
    if len(set(listed)) == rank:
        rest = op.ReduceLogSum(op.Exp(below), listed, keepdims=1)
    else:
        rest = op.ReduceLogSumExp(below, listed, keepdims=1)
    total = op.Add(rest, largest)
    return total if keepdim else op.Squeeze(total, listed)


@lowering("aten::logcumsumexp")
def logcumsumexp(self: ir.Value, dim: int) -> ir.Value:
    """The logarithm of the sum of the exponentials so far along an axis, each step as `logaddexp`."""
    if axes.rank(self) == 0:
        return op.Identity(self)
    data, position = widened(self), axes.axis(self, dim)
    count = axes.rank(self)
    order = [position, *(other for other in range(count) if other != position)]
    moved = op.Transpose(data, perm=order) if position else data
    axes.shaped(moved, None if self.shape is None else [self.shape[other] for other in order])
    start = op.Expand(axes.like(float("-inf"), data), op.Shape(moved, start=1))
    axes.shaped(start, None if moved.shape is None else list(moved.shape)[1:])

    def step(
        states: Sequence[ir.Value], slices: Sequence[ir.Value]
    ) -> tuple[Sequence[RecordedValue], Sequence[RecordedValue]]:
        total = _log_add(states[0], slices[0], math.e)
        return [total], [total]

    assert data.dtype is not None
    _, (totals,) = loops.scan(step, [start], [loops.lengthened(moved)], [data.dtype])
    whole = loops.shortened(totals, moved)
    back = list(range(1, count))
    back.insert(position, 0)
    return op.Transpose(whole, perm=back) if position else whole


def _by_logarithm(self: Number, other: Number, logarithm: Callable[..., RecordedValue]) -> RecordedValue:
    """x * log(y), 0 where x is 0, unless y is NaN."""
    left, right = (widened(value) for value in operands(self, other))
    product = op.Mul(left, logarithm(right))
    is_zero = op.And(op.Equal(left, axes.like(0.0, left)), op.Not(op.IsNaN(right)))
    return op.Where(is_zero, axes.like(0.0, left), product)


@lowering(
    "aten::xlogy.Tensor", "aten::xlogy.Scalar_Self", "aten::xlogy.Scalar_Other", "aten::special_xlogy",
    "aten::special_xlogy.self_scalar", "aten::special_xlogy.other_scalar",
)  # fmt: skip
def xlogy(self: Number, other: Number) -> RecordedValue:
    """x log(y), 0 where x is 0."""
    return _by_logarithm(self, other, op.Log)


@lowering("aten::special_xlog1py", "aten::special_xlog1py.self_scalar", "aten::special_xlog1py.other_scalar")
def xlog1py(self: Number, other: Number) -> RecordedValue:
    """x log(1 + y), 0 where x is 0."""
    return _by_logarithm(self, other, log1p)


@lowering("aten::logit", "aten::special_logit")
def logit(self: ir.Value, eps: float | None = None) -> RecordedValue:
    """log(p / (1 - p)) of a probability that is kept eps away from 0 and 1; NaN stays NaN."""
    p = widened(self)
    one = axes.like(1.0, p)
    if eps is not None:
        low, high = axes.like(eps, p), axes.like(1.0 - eps, p)
        p = op.Where(op.Less(p, low), low, op.Where(op.Greater(p, high), high, p))
    return op.Log(op.Div(p, op.Sub(one, p)))


def logarithm_to(base: int, data: ir.Value) -> RecordedValue:
    """The logarithm of float64 to a base, a whole number at powers of the base as C's `log2` and `log10` have it."""
    rounded = op.Div(op.Log(data), axes.like(math.log(base), data))
    whole = op.Round(rounded)
    is_power = op.Equal(op.Pow(axes.like(float(base), data), whole), data)
    return op.Where(is_power, whole, rounded)


def _logarithm(base: int) -> Callable[[ir.Value], RecordedValue]:
    def logarithm(self: ir.Value) -> RecordedValue:
        data = self if axes.is_float(self) else widened(self)
        if data.dtype is ir.DataType.DOUBLE:
            return logarithm_to(base, data)
        wide = op.Cast(data, to=ir.DataType.DOUBLE)  # rounded once it is a whole number at powers of the base
        return op.Cast(op.Div(op.Log(wide), axes.like(math.log(base), wide)), to=data.dtype)

    logarithm.__doc__ = f"The logarithm to base {base}."
    return logarithm


log2 = lowering("aten::log2", "prims::log2")(_logarithm(2))
log10 = lowering("aten::log10", "prims::log10")(_logarithm(10))


@lowering("aten::deg2rad")
def deg2rad(self: ir.Value) -> RecordedValue:
    """Degrees as radians."""
    data = self if axes.is_float(self) else widened(self)
    return op.Mul(data, axes.like(math.pi / 180.0, data))


@lowering("aten::rad2deg")
def rad2deg(self: ir.Value) -> RecordedValue:
    """Radians as degrees."""
    data = self if axes.is_float(self) else widened(self)
    return op.Mul(data, axes.like(180.0 / math.pi, data))
