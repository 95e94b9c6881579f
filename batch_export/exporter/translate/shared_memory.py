"""Memory that tensors of a model share: a file has a tensor of its own for each, and a write to one misses the other.

Arrives: an exported program and what it writes to. Leaves: nothing, or an error that names the two tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from batch_export.errors import TranslationError

_WEIGHTS = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


def refuse_shared(program: torch.export.ExportedProgram, written: Sequence[str]) -> None:
    """Refuses a program that writes to a tensor whose memory another tensor of the program shares.

    Args:
        program: what was captured.
        written: the buffers (dotted names) and inputs (names in the graph) that it changes.

    Raises:
        TranslationError: naming the two.
    """
    if not written:
        return
    tensors = list(_tensors(program))
    by_name = {name: (kind, tensor) for name, kind, tensor in tensors}
    for name in written:
        if name not in by_name:
            continue
        kind, tensor = by_name[name]
        for other, other_kind, candidate in tensors:
            if other != name and _overlap(tensor, candidate):
                raise TranslationError(
                    f"the {kind} {name} and the {other_kind} {other} share memory and the model writes to {name}; in a "
                    "file each is a tensor of its own, and the write would not reach the other",
                    next_step=f"give {other} memory of its own (.clone()), or compute it from {name} in forward",
                )


def _tensors(program: torch.export.ExportedProgram) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Name, kind and content of each tensor that the program reads."""
    users = {node.name: len(node.users) for node in program.graph.nodes if node.op == "placeholder"}
    leaves = iter(pytree.tree_leaves(program.example_inputs or ((), {}), is_leaf=lambda leaf: leaf is None))
    for spec in program.graph_signature.input_specs:
        given: object = next(leaves, None) if spec.kind == InputKind.USER_INPUT else None
        name = getattr(spec.arg, "name", "")
        if spec.kind in _WEIGHTS and users.get(name):
            target = str(spec.target)
            content = program.state_dict.get(target, program.constants.get(target))
            if isinstance(content, torch.Tensor):
                yield target, "parameter" if spec.kind == InputKind.PARAMETER else "buffer", content
        elif isinstance(given, torch.Tensor):
            yield name, "input", given


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.layout != torch.strided or other.layout != torch.strided:
        return False
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    (low, high), (other_low, other_high) = _extent(one), _extent(other)
    return low < other_high and other_low < high


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The first byte of the storage that a tensor uses, and the one after the last."""
    if not tensor.numel():
        return 0, 0
    first: Any = tensor.storage_offset()
    last: Any = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()
