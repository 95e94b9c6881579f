"""Running products, maxima and minima, and reductions that torchlib lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.reductions import mean_over


def _first(self: ir.Value, position: int) -> ir.Value:
    """The value with an axis moved to the front."""
    order = [position, *(other for other in range(axes.rank(self)) if other != position)]
    moved = self if position == 0 else op.Transpose(self, perm=order)
    return axes.shaped(moved, None if self.shape is None else [self.shape[other] for other in order])


def _from_first(value: ir.Value, position: int, count: int) -> ir.Value:
    order = list(range(1, count))
    order.insert(position, 0)
    return value if position == 0 else op.Transpose(value, perm=order)


_WIDER = {ir.DataType.FLOAT: ir.DataType.DOUBLE, ir.DataType.FLOAT16: ir.DataType.FLOAT}
"""What torch multiplies running products in."""


def _was_bfloat16(value: ir.Value) -> bool:
    """Whether a value of float32 is one of bfloat16 already, which torch multiplies in float32."""
    cast = value.producer()
    given = cast.inputs[0] if cast is not None and cast.op_type == "Cast" else None
    return given is not None and given.dtype == ir.DataType.BFLOAT16


@lowering("aten::cumprod")
def cumprod(self: ir.Value, dim: int, dtype: int = -1) -> ir.Value:
    """The products of the elements so far along an axis; of fewer bits than float64 only the results are rounded.

    So torch has them too: what a product beyond float32 is multiplied by next may bring it back.
    """
    given = as_number(self, dtype)
    if axes.rank(self) == 0:
        return given
    assert given.dtype is not None
    wide = None if _was_bfloat16(given) else _WIDER.get(given.dtype)
    data = given if wide is None else axes.shaped(op.Cast(given, to=wide), given.shape)
    position = axes.axis(self, dim)
    moved = _first(data, position)
    start = op.Expand(axes.like(1, data), op.Shape(moved, start=1))
    axes.shaped(start, list(moved.shape or ())[1:])
    assert data.dtype is not None

    def step(
        states: Sequence[ir.Value], slices: Sequence[ir.Value]
    ) -> tuple[Sequence[RecordedValue], Sequence[RecordedValue]]:
        product = op.Mul(states[0], slices[0])
        return [product], [product]

    _, (products,) = loops.scan(step, [start], [loops.lengthened(moved)], [data.dtype])
    found = _from_first(loops.shortened(products, moved), position, axes.rank(self))
    return found if wide is None else op.Cast(found, to=given.dtype)


_WRITTEN_OUT = 16
"""Powers that are single products; more are a running one."""


@lowering("aten::vander")
def vander(x: ir.Value, N: int | ir.Value | None = None, increasing: bool = False) -> ir.Value:  # noqa: N803  (torch's own name)
    """The powers of each element, one column each, by products as torch computes them.

    Raises:
        TranslationError: if the number of columns is that of the elements, and free.
    """
    data = as_number(x, -1)
    count = axes.fixed_size(x, 0) if N is None else N
    if count is None or isinstance(count, ir.Value):
        raise TranslationError(
            "vander has as many columns as elements, and that is a free size", next_step="name the number of columns, N"
        )
    ones: ir.Value = axes.shaped(op.Expand(axes.like(1, data), op.Shape(x)), x.shape)
    powers = [ones][:count]
    if count <= _WRITTEN_OUT:
        for power in range(1, count):
            powers.append(data if power == 1 else op.Mul(powers[-1], data))
        columns: list[ir.Value] = [op.Unsqueeze(one, [1]) for one in powers]
    else:
        repeated = op.Expand(op.Unsqueeze(data, [1]), op.Concat(op.Shape(x), [count - 1], axis=0))
        axes.shaped(repeated, [None if x.shape is None else x.shape[0], count - 1])
        columns = [op.Unsqueeze(powers[0], [1]), cumprod(repeated, 1)]
    if increasing:
        return op.Concat(*columns, axis=1)
    if count <= _WRITTEN_OUT:
        return op.Concat(*reversed(columns), axis=1)
    return op.Slice(op.Concat(*columns, axis=1), [-1], [-(2**62)], [1], [-1])


def as_number(self: ir.Value, dtype: int) -> ir.Value:
    """The elements as torch adds them up: in the dtype asked for, or int64 in place of smaller integers."""
    wanted = dtype if dtype != -1 else None
    if wanted is None and self.dtype is not None and self.dtype.is_floating_point():
        return self
    return axes.shaped(op.Cast(self, to=ir.DataType.INT64 if wanted is None else wanted), self.shape)


def _running_extreme(self: ir.Value, dim: int, is_better: Callable[..., RecordedValue]) -> tuple[ir.Value, ...]:
    """Values and indices so far; of equal elements the later one, and NaN once it was met, as in torch."""
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    data = op.Cast(self, to=ir.DataType.INT32) if self.dtype == ir.DataType.BOOL else self
    axes.shaped(data, self.shape)
    assert data.dtype is not None
    position = axes.axis(self, dim)
    moved = _first(data, position)
    rest = list(moved.shape or ())[1:]
    longer = loops.lengthened(moved)
    best = op.Squeeze(op.Slice(longer, [0], [1], [0]), [0])
    axes.shaped(best, rest)
    where = op.Expand(op.Constant(value_int=0), op.Shape(moved, start=1))
    axes.shaped(where, rest)
    numbers = loops.positions(axes.size(longer, 0))
    axes.shaped(numbers, [None])

    def step(
        states: Sequence[ir.Value], slices: Sequence[ir.Value]
    ) -> tuple[Sequence[RecordedValue], Sequence[RecordedValue]]:
        (value, index), (new, number) = states, slices
        taken = is_better(new, value)
        if axes.is_float(data):
            taken = op.And(op.Or(taken, op.IsNaN(new)), op.Or(op.Not(op.IsNaN(value)), op.IsNaN(new)))
        best_so_far = [op.Where(taken, new, value), op.Where(taken, number, index)]
        for one in best_so_far:  # before opset 16 a runtime does not find out that Where keeps them
            axes.shaped(one, rest)
        return best_so_far, best_so_far

    _, (values, indices) = loops.scan(step, [best, where], [longer, numbers], [data.dtype, ir.DataType.INT64])
    count = axes.rank(self)
    whole = (loops.shortened(stack, moved) for stack in (values, indices))
    return tuple(_from_first(stack, position, count) for stack in whole)


@lowering("aten::cummax")
def cummax(self: ir.Value, dim: int) -> tuple[ir.Value, ...]:
    """The largest element so far along an axis, and where it stands."""
    return _running_extreme(self, dim, op.GreaterOrEqual)


@lowering("aten::cummin")
def cummin(self: ir.Value, dim: int) -> tuple[ir.Value, ...]:
    """The smallest element so far along an axis, and where it stands."""
    return _running_extreme(self, dim, op.LessOrEqual)


@lowering("prims::prod")
def prod(inp: ir.Value, dims: Sequence[int] | None, output_dtype: int = -1) -> ir.Value:
    """The product along axes."""
    data = op.Cast(inp, to=output_dtype) if output_dtype != -1 else inp
    return data if dims is not None and not len(dims) else op.ReduceProd(data, dims, keepdims=0)


def _moments(
    self: ir.Value, dim: Sequence[int] | None, correction: float | ir.Value, keepdim: bool
) -> tuple[RecordedValue, RecordedValue]:
    """Variance and mean; NaN where there are no more elements than the correction.

    Centred twice: what rounding leaves of the first mean is taken away, so that equal elements have the variance 0.
    """
    count = axes.rank(self)
    wanted = sorted({int(one) % max(count, 1) for one in dim}) if dim is not None and len(dim) else list(range(count))
    less = op.CastLike(correction, self) if isinstance(correction, ir.Value) else axes.like(correction, self)
    if count == 0:
        zero = axes.like(0.0, self)
        nan = op.Where(op.GreaterOrEqual(less, axes.like(1.0, self)), axes.like(float("nan"), self), zero)
        return op.Add(op.Mul(self, zero), nan), axes.from_zero(self)
    keep = mean_over(self, wanted, keepdims=True)
    about = op.Sub(self, keep)
    centred = op.Sub(about, op.ReduceMean(about, wanted, keepdims=1))  # of nothing there is nothing to take away
    total = op.ReduceSum(op.Mul(centred, centred), wanted, keepdims=int(keepdim))
    sizes = [axes.size(self, position) for position in wanted]
    elements = op.ReduceProd(op.Concat(*sizes, axis=0) if len(sizes) > 1 else sizes[0], keepdims=0)
    divisor = op.Max(op.Sub(op.CastLike(elements, self), less), axes.like(0.0, self))
    mean = keep if keepdim else op.Squeeze(keep, wanted)
    return op.Div(total, divisor), mean


@lowering("aten::var.correction")
def var(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | ir.Value | None = None, keepdim: bool = False
) -> RecordedValue:
    """The variance along axes, over n - correction elements."""
    return _moments(self, dim, 1.0 if correction is None else correction, keepdim)[0]


@lowering("aten::std.correction")
def std(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | ir.Value | None = None, keepdim: bool = False
) -> RecordedValue:
    """The standard deviation along axes."""
    return op.Sqrt(var(self, dim, correction, keepdim))


@lowering("aten::var_mean.correction")
def var_mean(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | ir.Value | None = None, keepdim: bool = False
) -> tuple[RecordedValue, ...]:
    """Variance and mean."""
    return _moments(self, dim, 1.0 if correction is None else correction, keepdim)


@lowering("aten::std_mean.correction")
def std_mean(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | ir.Value | None = None, keepdim: bool = False
) -> tuple[RecordedValue, ...]:
    """Standard deviation and mean."""
    variance, mean = var_mean(self, dim, correction, keepdim)
    return op.Sqrt(variance), mean
