"""Matrix products, with and without an addend, and products of vectors.

Integers stay integers, and beta = 0 leaves out the addend, even NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.ranks import rank_of
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.inner_axes import matrix_product
from batch_export.exporter.ops.marking import lowering


def _times(value: ir.Value, factor: Number) -> ir.Value:
    if isinstance(factor, ir.Value):
        return op.Mul(value, op.Cast(factor, to=value.dtype))
    if factor == 1:
        return value
    return op.Mul(value, axes.like(factor if axes.is_float(value) else int(factor), value))


def _sum(self: ir.Value, product: ir.Value, beta: Number, alpha: Number) -> ir.Value:
    """beta * self + alpha * product, in the shape of the product; either factor may be a size."""
    if product.dtype is None and self.dtype is not None:
        product.dtype = self.dtype
    scaled = _times(product, alpha)
    if not isinstance(beta, ir.Value):
        return scaled if beta == 0 else op.Add(scaled, _times(self, beta))
    nothing = axes.like(0, self)
    left_out = op.Equal(beta, axes.like(0, beta))
    return op.Add(scaled, op.Where(left_out, nothing, _times(self, beta)))


def _product(left: ir.Value, right: ir.Value) -> RecordedValue:
    """A matrix product. onnxruntime repeats no vector over an axis without elements: there it becomes a matrix."""
    sizes = [] if left.shape is None else list(left.shape)[:-1]
    if sizes and rank_of(right) == 1 and any(not isinstance(size, int) or size == 0 for size in sizes):
        return op.Squeeze(op.MatMul(left, op.Unsqueeze(right, [1])), [len(sizes)])
    return matrix_product(left, right)


@lowering("aten::matmul", "aten::mv", "aten::bmm")
def matmul(self: ir.Value, other: ir.Value) -> RecordedValue:
    """A matrix product, of vectors and of batches too."""
    return _product(self, other)


def _is_left_out(self: ir.Value, alpha: Number) -> bool:
    """Whether the factor is 0: torch's float32 and float64 then never look at the product, with NaN in it and all."""
    return not isinstance(alpha, ir.Value) and alpha == 0 and self.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _addend_only(self: ir.Value, beta: Number, sizes: Sequence[ir.Value]) -> RecordedValue:
    scaled = axes.like(0.0, self) if not isinstance(beta, ir.Value) and beta == 0 else _times(self, beta)
    return op.Expand(scaled, op.Concat(*sizes, axis=0) if len(sizes) > 1 else sizes[0])


@lowering("aten::addmm")
def addmm(self: ir.Value, mat1: ir.Value, mat2: ir.Value, beta: float = 1.0, alpha: float = 1.0) -> ir.Value:
    """beta * self + alpha * mat1 @ mat2; as one Gemm where torch's rule for beta = 0 and for empty sums allows it."""
    if _is_left_out(self, alpha):
        return _addend_only(self, beta, [axes.size(mat1, 0), axes.size(mat2, 1)])
    is_symbolic = isinstance(alpha, ir.Value) or isinstance(beta, ir.Value)
    inner = axes.fixed_size(mat1, 1)
    is_gemm = axes.is_float(self) and not is_symbolic and beta != 0 and inner != 0
    if inner is None and self.dtype == ir.DataType.FLOAT16:  # onnxruntime leaves beta out where the inner axis is empty
        is_gemm = is_gemm and beta == 1
    if is_gemm:
        return op.Gemm(mat1, mat2, self, alpha=alpha, beta=beta)
    return _sum(self, op.MatMul(mat1, mat2), beta, alpha)


@lowering("aten::addmv")
def addmv(self: ir.Value, mat: ir.Value, vec: ir.Value, beta: float = 1.0, alpha: float = 1.0) -> ir.Value:
    """beta * self + alpha * mat @ vec."""
    if _is_left_out(self, alpha):
        return _addend_only(self, beta, [axes.size(mat, 0)])
    return _sum(self, _product(mat, vec), beta, alpha)


@lowering("aten::baddbmm")
def baddbmm(self: ir.Value, left: ir.Value, right: ir.Value, beta: float = 1.0, alpha: float = 1.0) -> ir.Value:
    """beta * self + alpha * left @ right, of batches of matrices."""
    return _sum(self, matrix_product(left, right), beta, alpha)


@lowering("aten::addbmm")
def addbmm(self: ir.Value, batch1: ir.Value, batch2: ir.Value, beta: float = 1.0, alpha: float = 1.0) -> ir.Value:
    """beta * self + alpha * the sum of a batch of products."""
    if _is_left_out(self, alpha):
        return _addend_only(self, beta, [axes.size(batch1, 1), axes.size(batch2, 2)])
    return _sum(self, op.ReduceSum(matrix_product(batch1, batch2), [0], keepdims=0), beta, alpha)


@lowering("aten::addr")
def addr(self: ir.Value, vec1: ir.Value, vec2: ir.Value, beta: float = 1.0, alpha: float = 1.0) -> ir.Value:
    """beta * self + alpha * the outer product of two vectors."""
    return _sum(self, op.Mul(op.Unsqueeze(vec1, [1]), op.Unsqueeze(vec2, [0])), beta, alpha)


@lowering("aten::linear")
def linear(input: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> RecordedValue:
    """input @ weight^T + bias; of two axes, and a weight of floating point, one Gemm."""
    count = axes.rank(weight)
    if axes.is_float(input) and axes.rank(input) == 2 and count == 2 and axes.fixed_size(weight, 1) != 0:
        return op.Gemm(input, weight, transB=1) if bias is None else op.Gemm(input, weight, bias, transB=1)
    if count == 2 and axes.fixed_size(weight, 1) == 0:  # a sum of nothing, which onnxruntime does not load with a bias
        addend = axes.like(0, input) if bias is None else bias
        batch = [op.Shape(input, start=0, end=-1)] if axes.rank(input) > 1 else []
        return op.Expand(addend, op.Concat(*batch, axes.size(weight, 0), axis=0))
    product = op.MatMul(input, op.Transpose(weight, perm=[1, 0])) if count == 2 else _product(input, weight)
    return product if bias is None else op.Add(product, bias)


@lowering("aten::cross")
def cross(self: ir.Value, other: ir.Value, dim: int | None = None) -> RecordedValue:
    """`aten::cross`: vectors lie along an axis, the first one of size 3 where none is named."""
    if dim is None:
        dim = next(place for place in range(axes.rank(self)) if axes.fixed_size(self, place) == 3)
    axis = axes.axis(self, dim)

    def turned(value: ir.Value, order: Sequence[int]) -> RecordedValue:
        return op.Gather(value, list(order), axis=axis)

    once, twice = (1, 2, 0), (2, 0, 1)
    return op.Sub(op.Mul(turned(self, once), turned(other, twice)), op.Mul(turned(self, twice), turned(other, once)))
