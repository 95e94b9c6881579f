"""Our own translations, by family, where torchlib has none, a wrong one, or one that needs a newer opset's operator.

Each module holds functions marked with `@lowering(...)`; `lowerings()` collects them. Functions are written with
onnxscript's operators and never touch torch tensors.
"""

from __future__ import annotations

from batch_export.exporter.ops import (
    accumulations,
    attention,
    complex_numbers,
    convolution,
    creation,
    distances,
    division,
    doubles,
    elementwise,
    embedding,
    error_function,
    experts,
    exponents,
    losses,
    lu,
    native_forms,
    normalisation,
    orthogonal,
    padding,
    picking,
    pooling,
    powers,
    products,
    random,
    ranges,
    rearranging,
    recurrent,
    reductions,
    resampling,
    sampling,
    scattering,
    shifts,
    signs,
    sorting,
    special_functions,
    squeezing,
    stable,
    symbolic_sizes,
    tensors,
    triangular,
)
from batch_export.exporter.ops.marking import Lowering, marked

_MODULES = (
    accumulations,
    attention,
    complex_numbers,
    convolution,
    creation,
    distances,
    division,
    doubles,
    elementwise,
    embedding,
    error_function,
    experts,
    exponents,
    losses,
    lu,
    native_forms,
    normalisation,
    orthogonal,
    padding,
    picking,
    pooling,
    powers,
    products,
    random,
    ranges,
    rearranging,
    recurrent,
    reductions,
    resampling,
    sampling,
    scattering,
    shifts,
    signs,
    sorting,
    special_functions,
    squeezing,
    stable,
    symbolic_sizes,
    tensors,
    triangular,
)


def lowerings() -> tuple[Lowering, ...]:
    """Every translation of this package."""
    return tuple(entry for module in _MODULES for entry in marked(module))
