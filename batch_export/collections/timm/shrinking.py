"""Fewer blocks, and narrower ones, for the arguments of any class of timm.

Arguments arrive, with the dataclasses, mappings and lists within them; changes leave as `building.laid_over` takes
them. What a field means is read from its name, as for configs (`small_models/shrinking.py`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from batch_export.collections.small_models import shrinking
from batch_export.collections.small_models.layers import LAYERS, is_count_of_layers

DEGREES = ("narrow", "shallow", "whole")
"""From the smallest to the variant as it is registered."""

_REPEATS = ("d", "depth", "depths", "layers", "num_blocks", "repeats")
_STAGES = ("block_args",)
"""Lists of stages, each of which lists its blocks: the first ones are kept."""
_IMAGE = "img_size"
IMAGE = 64
"""The side of an image, where a class is made for one."""
_PATCHES = 4


def changes(arguments: Mapping[str, Any], degree: str) -> dict[str, Any]:
    """Returns what makes arguments small.

    Args:
        arguments: of a class, with its defaults.
        degree: one of `DEGREES`.
    """
    if degree == "whole":
        return {}
    found = {name: change for name, value in arguments.items() if (change := _fewer(name, value)) is not None}
    if degree == "narrow":
        plain = {name: value for name, value in arguments.items() if _is_plain(value)}
        narrow = shrinking.shrink(SimpleNamespace(**plain), "narrow")
        found = {**{name: value for name, value in narrow.items() if _is_plain(value)}, **found}
    if arguments.get(_IMAGE) is not None:
        found[_IMAGE] = _side(arguments)
    written: dict[str, Any] = json.loads(json.dumps(found))
    return written


def _fewer(name: str, value: Any) -> Any:
    """The change that leaves fewer blocks in a value; None where it says nothing of blocks."""
    if isinstance(value, bool) or value is None:
        return None
    counts = name in _REPEATS or is_count_of_layers(name)
    if isinstance(value, int):
        return LAYERS if counts and value > LAYERS else None
    if isinstance(value, list | tuple):
        if counts and value and all(isinstance(one, int) for one in value):
            return [min(one, LAYERS) for one in value] if max(value) > LAYERS else None
        if name in _STAGES and all(isinstance(one, list | tuple) for one in value):
            return [[None] * min(len(one), LAYERS) for one in value]
        entries = [_fewer(name if isinstance(one, list | tuple) else "", one) for one in value]
        return entries if any(one is not None for one in entries) else None
    fields: Mapping[str, Any] = {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, Mapping):
        fields = {key: one for key, one in value.items() if isinstance(key, str)}
    inner = {key: change for key, one in fields.items() if (change := _fewer(key, one)) is not None}
    return inner or None


def _side(arguments: Mapping[str, Any]) -> int:
    patch = arguments.get("patch_size")
    return patch * _PATCHES if isinstance(patch, int) and patch * _PATCHES > IMAGE else IMAGE


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, int | float | str)
