"""Padding in every mode of torch, negative amounts included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def _amounts(pad: Sequence[Size], count: int) -> tuple[list[int], list[Size], list[Size]]:
    """Axes, amounts before and amounts after; torch lists the last axis first."""
    listed = [count - 1 - place for place in range(len(pad) // 2)]
    return listed, list(pad[0::2]), list(pad[1::2])


def _cropped(self: ir.Value, listed: list[int], before: list[Size], after: list[Size]) -> ir.Value:
    starts = [-amount if isinstance(amount, int) and amount < 0 else 0 for amount in before]
    ends = [amount if isinstance(amount, int) and amount < 0 else 2**62 for amount in after]
    if not any(starts) and all(end == 2**62 for end in ends):
        return self
    cropped = op.Slice(self, starts, ends, listed)
    cropped.shape = None if self.shape is None else ir.Shape([None] * len(self.shape))
    return cropped


def _wrapped(self: ir.Value, listed: list[int], before: list[Size], after: list[Size]) -> ir.Value:
    for position, left, right in zip(listed, before, after, strict=True):
        parts = [self]
        if not isinstance(left, int) or left > 0:
            parts.insert(
                0, op.Slice(self, op.Neg(left) if isinstance(left, ir.Value) else [-left], [2**62], [position])
            )
        if not isinstance(right, int) or right > 0:
            parts.append(op.Slice(self, [0], right if isinstance(right, ir.Value) else [right], [position]))
        self = op.Concat(*parts, axis=position) if len(parts) > 1 else self
    return self


def _repeated_past_the_end(
    self: ir.Value, listed: list[int], before: list[Size], after: list[Size]
) -> tuple[ir.Value, list[int], list[Size], list[Size]]:
    """Does the axes of which no element is left between the amounts: what is added there is an end all the same."""
    rest: list[tuple[int, Size, Size]] = []
    data: ir.Value = self
    for position, left, right in zip(listed, before, after, strict=True):
        length = axes.fixed_size(self, position)
        if length and isinstance(left, int) and isinstance(right, int) and length + min(left, 0) + min(right, 0) <= 0:
            places = np.clip(np.arange(-left, length + right), 0, length - 1)
            data = op.Gather(data, op.Constant(value=ir.tensor(places.astype(np.int64))), axis=position)
        else:
            rest.append((position, left, right))
    data = data if data is self else axes.shaped(data, [None] * axes.rank(self))
    return data, [one for one, _, _ in rest], [one for _, one, _ in rest], [one for _, _, one in rest]


def _padded(self: ir.Value, amounts: Sequence[Size], mode: str, value: float | None) -> ir.Value:
    listed, before, after = _amounts(amounts, axes.rank(self))
    if mode == "replicate":
        self, listed, before, after = _repeated_past_the_end(self, listed, before, after)
    taken = before, after
    data = self if mode == "reflect" else _cropped(self, listed, *taken)
    before, after = (
        [amount if not isinstance(amount, int) else max(amount, 0) for amount in side] for side in (before, after)
    )
    if mode == "circular":
        return _wrapped(data, listed, before, after)
    if mode == "reflect":  # what is taken away at one end may be what the other end shows
        data = axes.padded(data, before, after, listed, None, mode) if any([*before, *after]) else data
        return op.Identity(_cropped(data, listed, *taken))
    if all(isinstance(amount, int) and amount == 0 for amount in (*before, *after)):
        return op.Identity(data)
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
