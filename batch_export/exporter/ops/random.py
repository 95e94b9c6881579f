"""Random numbers in ONNX's operators; `random_numbers.py` writes these out where a runtime lacks them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_INT64 = int(ir.DataType.INT64)


def _like(value: ir.Value) -> ir.Value:
    """The value, as floating point: what the Like operators draw for."""
    return value if axes.is_float(value) else op.Cast(value, to=ir.DataType.FLOAT)


_BITS = {ir.DataType.FLOAT16: 11, ir.DataType.BFLOAT16: 8}
"""As many random bits as the dtype holds of a number just below 1: more would be rounded up to 1."""


def _drawn(like: ir.Value, low: float = 0.0, high: float = 1.0, dtype: ir.DataType | None = None) -> RecordedValue:
    """Random numbers from `low` up to, and without, `high`, in the shape of a tensor; in its dtype if none is named.

    NOTE: operators of bfloat16 tensors arrive here in float32 and are rounded afterwards, where 1 is among the results.
    """
    wanted = dtype or like.dtype
    bits = None if wanted is None else _BITS.get(wanted)
    if bits is None:
        given = like if dtype is None or dtype == like.dtype else op.Cast(like, to=dtype)
        return op.RandomUniformLike(given, low=low, high=high)
    single = like if like.dtype == ir.DataType.FLOAT else op.Cast(like, to=ir.DataType.FLOAT)
    steps = op.Floor(op.Mul(op.RandomUniformLike(single), op.Constant(value_float=2.0**bits)))
    numbers = op.Mul(steps, op.Constant(value_float=2.0**-bits * (high - low)))
    if low:
        numbers = op.Add(numbers, op.Constant(value_float=low))
    return op.Cast(numbers, to=wanted)


@lowering("aten::rand")
def rand(size: Sequence[Size], dtype: int = -1) -> RecordedValue:
    """Random numbers from 0 up to 1."""
    return uniform(size, 0.0, 1.0, dtype)


@lowering("aten::rand_like")
def rand_like(self: ir.Value, dtype: int = -1) -> RecordedValue:
    """Random numbers from 0 up to 1 in the shape of a tensor."""
    return _drawn(self, dtype=None if dtype in (-1, None) else ir.DataType(dtype))


@lowering("prims::uniform")
def uniform(shape: Sequence[Size], low: float, high: float, dtype: int = -1) -> RecordedValue:
    """Random numbers between two bounds."""
    wanted = ir.DataType.FLOAT if dtype in (-1, None) else ir.DataType(dtype)
    return _drawn(op.ConstantOfShape(list(shape)), low, high, wanted)


@lowering("aten::bernoulli")
def bernoulli(self: ir.Value) -> RecordedValue:
    """Ones with the chances that the elements name.

    Not ONNX's Bernoulli: by the body in its definition, which ONNX Runtime uses, it gives ones with the chance 1 - p.
    """
    chances = _like(self)
    return op.CastLike(op.Less(op.RandomUniformLike(chances), chances), self)


@lowering("aten::bernoulli.p")
def bernoulli_p(self: ir.Value, p: float = 0.5) -> RecordedValue:
    """Ones with one chance."""
    drawn = op.RandomUniformLike(_like(self))
    return op.CastLike(op.Less(drawn, op.CastLike(p, drawn)), self)


@lowering("aten::bernoulli.Tensor")
def bernoulli_tensor(self: ir.Value, p: ir.Value) -> RecordedValue:
    """Ones with the chances of another tensor, which is broadcast."""
    drawn = op.RandomUniformLike(_like(self))
    return op.CastLike(op.Less(drawn, op.CastLike(p, drawn)), self)


@lowering("aten::uniform")
def uniform_like(self: ir.Value, from_: float = 0.0, to: float = 1.0) -> RecordedValue:
    """Random numbers between two bounds, in the shape of a tensor."""
    return _drawn(_like(self), float(from_), float(to))


@lowering("aten::normal_functional")
def normal_functional(self: ir.Value, mean: float = 0.0, std: float = 1.0) -> RecordedValue:
    """Normally distributed numbers in the shape of a tensor."""
    return op.RandomNormalLike(_like(self), mean=float(mean), scale=float(std))


@lowering("aten::normal.Tensor_float", "aten::normal.Tensor_Tensor")
def normal_around(mean: ir.Value, std: ir.Value | float = 1.0) -> RecordedValue:
    """Normally distributed numbers, each with its own mean."""
    spread = op.CastLike(std, mean)
    drawn = op.RandomNormalLike(op.Add(mean, op.Mul(spread, op.CastLike(0.0, mean))))
    return op.Add(mean, op.Mul(drawn, spread))


@lowering("aten::normal.float_Tensor")
def normal_of_spread(mean: float, std: ir.Value) -> RecordedValue:
    """Normally distributed numbers, each with its own deviation."""
    return op.Add(op.Mul(op.RandomNormalLike(std), std), op.CastLike(float(mean), std))


@lowering("aten::exponential")
def exponential(self: ir.Value, lambd: float = 1.0) -> RecordedValue:
    """Exponentially distributed numbers in the shape of a tensor."""
    drawn = op.Sub(op.CastLike(1.0, self), _drawn(_like(self)))
    return op.Div(op.Neg(op.Log(drawn)), op.CastLike(lambd, self))


@lowering("aten::randperm")
def randperm(n: ir.Value, dtype: int = -1) -> RecordedValue:
    """The numbers 0 to n - 1 in a random order: the places of random numbers when sorted."""
    count = op.Reshape(n, [1])
    _, places = op.TopK(op.RandomUniformLike(op.Expand(op.Constant(value_floats=[0.0]), count)), count)
    return places if dtype in (-1, _INT64) else op.Cast(places, to=dtype)


def _mask(input: ir.Value, p: float, per_channel: bool) -> RecordedValue:
    """True where an element (or a whole channel) stays: `bool[...]`, broadcast over the input."""
    drawn_for: ir.Value = _like(input)
    if per_channel:
        drawn_for = op.ReduceSum(drawn_for, [*range(2, axes.rank(input))], keepdims=1)
    drawn = op.RandomUniformLike(drawn_for)
    return op.GreaterOrEqual(drawn, op.CastLike(p, drawn))


def dropped(input: ir.Value, p: float) -> RecordedValue:
    """Each element with the chance p replaced by 0, the others divided by 1 - p; ONNX's Dropout has no p of 1."""
    if p == 1.0:
        return op.Mul(input, op.CastLike(0.0, input))
    result, _ = op.Dropout(input, op.CastLike(p, input), True)
    return result


