"""Random numbers in ONNX's operators; `random_numbers.py` writes these out where a runtime lacks them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_INT64 = int(ir.DataType.INT64)
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _like(value: ir.Value) -> ir.Value:
    """The value, as what the Like operators draw for: float64 stays, and all else is float32.

    Halves are drawn in float32, as torch does it, and rounded at the end: 1 - 2^-24 is 1 as a half, and their 11 or 8
    bits are too few for the tails of other distributions.
    """
    return value if value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE) else op.Cast(value, to=ir.DataType.FLOAT)


def _drawn(like: ir.Value, low: float = 0.0, high: float = 1.0, dtype: ir.DataType | None = None) -> RecordedValue:
    """Random numbers from `low` up to, and without, `high`, in the shape of a tensor; in its dtype if none is named.

    What is rounded up to `high` becomes `low`, as in torch.
    """
    wanted = dtype or like.dtype or ir.DataType.FLOAT
    if wanted == ir.DataType.DOUBLE and like.dtype != wanted:
        like = op.Cast(like, to=wanted)
    elif wanted != ir.DataType.DOUBLE and like.dtype != ir.DataType.FLOAT:
        like = op.Cast(like, to=ir.DataType.FLOAT)
    numbers = op.RandomUniformLike(like, low=low, high=high)
    drawn_in = ir.DataType.DOUBLE if wanted == ir.DataType.DOUBLE else ir.DataType.FLOAT
    if wanted != drawn_in or (low, high) != (0.0, 1.0):
        limit, lowest = (op.Constant(value=ir.tensor(one, drawn_in)) for one in (_limit(high, wanted), low))
        numbers = op.Where(op.Less(numbers, limit), numbers, lowest)
    return numbers if wanted == drawn_in else op.Cast(numbers, to=wanted)


def _limit(high: float, dtype: ir.DataType) -> float:
    """The least number, of those that are drawn for a dtype, which is the bound itself or more once it is rounded.

    Without a comparison after rounding: of a number that is cast to float16 runtimes may compare the one before.
    """
    if dtype not in _HALVES:
        return high
    kind = dtype.numpy()
    bound = np.asarray(high, np.float32).astype(kind)
    below = np.nextafter(bound, np.asarray(-np.inf, kind))
    middle = np.float32((float(bound) + float(below)) / 2)
    return float(middle if middle.astype(kind) >= bound else np.nextafter(middle, np.float32(np.inf)))


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
    return _drawn(self, float(from_), float(to))


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
    """Exponentially distributed numbers in the shape of a tensor, none of which is 0: logarithms are taken of them."""
    drawn = op.RandomUniformLike(_like(self))
    smallest = 2.0**-53 if drawn.dtype == ir.DataType.DOUBLE else 2.0**-24
    waited = op.Max(op.Neg(op.Log(op.Sub(op.CastLike(1.0, drawn), drawn))), op.CastLike(smallest, drawn))
    return op.Div(waited, op.CastLike(lambd, drawn))


@lowering("aten::geometric")
def geometric(self: ir.Value, p: float) -> RecordedValue:
    """How often one tries, in the shape of a tensor, until what has the chance p happens."""
    drawn = op.RandomUniformLike(_like(self))
    tries = op.Div(op.Log(op.Sub(op.CastLike(1.0, drawn), drawn)), op.CastLike(math.log1p(-p), drawn))
    return op.Add(op.Floor(tries), op.CastLike(1.0, drawn))


@lowering("aten::log_normal")
def log_normal(self: ir.Value, mean: float = 1.0, std: float = 2.0) -> RecordedValue:
    """Numbers whose logarithms are normally distributed, in the shape of a tensor."""
    return op.Exp(op.RandomNormalLike(_like(self), mean=float(mean), scale=float(std)))


@lowering("aten::cauchy")
def cauchy(self: ir.Value, median: float = 0.0, sigma: float = 1.0) -> RecordedValue:
    """Numbers of Cauchy's distribution in the shape of a tensor."""
    drawn = op.RandomUniformLike(_like(self))
    angle = op.Mul(op.Sub(drawn, op.CastLike(0.5, drawn)), op.CastLike(math.pi, drawn))
    return op.Add(op.Mul(op.Tan(angle), op.CastLike(sigma, drawn)), op.CastLike(median, drawn))


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
    if np.float32(p) == 1.0:
        return op.Mul(input, op.CastLike(0.0, input))
    result, _ = op.Dropout(input, op.Constant(value_float=p), True)
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
    slope = op.Where(op.LessOrEqual(self, zero), _drawn(self, lower, upper), one)
    return op.Mul(self, slope), slope
