"""Eigenvalues of symmetric matrices and singular values by Jacobi's rotations, and what follows from them.

A step turns the planes of all pairs (i, j) with i + j = step (modulo n) at once, so n steps are a sweep over all pairs.
Computed in float64: eigenvalues and singular values are right to about 1e-14 of the largest one. Signs: of each
eigenvector the component of largest size is positive, and so it is of each right singular vector. Eager's signs are
LAPACK's, which are arbitrary; vectors of equal values may be any basis of their space in both.

Algorithms: Golub and Van Loan, Matrix Computations, sections 8.5 (Jacobi) and 8.6.3 (one-sided).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.matrices import Matrices, identity, numbers_along, smaller, with_axes_swapped
from batch_export.exporter.ops.orthogonal import householder

_SWEEPS = 12
"""Sweeps after which rotations are below float64's rounding; convergence is quadratic after the first few."""


def _doubled(matrices: Matrices) -> RecordedValue:
    return axes.shaped(op.Cast(matrices.data, to=ir.DataType.DOUBLE), matrices.data.shape)


def _steps(length: Size) -> Size:
    return length * _SWEEPS if isinstance(length, int) else op.Mul(length, _SWEEPS)


def _diagonal(data: ir.Value, on_diagonal: ir.Value) -> RecordedValue:
    """`float64[batch, n, 1]`."""
    return op.ReduceSum(op.Where(on_diagonal, data, number(0.0)), [2], keepdims=1)


def _rotation(products: ir.Value, step: ir.Value, length: Size) -> RecordedValue:
    """The rotations of one step, `float64[batch, n, n]`, that clear the elements of its pairs in `products`.

    Both rows of a pair go by the sum of its two elements: these differ by rounding, and beside equal numbers on the
    diagonal the rows would be turned by angles that have nothing to do with one another.
    """
    rows, columns = numbers_along(length, [1, -1, 1]), numbers_along(length, [1, 1, -1])
    same = op.Equal(rows, columns)
    places = op.Mod(op.Sub(step, op.Squeeze(rows, [0, 2])), length)
    partner = op.Reshape(places, [1, -1, 1])
    at_partner = op.And(op.Equal(columns, partner), op.Not(same))
    both = op.Add(products, with_axes_swapped(products))
    twice = op.ReduceSum(op.Where(at_partner, both, number(0.0)), [2], keepdims=1)
    own = _diagonal(products, same)
    others = op.Gather(own, places, axis=1)
    is_turned = op.Not(op.Equal(twice, number(0.0)))
    slope = op.Div(op.Sub(others, own), op.Where(is_turned, twice, number(1.0)))
    ahead = op.Where(op.Less(rows, partner), number(1.0), number(-1.0))
    sign = op.Where(op.Equal(slope, number(0.0)), ahead, op.Sign(slope))
    tangent = op.Div(sign, op.Add(op.Abs(slope), op.Sqrt(op.Add(op.Mul(slope, slope), number(1.0)))))
    tangent = op.Where(is_turned, tangent, number(0.0))
    cosine = op.Reciprocal(op.Sqrt(op.Add(op.Mul(tangent, tangent), number(1.0))))
    aside = op.Where(at_partner, op.Mul(tangent, cosine), number(0.0))
    return op.Where(same, cosine, aside)


def _ordered(values: ir.Value, vectors: Sequence[ir.Value], *, ascending: bool) -> list[RecordedValue]:
    """Values `float64[batch, n]` in order, and the columns of the matrices in theirs."""
    count = op.Shape(values, start=1, end=2)
    ordered, places = op.TopK(values, count, axis=1, largest=int(not ascending), sorted=1)
    picked = [op.GatherElements(one, op.Expand(op.Unsqueeze(places, [1]), op.Shape(one)), axis=2) for one in vectors]
    return [ordered, *picked]


def _signs(vectors: ir.Value) -> RecordedValue:
    """1 or -1 for each column, so that times it the component of largest size is positive: `float64[batch, 1, n]`."""
    place = op.ArgMax(op.Abs(vectors), axis=1, keepdims=1)
    return op.Where(op.Less(op.GatherElements(vectors, place, axis=1), number(0.0)), number(-1.0), number(1.0))


def symmetric(data: ir.Value, length: Size) -> tuple[RecordedValue, RecordedValue]:
    """Eigenvalues `float64[batch, n]`, ascending, and eigenvectors `float64[batch, n, n]` of symmetric matrices."""
    same = op.Equal(numbers_along(length, [1, -1, 1]), numbers_along(length, [1, 1, -1]))

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        matrix, vectors = states
        turn = _rotation(matrix, index, length)
        return [op.MatMul(with_axes_swapped(turn), op.MatMul(matrix, turn)), op.MatMul(vectors, turn)]

    found, vectors = loops.count(_steps(length), step, [data, identity(data, length)])
    values = op.Squeeze(_diagonal(found, same), [2])
    ordered, columns = _ordered(values, [vectors], ascending=True)
    return ordered, op.Mul(columns, _signs(columns))


