"""Writes to a conjugate, or to the negative imaginary part of one, that shares memory with a tensor of free size.

Arrives: a call that a forward makes. Leaves: for a call that writes to such a view the same elements, computed in a
tensor of its own and copied back. torch's own way asks the view's sizes for plain numbers, which fixes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_OF_OTHER_THINGS = frozenset(
    ("as_strided_", "copy_", "detach_", "rename_", "requires_grad_", "resize_", "resize_as_", "set_", "share_memory_")
) | frozenset(("squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"))
"""Methods that change axes or other properties of a tensor and none of its elements, and the copy itself."""


def written(func: Any, args: Sequence[Any], given: Mapping[str, Any]) -> tuple[bool, object]:
    """Whether a call is such a write, and its result."""
    name = getattr(func, "__name__", "")
    if not (name == "__setitem__" or _is_in_place(name)) or not args or not isinstance(args[0], torch.Tensor):
        return False, None
    view = args[0]
    if not (view.is_conj() or view.is_neg()) or not any(isinstance(size, torch.SymInt) for size in view.shape):
        return False, None
    own = view.resolve_conj().resolve_neg()
    func(own, *args[1:], **given)
    view.copy_(own)
    return True, None if name == "__setitem__" else view


def _is_in_place(name: str) -> bool:
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__int__", "__index__", "__invert__", "__iter__")
    return name.endswith("_") and name not in _OF_OTHER_THINGS
