"""Padding in every mode of torch, negative amounts included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.never_negative import is_never_negative

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def _amounts(pad: Sequence[Size], count: int) -> tuple[list[int], list[Size], list[Size]]:
    """Axes, amounts before and amounts after; torch lists the last axis first."""
    listed = [count - 1 - place for place in range(len(pad) // 2)]
    return listed, list(pad[0::2]), list(pad[1::2])


def _vector(amount: Size) -> list[int] | ir.Value:
    return [amount] if isinstance(amount, int) else op.Reshape(amount, [1])


def _taken(amount: Size) -> Size:
    """How many elements an amount takes away."""
    if isinstance(amount, int):
        return max(-amount, 0)
    return 0 if is_never_negative(amount) else op.Max(op.Neg(_vector(amount)), [0])


def _added(amount: Size) -> Size:
    """How many elements an amount adds."""
    if isinstance(amount, int):
        return max(amount, 0)
    return amount if is_never_negative(amount) else op.Max(_vector(amount), [0])


def _known(amounts: list[Size]) -> list[Size]:
    return [amount if isinstance(amount, int) else 0 for amount in amounts]


def _is_something(amount: Size) -> bool:
    return not isinstance(amount, int) or amount != 0


def _cropped(self: ir.Value, listed: list[int], before: list[Size], after: list[Size]) -> ir.Value:
    """Without the elements at both ends that negative amounts take away."""
    starts, lost = [_taken(amount) for amount in before], [_taken(amount) for amount in after]
    if not any(map(_is_something, (*starts, *lost))):
        return self
    ends: list[Size] = []
    for position, amount in zip(listed, lost, strict=True):
        if isinstance(amount, int):
            ends.append(-amount if amount else 2**62)
        else:
            ends.append(op.Sub(op.Shape(self, start=position, end=position + 1), amount))
    cropped = op.Slice(self, _joined(starts), _joined(ends), listed)
    cropped.shape = None if self.shape is None else ir.Shape([None] * len(self.shape))
    return cropped


def _joined(amounts: list[Size]) -> list[int] | ir.Value:
    known = [amount for amount in amounts if isinstance(amount, int)]
    if len(known) == len(amounts):
        return known
    parts = [op.Constant(value_ints=[one]) if isinstance(one, int) else _vector(one) for one in amounts]
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _wrapped(self: ir.Value, listed: list[int], before: list[Size], after: list[Size], cropped: set[int]) -> ir.Value:
    for position, left, right in zip(listed, before, after, strict=True):
        if position in cropped and isinstance(left, int) and isinstance(right, int) and left + right:
            self = op.Gather(self, _around(self, position, left, right), axis=position)
            continue
        parts = [self]
        if not isinstance(left, int):  # of an amount of 0 a start counted from the end would take all
            start = op.Sub(op.Shape(self, start=position, end=position + 1), _vector(left))
            parts.insert(0, op.Slice(self, start, [2**62], [position]))
        elif left > 0:
            parts.insert(0, op.Slice(self, [-left], [2**62], [position]))
        if _is_something(right):
            parts.append(op.Slice(self, [0], _vector(right), [position]))
        self = op.Concat(*parts, axis=position) if len(parts) > 1 else self
    return self


def _around(self: ir.Value, position: int, left: int, right: int) -> ir.Value:
    """The places of an axis from which elements were taken: of those that are left more than all may be added."""
    size = op.Squeeze(op.Shape(self, start=position, end=position + 1), [0])
    return op.Mod(op.Range(-left, op.Add(size, right), 1), op.Max(size, 1))


def _repeated_past_the_end(
    self: ir.Value, listed: list[int], before: list[Size], after: list[Size]
) -> tuple[ir.Value, list[int], list[Size], list[Size]]:
    """Does the axes of which no element is left between the amounts: what is added there is an end all the same."""
    rest: list[tuple[int, Size, Size]] = []
    data: ir.Value = self
    for position, left, right in zip(listed, before, after, strict=True):
        length = axes.fixed_size(self, position)
        if not isinstance(left, int) or not isinstance(right, int):
            rest.append((position, left, right))
        elif length and length + min(left, 0) + min(right, 0) <= 0:
            known = np.clip(np.arange(-left, length + right), 0, length - 1)
            data = op.Gather(data, op.Constant(value=ir.tensor(known.astype(np.int64))), axis=position)
        elif length is None and min(left, right) < 0 < max(left, right):  # it may be so short
            size = op.Squeeze(op.Shape(data, start=position, end=position + 1), [0])
            places = op.Min(op.Max(op.Range(-left, op.Add(size, right), 1), 0), op.Sub(size, 1))
            data = op.Gather(data, places, axis=position)
        else:
            rest.append((position, left, right))
    data = data if data is self else axes.shaped(data, [None] * axes.rank(self))
    return data, [one for one, _, _ in rest], [one for _, one, _ in rest], [one for _, _, one in rest]


def _padded(self: ir.Value, amounts: Sequence[Size], mode: str, value: float | None) -> ir.Value:
    listed, before, after = _amounts(amounts, axes.rank(self))
    if mode == "replicate":
        self, listed, before, after = _repeated_past_the_end(self, listed, before, after)
    taken = before, after
    if mode in ("constant", "replicate"):  # of which Pad itself takes away what is computed to be negative
        data = _cropped(self, listed, *(_known(side) for side in taken))
        before, after = ([_added(one) if isinstance(one, int) else one for one in side] for side in taken)
    else:
        data = self if mode == "reflect" else _cropped(self, listed, *taken)
        before, after = ([_added(amount) for amount in side] for side in taken)
    if not any(map(_is_something, (*before, *after))):
        return op.Identity(_cropped(data, listed, *taken) if mode == "reflect" else data)
    if mode == "circular":
        sides = zip(listed, *taken, strict=True)
        cropped = {dim for dim, *side in sides if any(isinstance(one, int) and one < 0 for one in side)}
        return _wrapped(data, listed, before, after, cropped)
    if mode == "reflect":  # what is taken away at one end may be what the other end shows
        data = axes.padded(data, before, after, listed, None, mode)
        return op.Identity(_cropped(data, listed, *taken))
    if mode == "constant":
        return axes.padded(data, before, after, listed, op.CastLike(0 if value is None else value, self))
    return axes.padded(data, before, after, listed, None, _MODES[mode])


@lowering("aten::pad")
def pad(self: ir.Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> ir.Value:
    """`aten::pad`: constant, reflect, replicate or circular; negative amounts come first but in `reflect`."""
    return _padded(self, pad, mode, value)


@lowering("aten::constant_pad_nd")
def constant_pad_nd(self: ir.Value, pad: Sequence[int], value: float = 0.0) -> ir.Value:
    """Padding with a number."""
    return _padded(self, pad, "constant", value)
