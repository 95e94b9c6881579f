"""Tensors made from numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.operators import op
from batch_export.exporter.ops.marking import lowering

_INT64 = int(ir.DataType.INT64)


def _triangle(places: Any, dtype: int) -> Any:
    table = np.stack(places).astype(np.int64)
    return op.Cast(op.Constant(value=ir.tensor(table)), to=_INT64 if dtype == -1 else dtype)


@lowering("aten::tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, dtype: int = -1) -> Any:
    """Rows and columns of the lower triangle: `[2, count]`."""
    return _triangle(np.tril_indices(row, offset, col), dtype)


@lowering("aten::triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, dtype: int = -1) -> Any:
    """Rows and columns of the upper triangle: `[2, count]`."""
    return _triangle(np.triu_indices(row, offset, col), dtype)


@lowering("aten::empty_permuted")
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], dtype: int = -1) -> Any:
    """Memory without content is zeros here; the order of axes in memory has no counterpart."""
    zeros = op.ConstantOfShape(list(size))
    return zeros if dtype == -1 else op.Cast(zeros, to=dtype)