@lowering("aten::dropout")
def dropout(input: ir.Value, p: float, train: bool) -> RecordedValue:
    """Dropout outside training is the identity; inside, ONNX's Dropout with a random mask."""
    if not train or p == 0.0:
        return op.Identity(input)
    return dropped(input, p)


@lowering("aten::feature_dropout")
def feature_dropout(input: ir.Value, p: float, train: bool) -> RecordedValue:
    """Dropout of whole channels."""
    if not train or p == 0.0:
        return op.Identity(input)
    zero = op.CastLike(0.0, input)
    kept = op.Where(_mask(input, p, axes.rank(input) > 2), input, zero)
    return kept if p == 1.0 else op.Div(kept, op.CastLike(1.0 - p, input))


def _alpha(input: ir.Value, p: float, train: bool, per_channel: bool) -> RecordedValue:
    """Dropout to the lowest value of SELU, scaled so that mean 0 and variance 1 stay. Source: arXiv 1706.02515."""
    if not train or p == 0.0:
        return op.Identity(input)
    if p == 1.0:
        return dropped(input, p)
    lowest = -1.7580993408473766
    scale = 1.0 / math.sqrt((lowest * lowest * p + 1.0) * (1.0 - p))
    kept = op.Where(_mask(input, p, per_channel), input, op.CastLike(lowest, input))
    return op.Add(op.Mul(kept, op.CastLike(scale, input)), op.CastLike(-lowest * p * scale, input))


@lowering("aten::alpha_dropout")
def alpha_dropout(input: ir.Value, p: float, train: bool) -> RecordedValue:
    """Alpha dropout of single elements."""
    return _alpha(input, p, train, per_channel=False)


@lowering("aten::feature_alpha_dropout")
def feature_alpha_dropout(input: ir.Value, p: float, train: bool) -> RecordedValue:
    """Alpha dropout of whole channels."""
    return _alpha(input, p, train, per_channel=axes.rank(input) > 2)


@lowering("aten::multinomial")
def multinomial(self: ir.Value, num_samples: int, replacement: bool = False) -> RecordedValue:
    """Class numbers drawn by weight: `float[..., classes]` to `int64[..., samples]`.

    The largest sums of logarithms and Gumbel noise are a draw without replacement; with replacement every sample has
    noise of its own.
    """
    weights = op.Log(_like(self))
    if replacement:
        sizes = op.Shape(weights)
        spread = op.Concat(op.Slice(sizes, [0], [-1]), [num_samples], op.Slice(sizes, [-1], [axes.rank(self)]), axis=0)
        weights = op.Expand(op.Unsqueeze(weights, [-2]), spread)
    # Above zero, so that neither logarithm is infinite.
    noise = op.RandomUniformLike(weights, low=1e-7, high=1.0 - 1e-7)
    sums = op.Sub(weights, op.Log(op.Neg(op.Log(noise))))
    if replacement:
        return op.ArgMax(sums, axis=-1, keepdims=0)
    _, places = op.TopK(sums, [num_samples])
    return places


@lowering("aten::rrelu_with_noise_functional")
def rrelu(
    self: ir.Value, noise: ir.Value, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> tuple[RecordedValue, ...]:
    """Leaky ReLU: with the mean slope, or, in training, with a random slope for each element; and the slopes."""
    zero, one = op.CastLike(0.0, self), op.CastLike(1.0, self)
    if not training:
        return op.LeakyRelu(self, alpha=(lower + upper) / 2.0), op.Identity(noise)
    slope = op.Where(op.LessOrEqual(self, zero), op.RandomUniformLike(self, low=lower, high=upper), one)
    return op.Mul(self, slope), slope
