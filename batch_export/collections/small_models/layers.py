"""Which layers of a config are kept: the first of each kind, and what counts them or points at them.

A config's fields arrive; places of layers and counts leave. A kind is what lists with an entry for each layer say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
_OF_A_KIND = re.compile(r"global|window|full")
_MOST_PLACES = 4


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
        "block_config",
    ):
        return True
    if name.endswith("layers_per_block"):
        return True
    return bool(_LAYER_COUNT.search(name) or name.endswith("_layers")) and not _NOT_LAYERS.search(name)


def is_place_of_layers(name: str) -> bool:
    """Whether a field of this name points at layers."""
    return bool(
        re.search(
            r"(layer|block|deepstack_visual|attn|feature|out)_(index(es)?|indices|ids?|idxs?)$|^vision_feature_layer$|"
            r"_block_indexes$|global_attention_blocks|indexes$",
            name,
        )
    )


def kept_layers(fields: Mapping[str, Any], least: int = LAYERS, of_each: int = 1) -> tuple[int, ...]:
    """The first layers of each kind, and as many more as make `least`; empty where layers are not listed by kind."""
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
    first: dict[Any, list[int]] = {}
    for index, kind in enumerate(zip(*lists, strict=True)):
        first.setdefault(str(kind), []).append(index)
    kept = sorted(index for places in first.values() for index in places[:of_each])
    if len(first) > 6:  # no kinds but values of their own
        return tuple(range(least))
    for index in range(count):
        if len(kept) >= least:
            break
        if index not in kept:
            kept.append(index)
    return tuple(sorted(kept))


def places_among(value: Any, count: int, before: int = 0) -> Any:
    """Indices of layers, brought below the number that is left.

    Args:
        value: one index, or a list of them, which keeps its order.
        count: how many layers are left.
        before: how many there were; an index of that many means what the last layer gives out.
    """
    if isinstance(value, int):
        return max(value, -count) if value < 0 else min(value, count - 1)
    if not isinstance(value, list | tuple) or not all(isinstance(item, int) for item in value):
        return value
    known = sorted({item for item in value if item >= 0})
    top = count if before and known and known[-1] >= before else count - 1
    if not known or known[-1] <= top or len(known) > top + 1 or min(value) < 0:
        return type(value)(dict.fromkeys(places_among(item, count) for item in value))
    moved = {old: top - len(known) + 1 + rank for rank, old in enumerate(known)}
    return type(value)(moved[item] for item in value)


def pointed_at(fields: Mapping[str, Any], chosen: Sequence[int] = ()) -> int:
    """How many layers have to stay for each list of places to point at as many of them as it did.

    Lists that say which layers are of another kind (global, windowed) are not such ones, nor long lists.

    Args:
        fields: of a config.
        chosen: stages that a backbone gives out, which are layers where it has as many stages as layers.
    """
    stages = fields.get("stage_names")
    layered = isinstance(stages, list | tuple) and len(stages) == layer_count(fields) + 1
    lists = [list(chosen)] if layered else []
    for name, value in fields.items():
        is_list = isinstance(value, list | tuple) and all(isinstance(item, int) for item in value)
        if is_list and is_place_of_layers(name) and not _OF_A_KIND.search(name):
            lists.append(list(value))
    counts = [len({place for place in places if place >= 0}) for places in lists]
    return max((count for count in counts if count <= _MOST_PLACES), default=0)
