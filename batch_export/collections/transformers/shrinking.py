"""A small config of any config class of transformers: few layers, narrow, with every kind of layer that it had.

A config arrives as its class makes it; keyword arguments that make a small one leave, nested configs as nested
mappings. Nothing is built here, and no class is known by its name: what a field means is read from its name and from
what it has in common with its neighbours.

Five degrees are offered, since not every architecture can be narrowed by rule: `narrow` (widths, heads, experts, images
and positions), `headed` (the same with heads as wide as they were, where a class has sizes of its own), `plain`
(layers, vocabularies, experts, images; widths as they are), `shallow` (layers and vocabularies), and `whole` (nothing).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DEGREES = ("narrow", "headed", "plain", "shallow", "whole")
"""From the smallest to the config as its class makes it."""

LAYERS = 2
WIDTH = 64
HEADS = 4
HEAD_DIM = WIDTH // HEADS
EXPERTS = 4
VOCABULARY = 128
POSITIONS = 512
WINDOW = 8
"""A sliding window that the check sizes reach beyond."""
IDENTITIES = 32
"""Ids of special tokens lie below this one, drawn ids above."""

_LAYER_COUNT = re.compile(
    r"(^|_)(num_(hidden_)?|n_)?(layers?|blocks|depth|stages_depth|repeats)$|^depth$|^n_layers?$|_num_layers$|_depth$"
)
_NOT_LAYERS = re.compile(
    r"feat_extract|nextn|max_window|feature_layer|extract_layer|kv_shared|kv_source|stem|head_depth|sublayers|"
    r"fpn|levels|bottom|encode_proj|conv_pos|rope_scaling|residual_layers|lstm_layers|downsample|upsample|moe_layers"
)
_INTERVAL = re.compile(r"(interval|period|frequency|sparse_step|every_n(_layers)?|_pattern|layer_freq)$")
_OFFSET = re.compile(r"_offset$")
_HEAD_COUNT = re.compile(r"(^|_)(num_|n_)?(attention_)?heads?$|^n_heads?$|_heads$")
_KEY_HEADS = re.compile(r"(key_value|kv|key)_heads$|n_head_kv")
_STATE_HEADS = re.compile(r"^(mamba|ssm|ssd)_(n|num)_heads$")
_FILTERS = re.compile(r"^(n|num)_filters$")
_GROUPS = re.compile(r"(^|_)num_groups$|^n_groups$|norm_groups$")
_HEAD_DIM = re.compile(r"(head_dim|head_size|d_kv|d_head|head_width|kv_channels|rotary_dim|rotary_ndims)$")
_WIDTH = re.compile(
    r"(hidden|embed|embd|embedding|embeddings|intermediate|ffn|projection|proj|projector|model|mlp|channels?|inner|"
    r"latent|lora|fusion|output|expert|shared|stem|neck|adapter|codevector|visual|text|vision|audio|encoder|decoder|"
    r"qformer|dense|bottleneck|mask|feature|backbone|per_layer|per_layer_input|lru|attention|moe|tdnn|conv|tokens?)"
    r"_?(hidden)?_?(size|sizes|dim|dims|width|channels|rank)(_per_layer_input|_per_stage)?$"
    r"|^(dim|d_model|d_ff|d_inner|n_embd|n_inner|d_embed|embed_dim|emb_dim|d_latents|d_hidden|lru_width|qk_dim|embed_dims|channels|mlp_dim"
    r"|output_channels|out_channels|hidden_sizes|conv_dim|attention_dim)$|hidden_size_per_layer_input$"
)
_NOT_WIDTH = re.compile(
    r"vocab|kernel|window|patch|image|chunk|block|stride|position|codebook_size|token_id|group|bucket"
)
_RANK = re.compile(r"_lora_rank$|^(q|kv|o)_rank$|lora_dim$")
_EXPERT_COUNT = re.compile(
    r"^(n_routed_experts|num_experts|num_local_experts|moe_num_experts|n_experts|.*_num_experts)$"
)
_CHOSEN = re.compile(
    r"(experts?_per_tok(en)?|moe_top_?k|expert_top_?k|top_k_experts|experts_top_k|moe_k|router_topk|top_k)$"
)
_VOCABULARY = re.compile(
    r"vocab_size|vocabulary_size|vocab_sizes|^vocab$|^n_words$|_vocab$|vocab_size_per_layer_input$|codebook_size$|^num_embeddings$"
)
_SMALL_VOCABULARY = re.compile(r"^type_vocab|type_vocab_size")
_POSITIONS = re.compile(
    r"position_embeddings$|positions$|^n_ctx$|seq_len(gth)?$|sequence_length$|context_length$|max_length$"
)
_SLIDING = re.compile(r"^(sliding_window(_size)?|local_attention|attention_chunk_size|attention_window)$")
_QUERIES = re.compile(r"^(num_queries|num_object_queries|num_query|two_stage_num_proposals|topk_queries)$")
_IDENTITY = re.compile(
    r"(token|tok)_(id|ids|index)$|_token_ids?$|(^|_)(pad|bos|eos|sep|cls|mask|boi|eoi|unk|blank)_(idx|index|id)$"
)
_CONSTANT = re.compile(r"num_labels|chunk_size_feed_forward")


@dataclasses.dataclass(frozen=True, slots=True)
class Identities:
    """New ids of special tokens: the same one for the same id, in the order in which they are met."""

    known: dict[int, int] = dataclasses.field(default_factory=dict)

    def new(self, old: int) -> int:
        """Returns the small id of an id; negative ones (`none`) stay."""
        if old < 0:
            return old
        return self.known.setdefault(old, min(len(self.known), IDENTITIES - 1))


def shrink(config: Any, degree: str) -> dict[str, Any]:
    """Returns the keyword arguments of `type(config)` that make a small config.

    Args:
        config: a `transformers.PreTrainedConfig` with its default values.
        degree: one of `DEGREES`.
    """
    if degree == "whole":
        return {}
    return _Shrinker(config, degree).arguments(config)


def value_of(config: Any, name: str) -> Any:
    """A field of a config by its own or its standard name; None where it has none, or one of its own in each layer."""
    try:
        return getattr(config, name, None)
    except Exception:  # whatever a config raises about a field that it has no single value for
        return None


def nested(config: Any) -> Iterator[tuple[str, Any]]:
    """Yields the configs within a config, with their fields' names."""
    for name, value in vars(config).items():
        if not name.startswith("_") and hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield name, value


