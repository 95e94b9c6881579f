"""Losses that compare class scores, or values, with a target."""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.reductions import mean_over
from batch_export.exporter.ops.stable import log_one_plus_at_most_one, widened

_REDUCTIONS = ("none", "mean", "sum")


def _along_classes(weight: ir.Value, scores: ir.Value) -> ir.Value:
    """`float[classes]` so that it broadcasts over the scores."""
    count = axes.rank(scores)
    return op.Reshape(weight, [-1, *[1] * (count - 2)]) if count > 1 else weight


def _reduced(losses: ir.Value, reduction: int, divisor: Number) -> ir.Value:
    if reduction == 0:
        return losses
    total = op.ReduceSum(losses, keepdims=0)
    return total if reduction == 2 else op.Div(total, divisor)


def _of_probabilities(
    scores: ir.Value, target: ir.Value, weight: ir.Value | None, reduction: int, smooth: float
) -> ir.Value:
    """The target holds a probability for each class; the mean divides by the number of elements over the classes."""
    axis = 1 if axes.rank(scores) > 1 else 0
    classes = axes.scalar(axes.size(scores, axis))
    if smooth:
        even = op.Div(op.CastLike(smooth, scores), op.CastLike(classes, scores))
        target = op.Add(op.Mul(target, op.CastLike(1.0 - smooth, scores)), even)
    parts = op.Mul(op.LogSoftmax(scores, axis=axis), target)
    if weight is not None:
        parts = op.Mul(parts, _along_classes(weight, scores))
    losses = op.Neg(op.ReduceSum(parts, [axis], keepdims=0))
    every, of_each = (op.Cast(number, to=ir.DataType.DOUBLE) for number in (op.Size(scores), classes))
    return _reduced(losses, reduction, op.CastLike(op.Div(every, of_each), scores))  # not of integers: 0 / 0 is NaN


def _with_a_class(scores: ir.Value, weight: ir.Value | None) -> tuple[ir.Value, ir.Value | None]:
    """Scores and weights with a class of NaN behind the others where there may be none: runtimes look at class 0."""
    if axes.never_empty(scores, 1):
        return scores, weight
    nan = axes.like(math.nan, scores)
    return axes.padded(scores, [0], [1], [1], nan), None if weight is None else axes.padded(weight, [0], [1], [0], nan)


