"""Dataclasses as inputs and outputs: torch flattens those that are registered with it.

Any other is a constant among inputs, and an error among outputs. Arrives: example inputs, or a module that is about to
be captured. Leaves: the classes among inputs or outputs that hold tensors, registered for this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
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


@contextlib.contextmanager
def outputs_of(module: torch.nn.Module) -> Iterator[None]:
    """While this is open, a call of the module registers the classes of what it returns, before torch looks at it."""

    def returned(_module: torch.nn.Module, _given: object, outputs: object) -> None:
        if not torch.compiler.is_dynamo_compiling():  # there the hook would be captured, not run
            register(outputs)

    hook = module.register_forward_hook(returned)
    try:
        yield
    finally:
        hook.remove()


def _holds_tensors(leaf: Any) -> bool:
    if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
        return False
    values = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    return any(isinstance(one, torch.Tensor) or _holds_tensors(one) for one in pytree.tree_leaves(values))
