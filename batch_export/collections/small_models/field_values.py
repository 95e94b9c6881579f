"""Values that a field of a config may have in place of its own: by its name, by another size, or by a smaller image.

Plain values arrive and leave; no config is changed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batch_export.collections.small_models import field_names
from batch_export.collections.small_models.configs import own_width, value_of
from batch_export.collections.small_models.layers import LAYERS
from batch_export.collections.small_models.shrinking import EXPERTS, HEADS, WIDTH, WINDOW


def list_of(value: Any) -> list[Any]:
    """Returns a list or tuple as a list; else an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def number_for(name: str) -> int | None:
    """Returns what a field of a name may be given where it has to be a number."""
    for pattern, value in (
        (field_names.EXPERT_COUNT, EXPERTS),
        (field_names.CHOSEN, 2),
        (field_names.KEY_HEADS, HEADS // 2),
        (field_names.HEAD_COUNT, HEADS),
        (field_names.HEAD_DIM, WIDTH // HEADS),
        (field_names.SLIDING, WINDOW),
        (field_names.WIDTH, WIDTH),
    ):
        if pattern.search(name):
            return value
    if name.startswith("clip"):  # bounds of activations
        return WINDOW
    return LAYERS if name.startswith(("num_", "n_")) else None


def head_of(config: Any) -> int:
    """Returns the width of a config's heads."""
    given, heads = value_of(config, "head_dim"), value_of(config, "num_attention_heads")
    if isinstance(given, int) and given > 0:
        return given
    return own_width(config) // heads if isinstance(heads, int) and heads > 0 else WIDTH // HEADS


def with_other(value: Any, old: int, new: int) -> list[Any]:
    """Returns a value with one size in place of another: a number, or a list, scaled or changed in one place."""
    if value == old and isinstance(value, int):
        return [new]
    if not isinstance(value, list | tuple) or old not in value:
        return []
    items = list(value)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in items):
        return []
    found = [[one * new // old for one in items]] if all(one * new % old == 0 for one in items) else []
    at = items.index(old)
    return [*found, [*items[:at], new, *items[at + 1 :]]]


def points_past(value: Any, count: int) -> bool:
    """Returns whether a list of indices has one that a list of so many entries has not."""
    items = list_of(value)
    return bool(items) and all(type(one) is int for one in items) and max(items) > count > 0


def side(value: Any) -> int:
    """Returns the first side of an image's size; 0 where it is no number."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return first if isinstance(first, int) else 0


def holds(value: Any, shape: Sequence[int]) -> bool:
    """Returns whether a shape has the entries of a value, or of a list within it, beside one another."""
    items = list_of(value)
    if items and all(isinstance(one, int) for one in items):
        return any(list(shape[at : at + len(items)]) == items for at in range(len(shape)))
    return any(holds(one, shape) for one in items)


def divided(value: Any, ratio: int) -> Any:
    """Returns whole numbers at any depth of lists, divided; None where that leaves a rest."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value // ratio if value % ratio == 0 else None
    if not isinstance(value, list | tuple):
        return None
    parts = [divided(one, ratio) for one in value]
    return None if any(one is None for one in parts) else parts
