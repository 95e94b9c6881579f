"""`as_strided` reads memory, and a file knows elements in their order only: the order in memory is put before it.

Arrives: an ONNX value, and the fake tensor that knows torch's strides for it. Leaves: the value with its axes in the
order of memory. What is not laid out densely there, or has strides that are known only when the model runs, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import onnx_ir as ir
import torch
from torch._prims_common import is_contiguous_or_false, is_non_overlapping_and_dense_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op

READS_MEMORY = frozenset({"as_strided", "as_strided_copy"})
"""Operators whose result depends on strides."""

IN_ORDER_ONLY = frozenset({"as_strided_scatter", "resize", "resize_as"})
"""Operators whose result depends on strides, and which are translated for tensors in their own order only."""


def is_in_order(fake: torch.Tensor) -> bool:
    """Whether the elements lie in memory in their own order, one beside the other."""
    return is_contiguous_or_false(fake)


def require_order(fake: torch.Tensor, name: str) -> None:
    """Holds that a tensor lies in memory in its own order, and begins there.

    Raises:
        TranslationError: if it does not.
    """
    if not is_in_order(fake) or not _is_zero(fake.storage_offset()):
        raise TranslationError(
            f"{name} of a tensor that does not lie in memory in its own order", next_step="call clone() before it"
        )


def in_memory_order(arguments: Sequence[Any], fake: torch.Tensor, made: object = None) -> list[Any]:
    """The arguments of `as_strided` for a file: the value in the order of memory, and the offset from its start.

    Args:
        arguments: those of the operator.
        fake: the tensor whose memory is read.
        made: the view of it.

    Raises:
        TranslationError: where the memory is not that of the value alone.
    """
    value, sizes, strides, *rest = arguments
    start: Any = fake.storage_offset()
    offset = rest[0] if rest and rest[0] is not None else start
    if not is_in_order(fake):
        value = _transposed(value, fake)
    numbers = [offset, start, *sizes, *strides, *fake.shape]
    if not all(isinstance(number, int) for number in numbers):
        is_own = _is_zero(start) and (_is_all_there_is(fake) or _is_within(made, fake))
        return [value, sizes, strides, offset if is_own else _refuse()]
    last = offset - start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if 0 not in sizes and not 0 <= offset - start <= last < fake.numel():
        _refuse()
    return [value, sizes, strides, offset - start]


def _is_zero(start: object) -> bool:
    return isinstance(start, int) and start == 0


def _is_all_there_is(fake: torch.Tensor) -> bool:
    """Whether the memory surely holds no more than the tensor's elements, as that of a part of another one does."""
    held = fake.untyped_storage().nbytes()
    return statically_known_true(held == fake.numel() * fake.element_size())


def _is_within(made: object, fake: torch.Tensor) -> bool:
    """Whether a view surely reads no element behind those of a tensor, which begins where its memory does."""
    if not isinstance(made, torch.Tensor):
        return False
    strides, first = made.stride(), made.storage_offset()
    last = first + sum((size - 1) * stride for size, stride in zip(made.shape, strides, strict=True))
    is_forward = all(statically_known_true(one >= 0) for one in (*strides, first))
    return is_forward and statically_known_true(fake.numel() - last >= 1)


def _transposed(value: ir.Value, fake: torch.Tensor) -> ir.Value:
    known: list[object] = [*fake.shape, *fake.stride()]
    if not all(isinstance(number, int) for number in known) or not is_non_overlapping_and_dense_or_false(fake):
        _refuse()
    strides: list[int] = list(fake.stride())
    order = sorted(range(fake.dim()), key=lambda axis: (-strides[axis], fake.shape[axis]))
    return op.Transpose(value, perm=order)


def _refuse() -> NoReturn:
    raise TranslationError(
        "as_strided reads memory that is not the tensor's own elements in a known order",
        next_step="call contiguous() before it, or use slices, unfold or permute",
    )
