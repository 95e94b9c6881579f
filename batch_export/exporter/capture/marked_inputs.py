"""Marks that torch puts on example inputs while it captures: a later capture of the same tensors is free of them.

Arrives: inputs. Leaves: the same, with the marks of axes that they had before: torch takes its own back only where its
capture succeeds, and one that is left makes an axis free in the next capture, or that capture fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree


@contextlib.contextmanager
def marks_put_back(*inputs: object) -> Iterator[None]:
    """On leaving, the tensors among some inputs have the marks that they had."""
    tensors = [one for one in pytree.tree_leaves(inputs) if isinstance(one, torch.Tensor)]
    before = [_marks(one) for one in tensors]
    try:
        yield
    finally:
        for one, marks in zip(tensors, before, strict=True):
            for name in _marks(one).keys() - marks.keys():
                delattr(one, name)
            for name, mark in marks.items():
                setattr(one, name, mark)


def _marks(tensor: torch.Tensor) -> dict[str, object]:
    """What torch notes of axes: sets of places, which it adds to, and truth values."""
    found = {name: value for name, value in vars(tensor).items() if "_dynamo" in name or name == "_specialize_on"}
    return {name: type(value)(value) if isinstance(value, (set, dict)) else value for name, value in found.items()}
