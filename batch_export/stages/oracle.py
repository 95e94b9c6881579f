"""Eager PyTorch in float64: what tells ordinary rounding from an error of the export.

A module and its inputs arrive; the outputs of a float64 copy of it leave, or a note why there are none. The module
itself is never changed. Not every model allows it: some compute in a dtype of their own choice.
"""

from __future__ import annotations

import copy
from typing import Any

import psutil
import torch
from torch.utils import _pytree as pytree

_SHARE_OF_FREE_MEMORY = 0.5
_WIDE = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


class Oracle:
    """A float64 copy of a module, made on first use.

    Args:
        module: the module; its buffers are those of the moment of the first use.

    Attributes:
        note: why there is no oracle; empty while it works.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._copy: torch.nn.Module | None = None
        self._state: dict[str, torch.Tensor] = {}
        self.note = _too_large(module)

    def outputs(self, arguments: dict[str, Any]) -> list[torch.Tensor | None] | None:
        """Runs the copy; returns one entry per leaf of the output that is not None (None for leaves that are no
        floating-point tensors), or None with a note."""
        if self.note:
            return None
        default = torch.get_default_dtype()
        try:
            module = self._wide_copy()
            # What forward makes without a dtype (torch.zeros, arange of floats) has to be float64 as well.
            torch.set_default_dtype(torch.float64)
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                returned = module(**pytree.tree_map(_wide, arguments))
            module.load_state_dict(self._state, strict=False)
        except Exception as error:  # whatever the model says: it does not allow float64
            lines = str(error).strip().splitlines()
            self.note = f"the model does not run in float64: {type(error).__name__}: {lines[0] if lines else ''}"[:300]
            return None
        finally:
            torch.set_default_dtype(default)
        leaves = [leaf for leaf in pytree.tree_leaves(returned) if leaf is not None]
        return [leaf.detach() if _is_wide(leaf) else None for leaf in leaves]

    def _wide_copy(self) -> torch.nn.Module:
        if self._copy is None:
            # The tensors are handed over in float64, so that the weights are not copied in float32 first.
            tensors = (*self._module.parameters(), *self._module.buffers())
            self._copy = copy.deepcopy(self._module, {id(tensor): _wide_leaf(tensor) for tensor in tensors})
            self._state = {name: value.clone() for name, value in self._copy.named_buffers()}
        return self._copy


def _wide(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(_WIDE.get(value.dtype, value.dtype))
    return value.to(torch.float64) if value.is_floating_point() else value


def _wide_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a float64 copy of a parameter or buffer; integers are copied as they are."""
    wide = _wide(tensor.detach())
    own = wide.clone() if wide.data_ptr() == tensor.data_ptr() else wide
    return torch.nn.Parameter(own, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else own


def _is_wide(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float64


def _too_large(module: torch.nn.Module) -> str:
    elements = sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
    needed, free = 8 * elements, psutil.virtual_memory().available
    if needed <= _SHARE_OF_FREE_MEMORY * free:
        return ""
    return f"no float64 oracle: it needs {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free"
