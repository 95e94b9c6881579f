"""torch's dtypes and tensors as ONNX's: every dtype that both have, packed pairs of float4 included.

Arrives: dtypes, sizes and tensors of torch. Leaves: data types, sizes and tensors of onnx-ir over the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from batch_export.errors import TranslationError

_PAIRS = torch.float4_e2m1fn_x2
"""Two numbers of four bits in each element; ONNX counts the numbers (https://onnx.ai/onnx/technical/float4.html)."""


def data_type(dtype: torch.dtype) -> ir.DataType:
    """ONNX's data type.

    Raises:
        TranslationError: naming a dtype that ONNX has not.
    """
    if dtype == _PAIRS:
        return ir.DataType.FLOAT4E2M1
    try:
        return tensor_adapters.from_torch_dtype(dtype)
    except TypeError as error:
        raise TranslationError(
            f"ONNX has no {str(dtype).removeprefix('torch.')}", next_step="compute in another dtype there"
        ) from error


def sizes_of(dtype: torch.dtype, sizes: Sequence[int | torch.SymInt]) -> Sequence[int | torch.SymInt]:
    """The sizes that ONNX counts: of pairs, twice as many along the last axis."""
    return [*sizes[:-1], sizes[-1] * 2] if dtype == _PAIRS and len(sizes) else sizes


def tensor_of(tensor: torch.Tensor, name: str | None = None) -> ir.TensorProtocol:
    """The tensor, over the same memory; its `raw` is a torch tensor."""
    if tensor.dtype != _PAIRS:
        return tensor_adapters.TorchTensor(tensor, name=name)
    shape = [int(size) for size in sizes_of(_PAIRS, tensor.shape)]
    return ir.PackedTensor(tensor.detach().view(torch.uint8), ir.DataType.FLOAT4E2M1, shape=shape, name=name)
