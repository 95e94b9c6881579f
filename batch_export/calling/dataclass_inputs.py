"""Dataclasses as inputs: torch flattens those that are registered with it, and takes any other for a constant.

Arrives: example inputs. Leaves: the classes among them that hold tensors, registered for this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import torch
from torch.utils import _pytree as pytree


def register(inputs: Any) -> None:
    """Registers the class of each dataclass that holds tensors, those inside others too.

    A class that torch cannot make again from its fields is left as it is.
    """
    seen: set[type] = set()
    while found := {type(leaf) for leaf in pytree.tree_leaves(inputs) if _holds_tensors(leaf)} - seen:
        for kind in found:
            with contextlib.suppress(AssertionError, TypeError, ValueError):
                torch.export.register_dataclass(kind)
        seen |= found


def _holds_tensors(leaf: Any) -> bool:
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return False
    values = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    return any(isinstance(one, torch.Tensor) or _holds_tensors(one) for one in pytree.tree_leaves(values))
