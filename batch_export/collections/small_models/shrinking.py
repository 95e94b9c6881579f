"""A small config of any config class: few layers, narrow, with every kind of layer that it had.

A config arrives as its class makes it; keyword arguments that make a small one leave, nested configs as nested
mappings. Nothing is built here, and no class is known by its name: what a field means is read from its name and from
what it has in common with its neighbours.

Five degrees are offered, since not every architecture can be narrowed by rule: `narrow` (widths, heads, experts, images
and positions), `headed` (the same with heads as wide as they were, where a class has sizes of its own), `plain`
(layers, vocabularies, experts, images; widths as they are), `shallow` (layers and vocabularies), and `whole` (nothing).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from batch_export.collections.small_models import field_names
from batch_export.collections.small_models.configs import (
    beside_defaults,
    chosen_stages,
    every,
    known_fields,
    nested,
    own_width,
    text_of,
    value_of,
)
from batch_export.collections.small_models.layers import (
    COUNTS,
    LAYERS,
    STAGES,
    is_count_of_layers,
    is_place_of_layers,
    kept_layers,
    layer_count,
    places_among,
    pointed_at,
)

DEGREES = ("narrow", "headed", "plain", "shallow", "whole")
"""From the smallest to the config as its class makes it."""

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


FIELDS: dict[str, tuple[int, int]] = {
    "num_time_features": (1, 4),  # models of time series ask for what they have none of
    "index_kpool": (1, 2),
}
"""Fields of some class whose names say nothing: the least and the largest value that a narrow config has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identities:
    """New ids of special tokens: the same one for the same id, in the order in which they are met."""

    known: dict[int, int] = dataclasses.field(default_factory=dict)

    def new(self, old: int) -> int:
        """Returns the small id of an id; negative ones (`none`) stay."""
        if old < 0:
            return old
        return self.known.setdefault(old, min(len(self.known), IDENTITIES - 1))


def shrink(config: Any, degree: str, of_each: int = 1) -> dict[str, Any]:
    """Returns the keyword arguments of `type(config)` that make a small config.

    Args:
        config: a `transformers.PreTrainedConfig` with its default values.
        degree: one of `DEGREES`.
        of_each: how many layers of each kind stay, where there are as many.
    """
    if degree == "whole":
        return {}
    return _Shrinker(config, degree, of_each).arguments(config)


