"""Discrete Fourier transforms as products with matrices of cosines and sines."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from batch_export.legalise.rules import NoForm, Result, attribute, first, given, known, needed, sizes
from batch_export.legalise.writing import Writer


def transform(op: Writer, node: ir.Node, axis: int) -> Result:
    """A DFT along an axis of `[..., 1]` (real) or `[..., 2]` (real and imaginary part) numbers.

    Args:
        op: where the nodes go.
        node: the DFT; its second input is the length, where it is given.
        axis: which axis, counted from either end.
    """
    value = first(node)
    lengths = _sizes_of(value)
    if lengths is None or value.dtype is None:
        raise NoForm("a DFT of an input whose axes or dtype are not known")
    count = len(lengths)
    inverse, onesided = bool(attribute(node, "inverse", 0)), bool(attribute(node, "onesided", 0))
    if lengths[-1] not in (1, 2):
        raise NoForm("a DFT of an input whose last axis is neither 1 nor 2")
    if inverse and onesided:
        raise NoForm("a one-sided inverse DFT")
    axis %= count
    there = [place for place in range(count - 1) if place != axis] + [axis, count - 1]
    moved = op.Transpose(value, perm=there)
    parts = [op.Gather(moved, op.number(part), axis=-1) for part in range(lengths[-1] or 1)]
    length = given(node, 1)
    real, imaginary = _product(op, parts, value.dtype, lengths[axis], length, inverse=inverse, onesided=onesided)
    whole = op.Concat(op.Unsqueeze(real, op.number([-1])), op.Unsqueeze(imaginary, op.number([-1])), axis=-1)
    back = [there.index(place) for place in range(count)]
    return op.Transpose(whole, perm=back)


def short_time(node: ir.Node, op: Writer) -> Result:
    """STFT: overlapping frames of the signal, times the window, each transformed."""
    signal, step = first(node), needed(node, 1)
    lengths = _sizes_of(signal)
    if lengths is None or signal.dtype is None or len(lengths) != 3:
        raise NoForm("an STFT of a signal whose axes or dtype are not known")
    window, length = given(node, 2), given(node, 3)
    if length is None:
        length = op.Gather(op.Shape(window), op.number(0))
    parts_of = lengths[-1]
    if parts_of not in (1, 2):
        raise NoForm("an STFT of a signal whose last axis is neither 1 nor 2")
    content = known(length)
    scalar = op.Reshape(op.Cast(length, to=ir.DataType.INT64), op.number(np.zeros(0)))
    stride = op.Reshape(op.Cast(step, to=ir.DataType.INT64), op.number(np.zeros(0)))
    whole = op.Gather(op.Shape(signal), op.number(1))
    frames = op.Add(op.Div(op.Sub(whole, scalar), stride), op.number(1))
    starts = op.Mul(op.Range(op.number(0), frames, op.number(1)), stride)
    inside = op.Range(op.number(0), scalar, op.number(1))
    places = op.Add(op.Unsqueeze(starts, op.number([1])), inside)
    parts = []
    for part in range(parts_of):
        framed = op.Gather(op.Gather(signal, op.number(part), axis=-1), places, axis=1)
        parts.append(framed if window is None else op.Mul(framed, window))
    known_length = None if content is None else int(content.reshape(()))
    onesided = bool(attribute(node, "onesided", 1))
    real, imaginary = _product(op, parts, signal.dtype, known_length, scalar, inverse=False, onesided=onesided)
    return op.Concat(op.Unsqueeze(real, op.number([-1])), op.Unsqueeze(imaginary, op.number([-1])), axis=-1)


def _sizes_of(value: ir.Value) -> list[int | None] | None:
    """The sizes of a value, None for one that is free; None where the number of axes does not follow either.

    Between the transforms along several axes, and in front of the first one, stand values that no shape is written on.
    """
    if value.shape is not None:
        return sizes(value)
    node = value.producer()
    found = None if node is None or not node.inputs else _sizes_of(first(node))
    if node is None or found is None:
        return None
    if node.op_type == "DFT":
        return [None] * (len(found) - 1) + [2]
    if node.op_type == "Unsqueeze":
        added = known(needed(node, 1))
        return None if added is None else _with_ones(found, [int(axis) for axis in added.flatten()])
    return found if node.op_type in ("Mul", "Div", "Cast") else None  # by a number: what the sums are divided by


def _with_ones(found: list[int | None], added: list[int]) -> list[int | None]:
    count = len(found) + len(added)
    places, rest = {axis % count for axis in added}, iter(found)
    return [1 if place in places else next(rest) for place in range(count)]


def _product(
    op: Writer,
    parts: list[ir.Value],
    dtype: ir.DataType,
    size: int | None,
    length: ir.Value | None,
    *,
    inverse: bool,
    onesided: bool,
) -> tuple[ir.Value, ir.Value]:
    """Real and imaginary part of the transform along the last axis.

    Args:
        op: where the nodes go.
        parts: the real part `[..., size]`, and the imaginary one if there is one.
        dtype: of the parts.
        size: of the last axis, where it is known.
        length: of the transform, where it is not `size`: further numbers are zeros, those beyond it are left out.
        inverse: whether it is the inverse transform.
        onesided: whether only the first half of the result, and one more, is wanted.
    """
    content = known(length)
    if size is not None and (length is None or content is not None):
        points = size if content is None else int(content.reshape(()))
        here, there = np.arange(size), np.arange(points // 2 + 1 if onesided else points)
        angles = (np.outer(here, there) % points) * (2 * math.pi / points) if points else np.zeros((size, 0))
        kept, sign = (here < points)[:, None] / (points if inverse else 1), 1 if inverse else -1
        cosines, sines = op.number(np.cos(angles) * kept, dtype), op.number(np.sin(angles * sign) * kept, dtype)
    else:
        cosines, sines = _computed(op, parts[0], dtype, length, inverse=inverse, onesided=onesided)
        sines = sines if inverse else op.Neg(sines)  # and not of the sums: what has no imaginary part has 0.0
    real, imaginary = op.MatMul(parts[0], cosines), op.MatMul(parts[0], sines)
    if len(parts) == 1:
        return real, imaginary
    return (
        op.Sub(real, op.MatMul(parts[1], sines)),
        op.Add(imaginary, op.MatMul(parts[1], cosines)),
    )


def _computed(
    op: Writer, part: ir.Value, dtype: ir.DataType, length: ir.Value | None, *, inverse: bool, onesided: bool
) -> tuple[ir.Value, ir.Value]:
    """The matrices of a size that is known when the file runs only; fractions of a turn are exact."""
    size = op.Gather(op.Shape(part), op.number(-1))
    points = size if length is None else op.Reshape(op.Cast(length, to=ir.DataType.INT64), op.number(np.zeros(0)))
    count = op.Add(op.Div(points, op.number(2)), op.number(1)) if onesided else points
    here = op.Unsqueeze(op.Range(op.number(0), size, op.number(1)), op.number([1]))
    there = op.Range(op.number(0), count, op.number(1))
    turns = op.Div(
        op.Cast(op.Mod(op.Mul(here, there), points), to=ir.DataType.DOUBLE), op.Cast(points, to=ir.DataType.DOUBLE)
    )
    angles = op.Cast(op.Mul(turns, op.number(2 * math.pi, ir.DataType.DOUBLE)), to=dtype)
    kept = op.Cast(op.Less(here, points), to=dtype)
    scale = op.Div(kept, op.Cast(points, to=dtype)) if inverse else kept
    return op.Mul(op.Cos(angles), scale), op.Mul(op.Sin(angles), scale)
