"""Which layers of a config are kept: the first of each kind, and what counts them or points at them.

A config's fields arrive; places of layers and counts leave. A kind is what lists with an entry for each layer say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LAYERS = 2
STAGES = ("depths", "hidden_sizes", "num_block_repeats", "stage_num_blocks", "stage_out_channels", "embed_dims")
"""Fields that list stages, each of which stays."""
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "decoder_layers", "encoder_layers")
"""Fields that say how many layers there are, the most usual first."""

_LAYER_COUNT = re.compile(
    r"(^|_)(num_(hidden_)?|n_)?(layers?|blocks|depth|stages_depth|repeats)$|^depth$|^n_layers?$|_num_layers$|_depth$"
)
_NOT_LAYERS = re.compile(
    r"feat_extract|nextn|max_window|feature_layer|extract_layer|kv_shared|kv_source|stem|head_depth|sublayers|"
    r"fpn|levels|bottom|encode_proj|conv_pos|rope_scaling|residual_layers|lstm_layers|downsample|upsample|moe_layers"
)


def layer_count(fields: Mapping[str, Any]) -> int:
    """Returns the number of layers that the fields state; 0 where none does."""
    for name in COUNTS:
        value = fields.get(name)
        if isinstance(value, int):
            return value
    return 0


def is_count_of_layers(name: str) -> bool:
    """Whether a field of this name counts layers, or says how many each stage has."""
    if name in (
        "depths",
        "blocks_per_stage",
        "stage_num_blocks",
        "stage_numb_of_layers",
        "num_block_repeats",
        "num_blocks",
    ):
        return True
    return bool(_LAYER_COUNT.search(name) or name.endswith("_layers")) and not _NOT_LAYERS.search(name)


def is_place_of_layers(name: str) -> bool:
    """Whether a field of this name points at layers."""
    return bool(
        re.search(
            r"(layer|block|deepstack_visual|attn|feature)_(index(es)?|indices|ids?|idxs?)$|^vision_feature_layer$|_block_indexes$|global_attention_blocks|indexes$",
            name,
        )
    )


def kept_layers(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """The first layer of each kind, and as many more as make two; empty where the layers are not listed by kind."""
    count = layer_count(fields)
    lists = [
        value
        for name, value in fields.items()
        if isinstance(value, list | tuple)
        and len(value) == count > LAYERS
        and ("type" in name or "layer" in name or "pattern" in name)
    ]
    if not lists:
        return ()
    first: dict[Any, int] = {}
    for index, kind in enumerate(zip(*lists, strict=True)):
        first.setdefault(str(kind), index)
    kept = sorted(first.values())
    if len(kept) > 6:  # no kinds but values of their own
        return tuple(range(LAYERS))
    for index in range(count):
        if len(kept) >= LAYERS:
            break
        if index not in kept:
            kept.append(index)
    return tuple(sorted(kept))


def places_among(value: Any, count: int) -> Any:
    """Indices of layers, brought below the number that is left; a list keeps its order and each index once."""
    if isinstance(value, int):
        return max(value, -count) if value < 0 else min(value, count - 1)
    if isinstance(value, list | tuple) and all(isinstance(item, int) for item in value):
        return type(value)(dict.fromkeys(places_among(item, count) for item in value))
    return value