class _Shrinker:
    def __init__(self, config: Any, degree: str, of_each: int) -> None:
        self.degree = degree
        self.of_each = of_each
        self.identities = Identities()
        self.head = max(16, min(128, _old_head(text_of(config)))) if degree == "headed" else HEAD_DIM
        self.heads = 2 if degree == "headed" else HEADS
        self.width = self.heads * self.head
        self.widths = {width for one in every(config) if (width := own_width(one))}

    def arguments(self, config: Any) -> dict[str, Any]:
        """The changed fields of a config, those of the configs within it nested."""
        changed: dict[str, Any] = {}
        inner = dict(nested(config))
        for name, value in inner.items():
            # A mapping is completed from its class' defaults, which are not those that the outer class gave it.
            changed[name] = {"model_type": value.model_type, **beside_defaults(value), **self.arguments(value)}
        fields = {name: value for name, value in vars(config).items() if not name.startswith("_") and name not in inner}
        known = known_fields(config)
        chosen = chosen_stages(config)
        least = max(LAYERS, pointed_at(fields, chosen))
        kept = kept_layers(fields, least, self.of_each)
        count = len(kept) or least
        if chosen and not any(isinstance(fields.get(key), list | tuple) for key in STAGES):
            changed["out_indices"] = places_among(chosen, count, layer_count(fields))
        for name, value in fields.items():
            if name not in known or isinstance(value, bool) or field_names.CONSTANT.search(name):
                continue
            if value is None:
                if name in _UNSET:
                    changed[name] = _UNSET[name]
                elif name == "sliding_window" and any(
                    "sliding" in str(kind) for kind in fields.get("layer_types") or ()
                ):
                    changed[name] = WINDOW
                elif self.degree in ("narrow", "headed") and name in ("head_dim", "num_key_value_heads"):
                    changed[name] = self.head if name == "head_dim" else self.heads // 2
                continue
            new = self._value(name, value, fields, config, kept, count)
            if new != value:
                changed[name] = new
        return changed | _sums_of_heads(fields, changed)

    def _value(
        self, name: str, value: Any, fields: Mapping[str, Any], config: Any, kept: tuple[int, ...], count: int
    ) -> Any:
        if field_names.IDENTITY.search(name):
            return _mapped(value, self.identities.new)
        if field_names.VOCABULARY.search(name) and not field_names.SMALL_VOCABULARY.search(name):
            return _mapped(value, lambda old: min(old, VOCABULARY))
        if isinstance(value, Mapping):
            return self._rotary(value, _old_head(config))
        if field_names.TURNED.search(name) and isinstance(value, list | tuple):
            return self._turned(value, _old_head(config))
        layered = layer_count(fields)
        staged = any(isinstance(fields.get(key), list | tuple) for key in STAGES)
        if staged and isinstance(value, int) and name in COUNTS:
            return value
        if isinstance(value, list | tuple) and layered and len(value) == layered and layered > count and not staged:
            return type(value)(value[index] for index in (kept or range(count)))
        if is_place_of_layers(name) or _is_choice(name, value, layered):
            return places_among(value, count, layered)
        if is_count_of_layers(name):
            return _mapped(value, lambda old: min(old, count if name in COUNTS or not kept else LAYERS))
        if field_names.INTERVAL.search(name) and isinstance(value, int):
            return min(value, LAYERS)
        if field_names.OFFSET.search(name) and isinstance(value, int):
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
        if field_names.EXPERT_COUNT.search(name):
            return _mapped(value, lambda old: min(old, EXPERTS))
        if field_names.CHOSEN.search(name):
            return _mapped(value, lambda old: min(old, 2))
        if name in ("n_group", "num_expert_group", "topk_group", "moe_topk_group"):
            return min(value, 2 if "topk" not in name else 1) if isinstance(value, int) else value
        if name == "image_size" or name.endswith("_image_size"):
            return self._image(value, config)
        if name == "window_size" and staged and isinstance(value, int):
            return min(value, 2)  # the last of four stages has as many patches along a side
        if name == "max_source_positions":
            return min(value, WIDTH)
        if field_names.POSITIONS.search(name) and not name.startswith("num_"):
            return _mapped(value, lambda old: min(old, POSITIONS))
        if field_names.QUERIES.search(name):
            return _mapped(value, lambda old: min(old, WINDOW))
        if field_names.SLIDING.search(name):
            return _mapped(value, lambda old: min(old, WINDOW) if old > 0 else old)
        if self.degree == "plain":
            return value
        return self._narrow(name, value, fields, config)

    def _narrow(self, name: str, value: Any, fields: Mapping[str, Any], config: Any) -> Any:
        if name.startswith("index_topk"):
            return _mapped(value, lambda old: min(old, 4))
        if name in FIELDS and isinstance(value, int):
            return min(max(value, FIELDS[name][0]), FIELDS[name][1])
        if name.endswith("_groups") and isinstance(value, int) and value >= self.width:
            return self._width(value, config)
        if field_names.HEAD_DIM.search(name):
            return _mapped(value, lambda old: min(old, self.head))
        if name == "out_hidden_size":
            return self.width
        if field_names.KEY_HEADS.search(name):
            heads = fields.get("num_attention_heads", fields.get("num_heads", value))
            fewer = isinstance(value, int) and isinstance(heads, int) and value < heads
            return _mapped(value, lambda old: min(old, self.heads // 2 if fewer else self.heads))
        if field_names.FILTERS.search(name):
            return _mapped(value, lambda old: min(old, 8))
        if field_names.STATE_HEADS.search(name) or (
            name == "num_heads" and "expand" in fields and "state_size" in fields
        ):
            return _state_heads(value, fields, self.width // self.head)
        if field_names.HEAD_COUNT.search(name):
            return _by_common_factor(value) if isinstance(value, list | tuple) else min(value, self.heads)
        if field_names.RANK.search(name):
            return _mapped(value, lambda old: min(old, self.width // 2))
        if field_names.WIDTH.search(name) and not field_names.NOT_WIDTH.search(name):
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
        own = own_width(config) or max(self.widths, default=0)
        if own < 16:  # none, or that of a code
            return min(value, self.width)
        if own <= self.width:
            return value
        unit = _unit(config)
        return max(unit, -(-value * self.width // own // unit) * unit)

    def _image(self, value: Any, config: Any) -> Any:
        patch = value_of(config, "patch_size")
        if isinstance(patch, list | tuple):
            patch = max((item for item in patch if isinstance(item, int)), default=None)
        staged = any(isinstance(value_of(config, name), list | tuple) for name in ("depths", "hidden_sizes"))
        wanted = 64 if staged or not isinstance(patch, int) or patch < 7 else patch * 4
        return _mapped(value, lambda old: min(old, wanted))

    def _turned(self, value: Sequence[Any], head: int) -> Any:
        """Widths of a rotary embedding's axes, which share out a head, in pairs."""
        if self.degree not in ("narrow", "headed") or not all(isinstance(one, int) for one in value):
            return value
        if sum(value) != head or head <= self.head:
            return value
        return type(value)(2 * one for one in shared_out(self.head // 2, value))  # type: ignore[call-arg]

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
                changed[name] = shared_out(max(len(entry), sum(entry) * self.head // head), entry)
            elif (
                name in ("short_factor", "long_factor")
                and isinstance(entry, list | tuple)
                and self.degree in ("narrow", "headed")
            ):
                changed[name] = list(entry[: self.head // 2])
            else:
                changed[name] = entry
        return changed


TOKENS = ("token_id", "token_index")
_UNSET: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "prediction_length": 4,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "pad_token_id": 0,
    "mask_token_id": 1,
    "num_experts_per_tok": 2,
    **{f"{what}_{name}": IDENTITIES - 1 - at for at, what in enumerate(("image", "video", "audio")) for name in TOKENS},
}
"""What fields without a value are given, since a class may need them."""


def _sums_of_heads(fields: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, int]:
    """Widths of heads that parts make up (`qk_head_dim` of `qk_nope_head_dim` and `qk_rope_head_dim`), from these."""
    sums: dict[str, int] = {}
    for name, value in fields.items():
        first, found, _ = name.rpartition("_head_dim")
        parts = [other for other in fields if found and other.startswith(first + "_") and other.endswith("_head_dim")]
        parts = [other for other in parts if other != name and isinstance(fields[other], int)]
        if len(parts) > 1 and value == sum(fields[other] for other in parts):
            sums[name] = sum(changed.get(other, fields[other]) for other in parts)
    return sums


def _is_choice(name: str, value: Any, layers: int) -> bool:
    """Whether a list says which of the layers are of a kind, and not how many there are."""
    if not name.endswith("_layers") or not isinstance(value, list | tuple) or len(value) < LAYERS:
        return False
    if not all(isinstance(one, int) and 0 <= one < layers for one in value):
        return False
    return all(before < after for before, after in itertools.pairwise(value))


def _unit(config: Any) -> int:
    """What widths are multiples of: 16, or the number of groups of a group normalisation."""
    groups = [
        value for name, value in vars(config).items() if field_names.GROUPS.search(name) and isinstance(value, int)
    ]
    return max([16, *(value for value in groups if value <= WIDTH)])


def _old_head(config: Any) -> int:
    """The width of a head before it was made small."""
    given = value_of(config, "head_dim") or value_of(config, "attention_head_dim")
    heads = value_of(config, "num_attention_heads")
    if isinstance(given, int) and given > 0:
        return given
    return max(1, own_width(config) // heads) if isinstance(heads, int) and heads > 0 else HEAD_DIM


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


def _mapped(value: Any, change: Any) -> Any:
    """A function of an integer, applied to a value that may be one, or a list of them at any depth."""
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        return value
    if isinstance(value, int):
        return change(value)
    return type(value)(_mapped(item, change) for item in value)


def shared_out(total: int, shares: Sequence[int]) -> list[int]:
    """Returns `total` in shares like the given ones, each at least 1, the first taking what is left over."""
    whole = sum(shares) or 1
    parts = [max(1, share * total // whole) for share in shares]
    parts[0] += total - sum(parts)
    return parts