def singular(data: ir.Value, rows: Size, columns: Size) -> tuple[RecordedValue, RecordedValue, RecordedValue]:
    """U `float64[batch, m, m]`, the values `float64[batch, k]` from the largest on, V `float64[batch, n, n]`."""

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        matrix, vectors = states
        turn = _rotation(op.MatMul(with_axes_swapped(matrix), matrix), index, columns)
        return [op.MatMul(matrix, turn), op.MatMul(vectors, turn)]

    turned, vectors = loops.count(_steps(columns), step, [data, identity(data, columns)])
    lengths = op.Sqrt(op.ReduceSum(op.Mul(turned, turned), [1], keepdims=0))
    lengths, turned, vectors = _ordered(lengths, [turned, vectors], ascending=False)
    signs = _signs(vectors)
    turned, vectors = op.Mul(turned, signs), op.Mul(vectors, signs)
    axes.shaped(turned, data.shape)
    orthogonal, reduced = householder(turned, rows, columns)
    same = op.Equal(numbers_along(rows, [1, -1, 1]), numbers_along(columns, [1, 1, -1]))
    on_diagonal = op.ReduceSum(op.Where(same, reduced, number(0.0)), [2], keepdims=0)
    ahead = op.Where(op.Less(on_diagonal, number(0.0)), number(-1.0), number(1.0))
    stop = smaller(rows, columns)
    values = op.Slice(lengths, [0], [stop] if isinstance(stop, int) else op.Reshape(stop, [1]), [1])
    return op.Mul(orthogonal, op.Unsqueeze(ahead, [1])), values, vectors


def _of_triangle(data: ir.Value, uplo: str) -> RecordedValue:
    """Symmetric matrices from one of their triangles."""
    upper = int(uplo.upper() == "U")
    half = axes.shaped(op.Trilu(data, None, upper=upper), data.shape)
    beyond = op.Trilu(data, 1 if upper else -1, upper=upper)
    axes.shaped(beyond, data.shape)
    return axes.shaped(op.Add(half, with_axes_swapped(beyond)), data.shape)


@lowering("aten::_linalg_eigh")
def linalg_eigh(A: ir.Value, UPLO: str = "L", compute_v: bool = True) -> tuple[RecordedValue, ...]:  # noqa: N803
    """Eigenvalues in ascending order, and eigenvectors as columns (nothing where they are not asked for)."""
    matrices = Matrices(A)
    values, vectors = symmetric(_of_triangle(_doubled(matrices), UPLO), matrices.rows)
    values = op.CastLike(matrices.restored(values, 1), A)
    if not compute_v:
        return values, _nothing(A)
    return values, op.CastLike(matrices.restored(vectors), A)


def _nothing(like: ir.Value) -> RecordedValue:
    return op.CastLike(op.Constant(value=ir.tensor([], dtype=ir.DataType.FLOAT)), like)


@lowering("aten::_linalg_svd")
def linalg_svd(
    A: ir.Value,  # noqa: N803
    full_matrices: bool = False,
    compute_uv: bool = True,
    driver: str | None = None,
) -> tuple[RecordedValue, ...]:
    """U, the singular values from the largest on, and V transposed; no U and V where they are not asked for."""
    matrices = Matrices(A)
    left, values, right = singular(_doubled(matrices), matrices.rows, matrices.columns)
    made = op.CastLike(matrices.restored(values, 1), A)
    if not compute_uv:
        return _nothing(A), made, _nothing(A)
    flat = with_axes_swapped(right)
    if not full_matrices:
        stop = op.Shape(values, start=1, end=2)
        left, flat = op.Slice(left, [0], stop, [2]), op.Slice(flat, [0], stop, [1])
    return op.CastLike(matrices.restored(left), A), made, op.CastLike(matrices.restored(flat), A)


def _bound(
    sizes: ir.Value, matrices: Matrices, atol: ir.Value | None, rtol: ir.Value | None, like: ir.Value
) -> RecordedValue:
    """Up to which size a singular value counts as zero: `float64[batch, 1]`."""
    epsilon = {ir.DataType.FLOAT: 2.0**-23, ir.DataType.DOUBLE: 2.0**-52}.get(like.dtype or ir.DataType.UNDEFINED)
    if epsilon is None:
        raise TranslationError(
            f"a pseudo-inverse of {like.dtype} is not translated", next_step="cast to float32 before it"
        )
    largest = op.ReduceMax(sizes, [1], keepdims=1)
    longest = op.Cast(op.ReduceMax(op.Shape(matrices.data, start=1), keepdims=0), to=ir.DataType.DOUBLE)
    usual = op.Mul(longest, number(epsilon))

    def by_batch(bound: ir.Value) -> RecordedValue:
        spread = op.Expand(op.Cast(bound, to=ir.DataType.DOUBLE), op.Shape(like, end=-2))
        return op.Reshape(spread, [-1, 1])

    least = by_batch(atol) if atol is not None else number(0.0)
    if rtol is not None:
        share: RecordedValue = by_batch(rtol)
    elif atol is not None:
        share = op.Where(op.Greater(least, number(0.0)), number(0.0), usual)
    else:
        share = usual
    return op.Max(least, op.Mul(largest, share))


@lowering("aten::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(
    self: ir.Value, *, atol: ir.Value | None = None, rtol: ir.Value | None = None, hermitian: bool = False
) -> RecordedValue:
    """The pseudo-inverse: singular values up to the larger of the bounds count as zero."""
    matrices = Matrices(self)
    if hermitian:
        values, right = symmetric(_of_triangle(_doubled(matrices), "L"), matrices.rows)
        left = right
    else:
        left, values, right = singular(_doubled(matrices), matrices.rows, matrices.columns)
        stop = op.Shape(values, start=1, end=2)
        left, right = op.Slice(left, [0], stop, [2]), op.Slice(right, [0], stop, [2])
    sizes = op.Abs(values)
    kept = op.Greater(sizes, _bound(sizes, matrices, atol, rtol, self))
    inverse = op.Where(kept, op.Reciprocal(op.Where(kept, values, number(1.0))), number(0.0))
    made = op.MatMul(op.Mul(right, op.Unsqueeze(inverse, [1])), op.Transpose(left, perm=[0, 2, 1]))
    return op.CastLike(matrices.restored(made), self)
