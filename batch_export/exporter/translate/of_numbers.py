"""Operators that make a tensor of numbers alone, such as windows of a fixed length: torch computes them, once.

Arrives: an operator with neither translation nor decomposition, and its arguments. Leaves: the tensor that eager gives,
or None where it is made of more than numbers, or anew in each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from batch_export.exporter.translate import decompose

_LARGEST = 1 << 22
"""Elements of a table that goes into a file."""
_FROM_OUTSIDE = (torch.fx.Node, torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


def computed(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], fake: object) -> torch.Tensor | None:
    """What an operator makes of numbers.

    Args:
        target: a torch operator.
        args: its arguments, as the graph has them.
        kwargs: those by name.
        fake: what torch knows of the result.
    """
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    if not isinstance(fake, torch.Tensor) or torch.Tag.nondeterministic_seeded in target.tags:
        return None
    if target._schema.is_mutable:
        return None
    if any(isinstance(one, _FROM_OUTSIDE) for one in pytree.tree_leaves((args, kwargs))):
        return None
    if any(not isinstance(size, int) for size in fake.shape) or fake.numel() > _LARGEST:
        return None
    if target.name().startswith("aten::empty") or decompose.decomposition_of(target) is not None:
        return None
    given = {name: one for name, one in kwargs.items() if name != "device"}
    with unset_fake_temporarily(), torch.no_grad():
        made: torch.Tensor = target(*args, **given)
    return made
