"""GridSample over images `[batch, channels, height, width]`, as weighted sums of gathered pixels."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.rules import NoForm, Result, attribute, first, needed, rank
from batch_export.legalise.writing import Writer

_CUBIC = -0.75
_MODES = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}


def grid_sample(node: ir.Node, op: Writer) -> Result:
    """The node at any opset from 13 on."""
    image, grid = first(node), needed(node, 1)
    if rank(image, "GridSample") != 4:
        raise NoForm("GridSample of images of other than two dimensions")
    mode = _MODES.get(attribute(node, "mode", "bilinear"))
    if mode is None or image.dtype is None:
        raise NoForm("GridSample of an unknown mode or dtype")
    return _Sampler(node, op, image, grid, image.dtype).sampled(mode)


class _Sampler:
    """Coordinates are `[batch, rows, columns]`, first the column (x), then the row (y)."""

    def __init__(self, node: ir.Node, op: Writer, image: ir.Value, grid: ir.Value, dtype: ir.DataType) -> None:
        self.op, self.dtype = op, dtype
        self.padding = attribute(node, "padding_mode", "zeros")
        self.aligned = bool(attribute(node, "align_corners", 0))
        shape = op.Shape(image)
        self.lengths = [op.Cast(op.Gather(shape, op.number(axis)), to=dtype) for axis in (3, 2)]
        self.width = op.Gather(shape, op.number(3))
        batch_and_channels = op.Slice(shape, op.number([0]), op.number([2]))
        pixels = op.Mul(*(op.Slice(shape, op.number([axis]), op.number([axis + 1])) for axis in (2, 3)))
        self.flat = op.Reshape(image, op.Concat(batch_and_channels, pixels, axis=0))  # counted: a batch may be empty
        self.channels = op.Slice(shape, op.number([1]), op.number([2]))
        self.coordinates = [
            self._unnormalised(op.Gather(grid, op.number(place), axis=-1), self.lengths[place]) for place in (0, 1)
        ]
        outer = op.Slice(op.Shape(grid), op.number([1]), op.number([3]))
        self.shape = op.Concat(batch_and_channels, outer, axis=0)

    def sampled(self, mode: str) -> ir.Value:
        op = self.op
        if mode == "cubic":
            taps = [self._cubic_taps(place) for place in (0, 1)]
        else:
            moved = [self._bounded(place, self.coordinates[place]) for place in (0, 1)]
            if mode == "nearest":
                return op.Reshape(self._pixels(*map(op.Round, moved)), self.shape)
            taps = [self._linear_taps(at) for at in moved]
        whole: ir.Value | None = None
        for row, row_weight in taps[1]:
            for column, column_weight in taps[0]:
                part = op.Mul(self._pixels(column, row), self._per_pixel(op.Mul(row_weight, column_weight)))
                whole = part if whole is None else op.Add(whole, part)
        assert whole is not None
        return op.Reshape(whole, self.shape)

    def _number(self, value: float) -> ir.Value:
        return self.op.number(value, self.dtype)

    def _per_pixel(self, weight: ir.Value) -> ir.Value:
        """`[batch, 1, rows * columns]`."""
        return self.op.Unsqueeze(self.op.Flatten(weight, axis=1), self.op.number([1]))

    def _unnormalised(self, at: ir.Value, length: ir.Value) -> ir.Value:
        """-1 to 1 as pixels: the outer pixels' centres where corners are aligned, else their outer edges."""
        op = self.op
        share = op.Div(op.Add(at, self._number(1.0)), self._number(2.0))
        if self.aligned:
            return op.Mul(share, op.Sub(length, self._number(1.0)))
        return op.Sub(op.Mul(share, length), self._number(0.5))

    def _bounded(self, place: int, at: ir.Value) -> ir.Value:
        """Where a coordinate beyond the image is looked up."""
        op, length = self.op, self.lengths[place]
        last = op.Sub(length, self._number(1.0))
        if self.padding == "reflection":
            low = 0.0 if self.aligned else -0.5
            span = last if self.aligned else length
            # Fold onto twice the span, and the second half back; a span of 0 has a single pixel.
            twice = op.Max(op.Mul(span, self._number(2.0)), self._number(1e-30))
            away = op.Abs(op.Sub(at, self._number(low)))
            folded = op.Sub(away, op.Mul(op.Floor(op.Div(away, twice)), twice))
            at = op.Add(op.Min(folded, op.Sub(twice, folded)), self._number(low))
        if self.padding != "zeros":
            at = op.Min(op.Max(at, self._number(0.0)), last)
        return at

    def _linear_taps(self, at: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
        op = self.op
        low = op.Floor(at)
        share = op.Sub(at, low)
        return [(low, op.Sub(self._number(1.0), share)), (op.Add(low, self._number(1.0)), share)]

    def _cubic_taps(self, place: int) -> list[tuple[ir.Value, ir.Value]]:
        op, at = self.op, self.coordinates[place]
        low = op.Floor(at)
        share = op.Sub(at, low)
        taps = []
        for offset in (-1, 0, 1, 2):
            away = op.Abs(op.Sub(share, self._number(float(offset))))
            near = offset in (0, 1)
            weight = self._near(away) if near else self._far(away)
            tap = op.Add(low, self._number(float(offset)))
            taps.append((self._bounded(place, tap), weight))
        return taps

    def _near(self, away: ir.Value) -> ir.Value:
        op, a = self.op, _CUBIC
        inner = op.Sub(op.Mul(away, self._number(a + 2)), self._number(a + 3))
        return op.Add(op.Mul(op.Mul(inner, away), away), self._number(1.0))

    def _far(self, away: ir.Value) -> ir.Value:
        op, a = self.op, _CUBIC
        inner = op.Sub(op.Mul(away, self._number(a)), self._number(5 * a))
        inner = op.Add(op.Mul(inner, away), self._number(8 * a))
        return op.Sub(op.Mul(inner, away), self._number(4 * a))

    def _pixels(self, column: ir.Value, row: ir.Value) -> ir.Value:
        """`[batch, channels, rows * columns]`: the pixels at whole coordinates; zeros where there are none."""
        op = self.op
        zero = self._number(0.0)
        inside: ir.Value | None = None
        clamped = []
        for at, length in zip((column, row), self.lengths, strict=True):
            last = op.Sub(length, self._number(1.0))
            begun = op.GreaterOrEqual(at, zero)
            here = op.And(begun, op.LessOrEqual(at, last))
            inside = here if inside is None else op.And(inside, here)
            clamped.append(op.Cast(op.Where(begun, op.Min(at, last), zero), to=ir.DataType.INT64))  # NaN is 0
        assert inside is not None
        places = self._per_pixel(op.Add(op.Mul(clamped[1], self.width), clamped[0]))
        wide = op.Expand(places, op.Concat(op.number([1]), self.channels, op.number([1]), axis=0))
        found = op.GatherElements(self.flat, wide, axis=2)
        if self.padding != "zeros":
            return found
        return op.Mul(found, self._per_pixel(op.Cast(inside, to=self.dtype)))
