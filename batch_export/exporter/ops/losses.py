"""Losses that compare class scores, or values, with a target."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.reductions import mean_over

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


def _smoothed(
    scores: ir.Value, target: ir.Value, weight: ir.Value | None, reduction: int, ignored: int, smooth: float
) -> ir.Value:
    """Classes by number, with a part of each target spread evenly; the mean divides by the weights of the targets."""
    axis = 1 if axes.rank(scores) > 1 else 0
    logarithms = op.LogSoftmax(scores, axis=axis)
    zero = op.CastLike(0.0, scores)
    kept = op.Not(op.Equal(target, op.CastLike(ignored, target)))
    at = op.Where(kept, target, op.CastLike(0, target))
    chosen = op.Squeeze(op.GatherElements(logarithms, op.Unsqueeze(at, [axis]), axis=axis), [axis])
    factor = op.CastLike(1.0, scores) if weight is None else op.Gather(weight, at)
    factor = op.Where(kept, factor, zero)
    spread = logarithms if weight is None else op.Mul(logarithms, _along_classes(weight, scores))
    evenly = op.Where(kept, op.ReduceSum(spread, [axis], keepdims=0), zero)
    share = op.Div(op.CastLike(smooth, scores), op.CastLike(axes.scalar(axes.size(scores, axis)), scores))
    if not smooth:
        return _reduced(op.Neg(op.Mul(chosen, factor)), reduction, op.ReduceSum(factor, keepdims=0))
    exact = op.Mul(op.Mul(chosen, factor), op.CastLike(1.0 - smooth, scores))
    losses = op.Neg(op.Add(exact, op.Mul(evenly, share)))
    return _reduced(losses, reduction, op.ReduceSum(factor, keepdims=0))


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

    Where a size is free the loss is written out: onnxruntime's form of the one operator refuses an empty batch.
    """
    if axes.is_float(target):
        return _of_probabilities(self, target, weight, reduction, label_smoothing)
    fixed = [axes.fixed_size(self, axis) for axis in range(axes.rank(self))]
    if label_smoothing or axes.rank(self) == 1 or None in fixed or 0 in fixed:
        return _smoothed(self, target, weight, reduction, ignore_index, label_smoothing)
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
