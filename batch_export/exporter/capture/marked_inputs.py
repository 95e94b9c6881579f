"""Marks of free axes that example inputs have: by `torch._dynamo.mark_dynamic`, or left there by a capture that failed.

Arrives: inputs. Leaves: the axes that are marked, as a request for those that the model lets be free, since who marked
them is not known; and the same inputs, without marks while they are captured and with their own ones afterwards. torch
takes its marks back only where its capture succeeds, and refuses a model that fixes a marked axis.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree


@contextlib.contextmanager
def marks_put_back(*inputs: object) -> Iterator[None]:
    """While open, the tensors among some inputs have no marks, and on leaving those that they had."""
    tensors = [one for one in pytree.tree_leaves(inputs) if isinstance(one, torch.Tensor)]
    before = [_marks(one) for one in tensors]
    for one, marks in zip(tensors, before, strict=True):
        for name in marks.keys() & vars(one).keys():  # one tensor may be there twice
            delattr(one, name)
    try:
        yield
    finally:
        for one, marks in zip(tensors, before, strict=True):
            for name in _marks(one).keys() - marks.keys():
                delattr(one, name)
            for name, mark in marks.items():
                setattr(one, name, mark)


def asked_by_marks(given: object, inputs: object, dynamic_shapes: object) -> object:
    """The dynamic shapes that were asked for; where none were, the marked axes, each as `Dim.AUTO`.

    Args:
        given: inputs as the caller has them.
        inputs: the same, some of whose tensors may be copies.
        dynamic_shapes: what was asked for, or None.
    """
    asked = torch.export.ShapesCollection()
    is_marked = False
    for marked, one in zip(pytree.tree_leaves(given), pytree.tree_leaves(inputs), strict=True):
        if dynamic_shapes is None and isinstance(one, torch.Tensor) and (places := _free(marked)):
            asked[one] = dict.fromkeys(sorted(places), torch.export.Dim.AUTO)
            is_marked = True
    return asked if is_marked else dynamic_shapes


def _free(tensor: torch.Tensor) -> set[int]:
    names = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices")
    return set().union(*(getattr(tensor, name, ()) for name in names))


def _marks(tensor: torch.Tensor) -> dict[str, object]:
    """What torch notes of axes: sets of places, which it adds to, and truth values."""
    found = {name: value for name, value in vars(tensor).items() if "_dynamo" in name or name == "_specialize_on"}
    return {name: type(value)(value) if isinstance(value, (set, dict)) else value for name, value in found.items()}