class _Shrinker:
    def __init__(self, config: Any, degree: str) -> None:
        self.degree = degree
        self.identities = Identities()
        self.head = max(16, min(128, _old_head(_text(config)))) if degree == "headed" else HEAD_DIM
        self.heads = 2 if degree == "headed" else HEADS
        self.width = self.heads * self.head
        self.widths = {width for one in _all(config) if (width := _own_width(one))}

    def arguments(self, config: Any) -> dict[str, Any]:
        """The changed fields of a config, those of the configs within it nested."""
        changed: dict[str, Any] = {}
        inner = dict(nested(config))
        for name, value in inner.items():
            # A mapping is completed from its class' defaults, which are not those that the outer class gave it.
            changed[name] = {"model_type": value.model_type, **_beside_defaults(value), **self.arguments(value)}
        fields = {name: value for name, value in vars(config).items() if not name.startswith("_") and name not in inner}
        known = {item.name for item in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else set(fields)
        kept = _kept_layers(fields)
        count = len(kept) if kept else LAYERS
        for name, value in fields.items():
            if name not in known or isinstance(value, bool) or _CONSTANT.search(name):
                continue
            if value is None:
                if name in _UNSET:
                    changed[name] = _UNSET[name]
                elif self.degree in ("narrow", "headed") and name in ("head_dim", "num_key_value_heads"):
                    changed[name] = self.head if name == "head_dim" else self.heads // 2
                continue
            new = self._value(name, value, fields, config, kept, count)
            if new != value:
                changed[name] = new
        return changed

    def _value(
        self, name: str, value: Any, fields: Mapping[str, Any], config: Any, kept: tuple[int, ...], count: int
    ) -> Any:
        if _IDENTITY.search(name):
            return _mapped(value, self.identities.new)
        if _VOCABULARY.search(name) and not _SMALL_VOCABULARY.search(name):
            return _mapped(value, lambda old: min(old, VOCABULARY))
        if isinstance(value, Mapping):
            return self._rotary(value, _old_head(config))
        layered = _layer_count(fields)
        staged = any(isinstance(fields.get(key), list | tuple) for key in _STAGES)
        if staged and isinstance(value, int) and name in _COUNTS:
            return value
        if isinstance(value, list | tuple) and layered and len(value) == layered and layered > count and not staged:
            return type(value)(value[index] for index in (kept or range(count)))
        if _is_count_of_layers(name):
            return _mapped(value, lambda old: min(old, count if name in _COUNTS or not kept else LAYERS))
        if _is_place_of_layers(name):
            return _places(value, count)
        if _INTERVAL.search(name) and isinstance(value, int):
            return min(value, LAYERS)
        if _OFFSET.search(name) and isinstance(value, int):
            return min(value, LAYERS - 1)
        if name in (
            "first_k_dense_replace",
            "max_window_layers",
            "num_kv_shared_layers",
            "num_dense_layers",
            "moe_layer_start_index",
        ):
            return min(value, 1) if isinstance(value, int) else value
        if self.degree == "shallow":
            return value
        if _EXPERT_COUNT.search(name):
            return _mapped(value, lambda old: min(old, EXPERTS))
        if _CHOSEN.search(name):
            return _mapped(value, lambda old: min(old, 2))
        if name in ("n_group", "num_expert_group", "topk_group", "moe_topk_group"):
            return min(value, 2 if "topk" not in name else 1) if isinstance(value, int) else value
        if name == "image_size" or name.endswith("_image_size"):
            return self._image(value, config)
        if name == "window_size" and staged and isinstance(value, int):
            return min(value, 2)  # the last of four stages has as many patches along a side
        if name == "max_source_positions":
            return min(value, WIDTH)
        if _POSITIONS.search(name) and not name.startswith("num_"):
            return _mapped(value, lambda old: min(old, POSITIONS))
        if _QUERIES.search(name):
            return _mapped(value, lambda old: min(old, WINDOW))
        if _SLIDING.search(name):
            return _mapped(value, lambda old: min(old, WINDOW) if old > 0 else old)
        if self.degree == "plain":
            return value
        return self._narrow(name, value, fields, config)

    def _narrow(self, name: str, value: Any, fields: Mapping[str, Any], config: Any) -> Any:
        if name.startswith("index_topk"):
            return _mapped(value, lambda old: min(old, 4))
        if name == "num_time_features":  # models of time series ask for what they have none of
            return max(1, value)
        if name == "index_kpool":
            return min(value, 2)
        if name.endswith("_groups") and isinstance(value, int) and value >= self.width:
            return self._width(value, config)
        if _HEAD_DIM.search(name):
            return _mapped(value, lambda old: min(old, self.head))
        if name == "out_hidden_size":
            return self.width
        if _KEY_HEADS.search(name):
            heads = fields.get("num_attention_heads", fields.get("num_heads", value))
            fewer = isinstance(value, int) and isinstance(heads, int) and value < heads
            return _mapped(value, lambda old: min(old, self.heads // 2 if fewer else self.heads))
        if _FILTERS.search(name):
            return _mapped(value, lambda old: min(old, 8))
        if _STATE_HEADS.search(name) or (name == "num_heads" and "expand" in fields and "state_size" in fields):
            return _state_heads(value, fields, self.width // self.head)
        if _HEAD_COUNT.search(name):
            return _by_common_factor(value) if isinstance(value, list | tuple) else min(value, self.heads)
        if _RANK.search(name):
            return _mapped(value, lambda old: min(old, self.width // 2))
        if _WIDTH.search(name) and not _NOT_WIDTH.search(name):
            return self._width(value, config)
        return value

    def _width(self, value: Any, config: Any) -> Any:
        if isinstance(value, list | tuple):
            numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
            if len(numbers) < len(value) or not numbers or min(numbers) < 16:
                return value
            unit = _unit(config)
            factor = max(1, min(numbers) // unit)
            while any(item % factor or (unit > 16 and item // factor % unit) for item in numbers) and factor > 1:
                factor -= 1
            return type(value)(item // factor for item in numbers)
        if not isinstance(value, int) or value < self.width:
            return value
        if value in self.widths:
            return self.width
        own = _own_width(config) or max(self.widths, default=0)
        if not own or own <= self.width:
            return min(value, self.width) if not own else value
        unit = _unit(config)
        return max(unit, -(-value * self.width // own // unit) * unit)

    def _image(self, value: Any, config: Any) -> Any:
        patch = value_of(config, "patch_size")
        if isinstance(patch, list | tuple):
            patch = max((item for item in patch if isinstance(item, int)), default=None)
        staged = any(isinstance(value_of(config, name), list | tuple) for name in ("depths", "hidden_sizes"))
        wanted = 64 if staged or not isinstance(patch, int) or patch < 7 else patch * 4
        return _mapped(value, lambda old: min(old, wanted))

    def _rotary(self, value: Mapping[str, Any], head: int) -> Any:
        """Sections of a rotary embedding share out half of the head, or of the part of it that is turned."""
        changed = {}
        for name, entry in value.items():
            if isinstance(entry, Mapping):
                changed[name] = self._rotary(entry, head)
            elif (
                str(name).endswith("section")
                and isinstance(entry, list | tuple)
                and self.degree in ("narrow", "headed")
            ):
                changed[name] = _shared_out(max(len(entry), sum(entry) * self.head // head), entry)
            elif (
                name in ("short_factor", "long_factor")
                and isinstance(entry, list | tuple)
                and self.degree in ("narrow", "headed")
            ):
                changed[name] = list(entry[: self.head // 2])
            else:
                changed[name] = entry
        return changed


_UNSET: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "prediction_length": 4,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "pad_token_id": 0,
    "mask_token_id": 1,
    "num_experts_per_tok": 2,
}
"""What fields without a value are given, since a class may need them."""

_STAGES = ("depths", "hidden_sizes", "num_block_repeats", "stage_num_blocks", "stage_out_channels", "embed_dims")
_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "decoder_layers", "encoder_layers")


def _all(config: Any) -> Iterator[Any]:
    yield config
    for _, inner in nested(config):
        yield from _all(inner)


def _text(config: Any) -> Any:
    """The config of the text within a config, or itself."""
    return next((inner for name, inner in nested(config) if name == "text_config"), config)


def _own_width(config: Any) -> int:
    """A config's own width, by its standard name or one of those that stand for it."""
    for name in ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "hidden_dim", "width"):
        value = value_of(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _unit(config: Any) -> int:
    """What widths are multiples of: 16, or the number of groups of a group normalisation."""
    groups = [value for name, value in vars(config).items() if _GROUPS.search(name) and isinstance(value, int)]
    return max([16, *(value for value in groups if value <= WIDTH)])


def _beside_defaults(config: Any) -> dict[str, Any]:
    """The fields of a config that its class alone would not give it."""
    try:
        default = vars(type(config)())
    except Exception:  # a class that needs arguments
        default = {}
    known = (
        {item.name for item in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else set(vars(config))
    )
    return {
        name: value
        for name, value in vars(config).items()
        if name in known and name[:1] != "_" and _plain(value) and default.get(name, _MISSING) != value
    }


_MISSING = object()


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return isinstance(value, str | int | float | bool)


def _old_head(config: Any) -> int:
    """The width of a head before it was made small."""
    given = value_of(config, "head_dim")
    heads = value_of(config, "num_attention_heads")
    if isinstance(given, int) and given > 0:
        return given
    return max(1, _own_width(config) // heads) if isinstance(heads, int) and heads > 0 else HEAD_DIM


def _state_heads(value: Any, fields: Mapping[str, Any], heads: int) -> Any:
    """Heads of a state-space layer, whose widths make up the expanded width."""
    expand = next(
        (fields[name] for name in ("mamba_expand", "expand", "ssm_expand", "mamba_ratio") if fields.get(name)), 2
    )
    return min(value, int(expand * heads)) if isinstance(value, int) else value


def _by_common_factor(value: Any) -> Any:
    """Heads per stage, divided by what they have in common."""
    if not all(isinstance(item, int) for item in value) or not value:
        return value
    factor = math.gcd(*value)
    return type(value)(item // (factor or 1) for item in value)


def _layer_count(fields: Mapping[str, Any]) -> int:
    for name in _COUNTS:
        value = fields.get(name)
        if isinstance(value, int):
            return value
    return 0


def _is_count_of_layers(name: str) -> bool:
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


def _is_place_of_layers(name: str) -> bool:
    return bool(
        re.search(
            r"(layer|block|deepstack_visual|attn|feature)_(index(es)?|indices|ids?|idxs?)$|^vision_feature_layer$|_block_indexes$|global_attention_blocks|indexes$",
            name,
        )
    )


def _kept_layers(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """The first layer of each kind, and as many more as make two; empty where the layers are not listed by kind."""
    count = _layer_count(fields)
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


def _places(value: Any, count: int) -> Any:
    """Indices of layers, brought below the number that is left; a list keeps its order and each index once."""
    if isinstance(value, int):
        return max(value, -count) if value < 0 else min(value, count - 1)
    if isinstance(value, list | tuple) and all(isinstance(item, int) for item in value):
        return type(value)(dict.fromkeys(_places(item, count) for item in value))
    return value


def _mapped(value: Any, change: Any) -> Any:
    """A function of an integer, applied to a value that may be one, or a list of them at any depth."""
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        return value
    if isinstance(value, int):
        return change(value)
    return type(value)(_mapped(item, change) for item in value)


def _shared_out(total: int, shares: Sequence[int]) -> list[int]:
    """`total` in shares like the given ones, each at least 1, the first taking what is left over."""
    whole = sum(shares) or 1
    parts = [max(1, share * total // whole) for share in shares]
    parts[0] += total - sum(parts)
    return parts
