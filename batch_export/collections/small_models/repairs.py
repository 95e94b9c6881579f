"""A guess at a model's inputs with another shape for one of them, by what the error at the first shape says.

An attempt and the error that it ended in arrive; another attempt leaves, or none. Nothing is called here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from batch_export.collections.small_models.errors_read import (
    channels_said,
    image_said,
    is_too_small,
    sides_said,
    width_said,
)
from batch_export.collections.small_models.leaves import EXAMPLES, Attempt, Leaf

_SIDES = ("height", "width", "depth", "rows", "columns", "length", "samples")
_LARGEST = 1024
_ROW = 3
"""Axes of a sequence of features."""


def repaired(attempt: Attempt, error: BaseException) -> Attempt | None:
    """Returns the attempt with what the error says of a shape; None where it says nothing of an input's own.

    A layer that wants another last axis than an input has gets as many features, in a sequence where they were none; a
    convolution gets the channels that it wants. Images that the model puts beside one another are made smaller by as
    much as they are then too large.
    """
    text = str(error)
    drawn = {
        name: leaf for name, leaf in attempt.leaves.items() if leaf.dtype.startswith("float") and leaf.fill is None
    }
    sizes = {
        name: [attempt.sizes.get(one, 0) if isinstance(one, str) else one for one in leaf.shape]
        for name, leaf in drawn.items()
    }
    said = width_said(text, sizes)
    if said is not None:
        name, wide = said
        leaf = drawn[name]
        if leaf.shape[-1] == wide and len(leaf.shape) == _ROW:
            return None
        if isinstance(leaf.shape[-1], int):
            return _with(attempt, {name: Leaf(leaf.dtype, (*leaf.shape[:-1], wide))})
        return _with(attempt, {name: Leaf(leaf.dtype, (leaf.shape[0], "frames", wide))})
    channels = channels_said(text, sizes)
    if channels is not None:
        name, wide = channels
        first, _, *rest = drawn[name].shape
        return _with(attempt, {name: Leaf(drawn[name].dtype, (first, wide, *rest))})
    sides = sides_said(text)
    if sides is not None and {"height", "width"} <= set(attempt.sizes):
        sized = {**attempt.sizes, "height": sides[0], "width": sides[1]}
        return None if sized == attempt.sizes else replace(attempt, sizes=sized)
    if is_too_small(text):
        larger = {name: 2 * size for name, size in attempt.sizes.items() if name in _SIDES and size < _LARGEST}
        return replace(attempt, sizes={**attempt.sizes, **larger}) if larger else None
    image_sizes = image_said(text)
    return None if image_sizes is None else _scaled(attempt, *image_sizes)


def _scaled(attempt: Attempt, given: tuple[int, int], wanted: tuple[int, int]) -> Attempt | None:
    sizes = dict(attempt.sizes)
    for name, there, size in zip(("height", "width"), given, wanted, strict=True):
        if name not in sizes or sizes[name] * size % there:
            return None
        sizes[name] = sizes[name] * size // there
    return None if sizes == attempt.sizes else replace(attempt, sizes=sizes)


def _with(attempt: Attempt, leaves: Mapping[str, Leaf]) -> Attempt:
    merged = {name: leaves.get(name, leaf) for name, leaf in attempt.leaves.items()}
    named = dict.fromkeys(entry for leaf in merged.values() for entry in leaf.shape if isinstance(entry, str))
    sizes = {name: attempt.sizes.get(name, EXAMPLES.get(name, 0)) for name in named}
    return replace(attempt, leaves=merged, sizes=sizes)