@lowering("aten::nll_loss", "aten::nll_loss_nd", "aten::nll_loss2d")
def nll_loss(
    self: ir.Value, target: ir.Value, weight: ir.Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> RecordedValue:
    """What logarithms of probabilities, negated, are at the targets' classes.

    Args:
        self: `float[batch, classes, ...]` or `float[classes]`.
        target: `int64[batch, ...]` or `int64[]`.
        weight: `float[classes]`.
        reduction: none, mean over the weights of the targets, or sum.
        ignore_index: the class that does not count.
    """
    if axes.rank(self) == 1:
        one = nll_loss(_first_of_one(self), _first_of_one(target), weight, reduction, ignore_index)
        return one if reduction else op.Squeeze(one, [0])
    numbers = target if target.dtype == ir.DataType.INT64 else axes.shaped(op.Cast(target, to=7), target.shape)
    scores, weights = _with_a_class(self, weight)
    name = _REDUCTIONS[reduction]
    return op.NegativeLogLikelihoodLoss(scores, numbers, weights, reduction=name, ignore_index=ignore_index)


@lowering("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss_and_weight(
    self: ir.Value, target: ir.Value, weight: ir.Value | None, reduction: int, ignore_index: int
) -> tuple[RecordedValue, RecordedValue]:
    """The loss, and the weights of the targets that count, which torch adds up unless it reduces nothing of a batch."""
    loss = nll_loss(self, target, weight, reduction, ignore_index)
    if reduction == 0 and axes.rank(self) > 1:
        return loss, op.Identity(axes.like(0.0, self))
    ones = axes.shaped(op.Expand(axes.like(-1.0, self), op.Shape(self)), self.shape)
    return loss, nll_loss(ones, target, weight, _REDUCTIONS.index("sum"), ignore_index)


def _first_of_one(value: ir.Value) -> ir.Value:
    return axes.shaped(op.Unsqueeze(value, [0]), None if value.shape is None else [1, *value.shape])


def _written_out(
    scores: ir.Value, target: ir.Value, weight: ir.Value | None, reduction: int, ignored_class: int, smooth: float
) -> RecordedValue:
    """Classes by number, with a part of each target spread evenly; the mean divides by the weights of the targets."""
    logarithms = axes.shaped(op.LogSoftmax(scores, axis=1), scores.shape)
    if not smooth:
        return nll_loss(logarithms, target, weight, reduction, ignored_class)
    of_targets = nll_loss(logarithms, target, weight, min(reduction, 1) * 2, ignored_class)
    zero, one = axes.like(0.0, scores), axes.like(1.0, scores)
    ignored = op.Equal(target, axes.like(ignored_class, target))
    spread = logarithms if weight is None else op.Mul(logarithms, _along_classes(weight, scores))
    evenly: ir.Value = op.Where(ignored, zero, op.ReduceSum(spread, [1], keepdims=0))
    if reduction:
        evenly = op.ReduceSum(evenly, keepdims=0)
    share = op.Div(axes.like(-smooth, scores), op.CastLike(axes.scalar(axes.size(scores, 1)), scores))
    losses = op.Add(op.Mul(of_targets, axes.like(1.0 - smooth, scores)), op.Mul(evenly, share))
    if reduction != 1:
        return losses
    if weight is not None:
        _, weights = _with_a_class(scores, weight)
        one = op.Gather(weights, op.Where(ignored, axes.like(0, target), target))
    return op.Div(losses, op.ReduceSum(op.Where(ignored, zero, one), keepdims=0))


@lowering("aten::binary_cross_entropy")
def binary_cross_entropy(
    self: ir.Value, target: ir.Value, weight: ir.Value | None = None, reduction: int = 1
) -> RecordedValue:
    """Cross entropy of probabilities, of which eager takes those from 0 to 1; logarithms end at -100."""
    p, wanted = widened(self), widened(target)
    one, least = axes.like(1.0, p), axes.like(-100.0, p)
    there = op.Max(op.Log(p), least)
    absent = op.Max(log_one_plus_at_most_one(op.Neg(p)), least)
    losses = op.Sub(op.Mul(op.Sub(wanted, one), absent), op.Mul(wanted, there))
    axes.shaped(losses, self.shape if self.shape == target.shape else None)
    if weight is not None:
        losses = op.Mul(losses, widened(weight))
        axes.shaped(losses, self.shape if self.shape == weight.shape else None)
    if reduction == 0:
        return losses
    return op.ReduceSum(losses, keepdims=0) if reduction == 2 else mean_over(losses)


@lowering("aten::mse_loss")
def mse_loss(self: ir.Value, target: ir.Value, reduction: int = 1) -> RecordedValue:
    """Squared differences, their mean or their sum."""
    difference = op.Sub(self, target)
    squares = axes.shaped(op.Mul(difference, difference), self.shape if self.shape == target.shape else None)
    if reduction == 0:
        return squares
    return op.ReduceSum(squares, keepdims=0) if reduction == 2 else mean_over(squares)


@lowering("aten::cross_entropy_loss")
def cross_entropy_loss(
    self: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> ir.Value:
    """Cross entropy with classes by number (`int64[batch, ...]`) or as probabilities (`float[batch, classes, ...]`).

    Where a size is free it is two operators: onnxruntime's form of the one refuses an empty batch.
    """
    if axes.is_float(target):
        return _of_probabilities(self, target, weight, reduction, label_smoothing)
    if axes.rank(self) == 1:
        one = cross_entropy_loss(
            _first_of_one(self), _first_of_one(target), weight, reduction, ignore_index, label_smoothing
        )
        return one if reduction else op.Squeeze(one, [0])
    fixed = [axes.fixed_size(self, axis) for axis in range(axes.rank(self))]
    if label_smoothing or None in fixed or 0 in fixed:
        return _written_out(self, target, weight, reduction, ignore_index, label_smoothing)
    result, _ = op.SoftmaxCrossEntropyLoss(
        self, target, weight, reduction=_REDUCTIONS[reduction], ignore_index=ignore_index
    )
    return result


@lowering("aten::multilabel_margin_loss")
def multilabel_margin_loss(self: ir.Value, target: ir.Value, reduction: int = 1) -> ir.Value:
    """How far classes that are no target come within 1 of those that are.

    torch's decomposition counts the targets behind the first -1 too, as class 0.

    Args:
        self: `float[samples, classes]` or `float[classes]`.
        target: `int64` of that shape, by numbers of classes; what lies behind the first -1 does not count.
        reduction: none, mean or sum of the samples' losses.
    """
    return multilabel_margin_loss_forward(self, target, reduction)[0]


@lowering("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(self: ir.Value, target: ir.Value, reduction: int) -> tuple[ir.Value, RecordedValue]:
    """As `multilabel_margin_loss`, and which classes are targets, in the dtype of the scores."""
    if axes.rank(self) == 0:
        loss, is_target = multilabel_margin_loss_forward(axes.at_least_1d(self), axes.at_least_1d(target), reduction)
        return loss, op.Squeeze(is_target, [0])
    rank = axes.rank(self)
    count = axes.scalar(axes.size(self, rank - 1))
    places = op.Range(op.Constant(value_int=0), count, op.Constant(value_int=1))
    ends = op.Cast(op.Equal(target, op.CastLike(-1, target)), to=ir.DataType.INT32)
    counts = op.Equal(op.CumSum(ends, op.Constant(value_int=-1)), op.Constant(value=ir.tensor(0, ir.DataType.INT32)))
    listed = op.Where(counts, target, op.CastLike(-1, target))
    chosen = op.GatherElements(self, op.Where(counts, target, op.CastLike(0, target)), axis=-1)
    hits = op.Cast(op.Equal(op.Unsqueeze(listed, [-1]), places), to=ir.DataType.INT32)
    is_target = op.Cast(op.ReduceSum(hits, [rank - 1], keepdims=0), to=ir.DataType.BOOL)
    zero = op.CastLike(0.0, self)
    near = op.Sub(op.Add(op.Unsqueeze(self, [-2]), op.CastLike(1.0, self)), op.Unsqueeze(chosen, [-1]))
    asked = op.And(op.Unsqueeze(counts, [-1]), op.Not(op.Unsqueeze(is_target, [-2])))
    parts = op.Where(op.And(asked, op.Greater(near, zero)), near, zero)  # NaN is not greater, in eager too
    losses = op.Div(op.ReduceSum(parts, [rank - 1, rank], keepdims=0), op.CastLike(count, self))
    samples = op.CastLike(op.Div(op.Size(self), count), self)
    return _reduced(losses, reduction, samples), op.CastLike(is_target, self)


@lowering("aten::multi_margin_loss")
def multi_margin_loss(
    self: ir.Value,
    target: ir.Value,
    p: float = 1,
    margin: float = 1,
    weight: ir.Value | None = None,
    reduction: int = 1,
) -> ir.Value:
    """How far other classes come within a margin of the target, or the squares of that; NaN does not count.

    Args:
        self: `float[samples, classes]` or `float[classes]`.
        target: `int64[samples]` or `int64[]`.
        p: 1, or 2 for squares.
        margin: the distance from which on nothing is lost.
        weight: `float[classes]`, by target.
        reduction: none, mean or sum of the samples' losses.
    """
    if axes.rank(self) < 2:
        scores, chosen = op.Reshape(self, [1, -1]), op.Reshape(target, [1])
        axes.shaped(scores, [1, axes.fixed_size(self, 0) if axes.rank(self) else 1])
        loss = multi_margin_loss(scores, axes.shaped(chosen, [1]), p, margin, weight, reduction)
        return loss if reduction or axes.rank(target) else op.Squeeze(loss, [0])
    count = axes.scalar(axes.size(self, 1))
    places = op.Range(op.Constant(value_int=0), count, op.Constant(value_int=1))
    wanted = op.Unsqueeze(target, [1])
    near = op.Add(op.Sub(axes.like(margin, self), op.GatherElements(self, wanted, axis=1)), self)
    zero = axes.like(0.0, self)
    parts = op.Mul(near, near) if p == 2 else near
    if weight is not None:
        parts = op.Mul(parts, op.Gather(weight, wanted))
    counts = op.And(op.Not(op.Equal(places, wanted)), op.Greater(near, zero))
    losses = op.Div(op.ReduceSum(op.Where(counts, parts, zero), [1], keepdims=0), op.CastLike(count, self))
    axes.shaped(losses, target.shape)
    return _reduced(losses, reduction, op.CastLike(op.Size(losses), self))
