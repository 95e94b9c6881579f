"""A class of diffusers' models as a configuration: its defaults made small, latents, texts and times that eager takes.

Runs in a child.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from batch_export.collections.small_models.classes import Classes, describe, import_first
from batch_export.collections.small_models.leaves import Leaf
from batch_export.collections.small_models.signatures import Constant, Option

_TEXT = re.compile(
    r"^(joint_attention|cross_attention|caption|text|text_embed|text_hidden|context|cap_feat|encoder_hid|prompt_embed|"
    r"encoder_hidden|context_in|text_in|txt_in|llm|condition)_?(dim|channels|size|states_dim)$|^encoder_hid_dim$"
)
"""Fields that say how wide a text is."""
_POOLED = re.compile(r"pooled.*(dim|size)$|^(clip_)?embedding_dim$|^projection_class_embeddings_input_dim$")
_CHANNELS = ("in_channels", "num_channels", "in_dim", "latent_channels", "audio_channels", "encoder_in_channels")
_SIDE = 3
"""Of an image whose patches are given as a sequence of nine."""


def options(model: nn.Module, config: Mapping[str, Any], name: str) -> Sequence[Option]:
    """Returns what a parameter of forward may be given."""
    if name in ("sample", "hidden_states", "x", "latents", "z", "z_latent", "latent", "mel", "pixels"):
        return _latents(config)
    if name in ("timestep", "timesteps", "t", "r_timestep", "timestep_r", "timestep_ratio"):
        return [Leaf("int64", ("batch",), 1, 900), Leaf("float32", ("batch",)), Leaf("int64", (), 1, 900)]
    if name in ("encoder_hidden_states", "cap_feats", "text_embeds", "encoder_hidden_states_t5", "clip_text"):
        widths = _widths(config, _TEXT) or _widths(config, _POOLED) or [_inner(config)]
        return [Leaf("float32", ("batch", "target", width)) for width in widths]
    if name.startswith(("pooled_", "clip_text_pooled")) or name in ("image_embeds", "image_embeddings"):
        widths = _widths(config, _POOLED) or _widths(config, _TEXT) or [_inner(config)]
        return [
            *(Leaf("float32", ("batch", width)) for width in widths),
            *(Leaf("float32", ("batch", 5, width)) for width in widths),
        ]
    turned = config.get("axes_dims_rope") or config.get("axes_dim") or (0, 0, 0)
    places = len(turned) if isinstance(turned, list | tuple) else _SIDE
    known: dict[str, Sequence[Option]] = {
        "encoder_attention_mask": [
            Leaf("int64", ("batch", "target"), fill=1),
            Leaf("bool", ("batch", "target"), fill=1),
        ],
        "encoder_hidden_states_mask": [Leaf("int64", ("batch", "target"), fill=1)],
        "attention_mask": [Leaf("int64", ("batch", "seq"), fill=1)],
        "img_ids": [Leaf("float32", ("seq", places)), Leaf("float32", ("batch", "seq", places))],
        "txt_ids": [Leaf("float32", ("target", places)), Leaf("float32", ("batch", "target", places))],
        "guidance": [Leaf("float32", ("batch",))],
        "class_labels": [Leaf("int64", ("batch",), 0, 4), Leaf("float32", ("batch", _inner(config)))],
        "controlnet_cond": [
            Leaf("float32", ("batch", config.get("conditioning_channels") or 3, 8 * _LATENT, 8 * _LATENT)),
            *_latents(config),
        ],
        "conditioning_scale": [Constant(1.0)],
        "num_frames": [Constant(1)],
        "height": [Constant(_SIDE)],
        "width": [Constant(_SIDE)],
        "fps": [Leaf("int64", ("batch",), 1, 30)],
        "added_time_ids": [Leaf("float32", ("batch", 3))],
        "original_size": [Leaf("float32", ("batch", 2))],
        "target_size": [Leaf("float32", ("batch", 2))],
        "crop_coords": [Leaf("float32", ("batch", 2))],
        "position_ids": [Leaf("int64", ("batch", "seq"), 0, 9), Leaf("int64", ("seq", places), 0, 9)],
        "input_ids": [Leaf("int64", ("batch", "seq"), 0, 16)],
        "proj_embedding": [Leaf("float32", ("batch", _number(config, "embedding_dim", "clip_embed_dim") or 64))],
        "image_latents": _latents(config),
        "padding_mask": [Leaf("float32", (1, 1, "height", "width"), fill=0)],
        "control_type": [Leaf("float32", ("batch", _number(config, "num_control_type") or 6))],
        "style": [Leaf("int64", ("batch",), fill=0)],
    }
    return known.get(name, ())


_LATENT = 32


def _latents(config: Mapping[str, Any]) -> list[Option]:
    """Images, videos, sequences of patches and signals with the channels that a config asks for."""
    channels = _number(config, *_CHANNELS) or 3
    return [
        Leaf("float32", ("batch", channels, "height", "width")),
        Leaf("float32", ("batch", channels, "frames", "height", "width")),
        Leaf("float32", ("batch", "seq", channels)),
        Leaf("float32", ("batch", channels, "length")),
        Leaf("float32", ("batch", "frames", channels, "height", "width")),
        Leaf("float32", ("batch", channels, 1, "height", "width")),
    ]


def _widths(config: Mapping[str, Any], pattern: re.Pattern[str]) -> list[int]:
    found = [value for name, value in config.items() if pattern.search(name)]
    return list(dict.fromkeys(one for one in found if isinstance(one, int) and one > 1))


def _inner(config: Mapping[str, Any]) -> int:
    """The width of a model: that of its heads, or its own."""
    heads, wide = _number(config, "num_attention_heads", "num_heads"), _number(config, "attention_head_dim", "head_dim")
    return heads * wide if heads and wide else _number(config, "hidden_size", "dim", "inner_dim") or 64


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    return next((value for name in names if isinstance(value := config.get(name), int) and value > 0), None)


MODELS = Classes(
    library="diffusers",
    module="diffusers.models",
    arguments=(
        {
            "in_channels": 4,
            "out_channels": 4,
            "latent_channels": 4,
            "block_out_channels": [32, 64],
            "layers_per_block": 1,
            "spatial_compression_ratio": 2,
            "sample_size": _LATENT,
            "num_attention_heads": 4,
            "norm_num_groups": 4,
            "cross_attention_dim": 64,
        },
    ),
    options=options,
    wanted=(
        "timestep",
        "encoder_hidden_states",
        "pooled_projections",
        "img_ids",
        "txt_ids",
        "num_frames",
        "height",
        "width",
    ),
    sizes={"height": _LATENT, "width": _LATENT, "frames": 5, "length": 64},
)


def describe_named(name: str) -> dict[str, Any]:
    """Returns the configuration of a model by its name in the collection; raises as `classes.describe` does."""
    return describe(MODELS, name)


def prepare() -> None:
    """Imports what all models need, so that processes forked later have it."""
    import_first(MODELS)
