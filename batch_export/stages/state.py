"""The buffers of a module, kept aside so that every run starts from the same state.

A module arrives; its buffers leave as they were. Parameters and plain attributes are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class ModuleState:
    """A snapshot of a module's buffers, taken when it is made."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._buffers = dict(module.named_buffers())
        self._values = {name: buffer.detach().clone() for name, buffer in self._buffers.items()}

    def value(self, name: str) -> torch.Tensor:
        """Returns the buffer's value in the snapshot."""
        return self._values[name]

    def changed(self) -> dict[str, torch.Tensor]:
        """Returns copies of the buffers whose values are no longer those of the snapshot, by name."""
        now = dict(self._module.named_buffers())
        return {
            name: now[name].detach().clone()
            for name, value in self._values.items()
            if name in now and not same(now[name], value)
        }

    def restore(self) -> None:
        """Puts the buffers of the snapshot back, the same tensors with the same values."""
        owners = dict(self._module.named_modules(remove_duplicate=False))
        for name, buffer in self._buffers.items():
            path, _, leaf = name.rpartition(".")
            owner, value = owners[path], self._values[name]
            if isinstance(owner, torch.jit.ScriptModule):  # gives another tensor of the same memory at each question
                if not same(getattr(owner, leaf), value):
                    setattr(owner, leaf, value.clone())
                continue
            if not same(buffer, value):
                buffer.data = value.clone()
            if owner._buffers.get(leaf) is not buffer:
                owner._buffers[leaf] = buffer


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors have the same kind, dtype, shape and values, NaN being equal to NaN.

    Of sparse and nested tensors these are those of their parts; of what nothing can be read (`meta`) there are none.
    """
    if (one.dtype, one.layout, one.is_nested) != (other.dtype, other.layout, other.is_nested):
        return False
    if one.is_nested or one.layout is not torch.strided:
        mine, theirs = _parts(one), _parts(other)
        return len(mine) == len(theirs) and all(map(same, mine, theirs)) and (one.is_nested or one.shape == other.shape)
    if one.shape != other.shape:
        return False
    if one.is_meta or torch.equal(one, other):
        return True
    if one.is_quantized or not (one.is_floating_point() or one.is_complex()):
        return False
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def _parts(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Returns the dense tensors that one of another layout is made of."""
    if tensor.is_nested:
        return tensor.unbind()
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return whole.indices(), whole.values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.to_dense(),)
