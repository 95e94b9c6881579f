"""Axes of one name are one size from the beginning of a capture.

Arrives: the axes that were asked for. Leaves: a context in which torch knows, before the model runs, that those of one
name are equal; otherwise it learns so where they meet, and what was computed of each before (`-n % 4` of one beside
the padded length of another) stays two expressions that nothing brings together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import torch
import torch.export._trace
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.dynamic_shapes import DynamicShapes

_Axis = tuple[int, int]
"""A tensor's place among the flattened inputs, and one of its axes."""
_MAKER = "make_fake_inputs"


@contextlib.contextmanager
def one_size_per_name(asked: DynamicShapes) -> Iterator[None]:
    """While open, torch takes axes of one name for one size; a torch that makes its inputs otherwise is as it is.

    Args:
        asked: the axes, with their names; those without one stay apart.
    """
    groups = [one for one in _by_name(asked).values() if len(one) > 1]
    own = getattr(torch.export._trace, _MAKER, None)
    if own is None or not groups:
        yield
        return
    with patch.object(torch.export._trace, _MAKER, _tying(own, groups)):
        yield


def _by_name(asked: DynamicShapes) -> Mapping[str, list[_Axis]]:
    found: dict[str, list[_Axis]] = {}
    for where, names in zip(asked.forms, asked.names, strict=True):
        for axis, name in names.items():
            if name and where in asked.positions:
                found.setdefault(name, []).append((asked.positions[where], axis))
    return found


def _tying(own: Callable[..., Any], groups: Sequence[Sequence[_Axis]]) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        made = own(*args, **kwargs)
        leaves = pytree.tree_leaves(made[1:3])  # the inputs by position and by keyword
        for (place, axis), *others in groups:
            for one in others:
                _tie(leaves, (place, axis), one)
        return made

    return make


def _tie(leaves: Sequence[object], one: _Axis, other: _Axis) -> None:
    sizes = [_size(leaves, at) for at in (one, other)]
    hints = [size.node.hint for size in sizes if isinstance(size, torch.SymInt)]
    if len(hints) == 2 and hints[0] == hints[1]:
        bool(sizes[0] == sizes[1])  # asking makes it a guard, by which the one stands for the other


def _size(leaves: Sequence[object], at: _Axis) -> int | torch.SymInt | None:
    place, axis = at
    tensor = leaves[place] if place < len(leaves) else None
    return tensor.shape[axis] if isinstance(tensor, torch.Tensor) and axis < tensor.dim() else None
