"""`linspace` of numbers that are known: a constant, computed as eager computes it.

In formulas of a file the last digit of every third number is another one: eager's kernels fuse products and sums.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnxscript.function_libs.torch_lib.ops import core
from torch.utils._python_dispatch import _disable_current_modes

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops.marking import lowering

_MOST = 2**16
"""How many numbers are written to the file."""
_DTYPES = {
    ir.DataType.FLOAT: torch.float32,
    ir.DataType.DOUBLE: torch.float64,
    ir.DataType.FLOAT16: torch.float16,
    ir.DataType.INT64: torch.int64,
    ir.DataType.INT32: torch.int32,
}


@lowering("aten::linspace")
def linspace(start: Number, end: Number, steps: Number, dtype: int = -1) -> RecordedValue:
    """`steps` numbers at equal distances."""
    wanted = ir.DataType.FLOAT if dtype in (-1, None) else ir.DataType(dtype)
    known = [one for one in (start, end, steps) if not isinstance(one, ir.Value)]
    if len(known) < 3 or wanted not in _DTYPES or known[2] > _MOST:
        made: RecordedValue = core.aten_linspace(start, end, steps, dtype=dtype)
        return made
    with _disable_current_modes():  # it may be a part of what torch decomposes
        numbers = torch.linspace(known[0], known[1], int(known[2]), dtype=_DTYPES[wanted]).numpy()
    return op.Constant(value=ir.tensor(numbers))
