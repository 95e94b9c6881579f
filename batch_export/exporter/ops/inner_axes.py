"""Products of matrices whose inner axis may be empty: zeros, also where there are several matrices.

onnxruntime's MatMul writes the zeros of the first matrix alone and leaves the others as the memory was. The nodes that
choose zeros are recorded only where that can be: the inner axis may be empty, and the product then is not.
"""

from __future__ import annotations

import re
from collections.abc import Set

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes

_SUMS = re.compile(r"[\w*]+( \+ [\w*]+)*")
"""Sizes that are sums of products, none of which is less than 0."""


def matrix_product(left: ir.Value, right: ir.Value) -> RecordedValue:
    """A MatMul; `float[..., n, k]` and `float[..., k, m]`, or vectors."""
    product = op.MatMul(left, right)
    if not _sums_nothing(left, right):
        return product
    shape = product.shape
    is_nothing = op.Equal(axes.size(right, -2), 0)
    return axes.shaped(op.Where(is_nothing, axes.like(0, right), product), shape)


def _sums_nothing(left: ir.Value, right: ir.Value) -> bool:
    """Whether the inner axis may be empty where the product has more than one matrix, with elements."""
    if left.shape is None or right.shape is None or len(right.shape) < 3 or right.dtype is None:
        return False
    batch = [*left.shape[:-2], *right.shape[:-2]]
    if all(size == 1 for size in batch) or axes.never_empty(right, -2):
        return False
    inner, kept = right.shape[-2], [*batch, *left.shape[-2:-1], right.shape[-1]]
    if 0 in kept or isinstance(inner, int) or inner.value is None:
        return inner == 0 and 0 not in kept
    return not _has_elements(inner.value, {str(size) for size in kept})


def _has_elements(size: str, there: Set[str]) -> bool:
    """Whether a size is 1 or more where others are."""
    if size in there or not _SUMS.fullmatch(size):
        return size in there
    return any(all(_is_there(one, there) for one in term.split("*")) for term in size.split(" + "))


def _is_there(factor: str, there: Set[str]) -> bool:
    return int(factor) > 0 if factor.isdigit() else factor in there
