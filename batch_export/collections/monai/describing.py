"""A class of MONAI's networks as a configuration: few narrow levels, and images of two dimensions, else of three.

Runs in a child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from batch_export.collections.small_models.classes import Classes, describe, import_first
from batch_export.collections.small_models.leaves import Entry, Leaf
from batch_export.collections.small_models.signatures import Option

_SIDE = 64
_PATCH = 16
_SHORT = 32
"""The side of a volume."""


def arguments(dimensions: int, strides: Sequence[int], backbone: str, block: str) -> dict[str, Any]:
    """Returns values by the names of parameters of `__init__`, for images of so many dimensions."""
    side = _SIDE if dimensions == 2 else _SHORT
    image = [side] * dimensions
    return {
        "spatial_dims": dimensions,
        "in_channels": 1,
        "out_channels": 2,
        "num_classes": 2,
        "classes": 2,
        "channels": [8, 16, 32],
        "strides": list(strides),
        "kernel_size": [3] * len(strides),
        "upsample_kernel_size": list(strides)[1:],
        "num_channel_initial": 8,
        "extract_levels": [0, 1, 2],
        "depth": 2,
        "in_shape": [1, *image],
        "out_shape": [2],
        "input_shape": image,
        "img_size": image,
        "image_size": image,
        "input_image_size": image,
        "patch_size": [_PATCH] * dimensions,
        "hidden_size": 64 if dimensions == 2 else 48,
        "mlp_dim": 128,
        "num_layers": 2,
        "num_heads": 4,
        "latent_size": 8,
        "latent_shape": [8],
        "start_shape": [8] * (dimensions + 1),
        "hidden_channels": [16, 8],
        "encode_channels": [16, 8],
        "decode_channels": [8, 16],
        "label_nc": 3,
        "num_tokens": 32,
        "max_seq_len": 64,
        "attn_layers_dim": 64,
        "attn_layers_depth": 2,
        "attn_layers_heads": 4,
        "block": block,
        "layers": [1, 1, 1, 1],
        "block_inplanes": [8, 16, 32, 64],
        "in_planes": 8,
        "planes": 8,
        "dim": 16,
        "groups": 1,
        "reduction": 4,
        "num_d": 2,
        "num_layers_d": 2,
        "unet_out_channels": 8,
        "final_conv_channels": [8],
        "num_language_layers": 2,
        "num_vision_layers": 2,
        "num_mixed_layers": 2,
        "model_name": backbone,
        "backbone": backbone,
        "pretrained": False,
    }


_SINGLE = {"channels": 8, "image_size": _SIDE, "img_size": _SIDE, "patch_size": _PATCH}
"""One number where most classes take one for each level or dimension."""


def options(model: nn.Module, given: Mapping[str, Any], name: str) -> Sequence[Option]:
    """Returns what a parameter of forward may be given."""
    named = (given.get(one) for one in ("in_channels", "n_input_channels", "num_channels", "in_planes"))
    channels = next((one for one in named if isinstance(one, int)), 1)
    dimensions = given.get("spatial_dims") if isinstance(given.get("spatial_dims"), int) else 2
    flat = [Leaf("float32", ("batch", channels, "height", "width")), Leaf("float32", ("batch", 3, "height", "width"))]
    deep: list[Option] = [Leaf("float32", ("batch", channels, "depth", "rows", "columns"))]
    images: list[Option] = [*flat, *deep] if dimensions == 2 else [*deep, *flat]
    images.append(Leaf("float32", ("batch", channels)))
    if name in ("x", "inputs", "input", "x_in", "images", "input_images", "i", "concatenated_pairs", "moving", "fixed"):
        if isinstance(given.get("num_tokens"), int):
            return [Leaf("int64", ("batch", "seq"), 0, given["num_tokens"])]
        return images
    image: tuple[Entry, ...] = ("height", "width") if dimensions == 2 else ("depth", "rows", "columns")
    known: dict[str, Sequence[Option]] = {
        "timesteps": [Leaf("int64", ("batch",), 1, 900)],
        "seg": [Leaf("float32", ("batch", given.get("label_nc", 3), *image))],
        "controlnet_cond": [
            Leaf("float32", ("batch", given.get("conditioning_embedding_in_channels", 1), *image)),
            Leaf("float32", ("batch", given.get("conditioning_embedding_in_channels", 1), *(512,) * len(image))),
        ],
        "context": [Leaf("float32", ("batch", 5, given.get("cross_attention_dim") or 3))],
        "class_labels": [Leaf("int64", ("batch",), 0, 2)],
        "hidden_states": [Leaf("float32", ("batch", "seq", given.get("hidden_size", 64)))],
        "input_ids": [Leaf("int64", ("batch", "seq"), 0, 32)],
    }
    return known.get(name, ())


NETWORKS = Classes(
    library="monai",
    module="monai.networks.nets",
    arguments=[
        {**arguments(dimensions, strides, backbone, block), **single}
        for dimensions in (2, 3)
        for strides, backbone, block, single in (
            ([2, 2, 2], "efficientnet-b0", "basic", {}),
            ([1, 2, 2], "resnet18", "se_bottleneck", _SINGLE),
            ([2, 2], "resnet10", "bottleneck", {"in_channels": 2, "z_dim": 8}),
        )
    ],
    options=options,
    overriding=("spatial_dims", "pretrained", "hidden_size", "mlp_dim", "num_layers", "num_heads"),
    sizes={"depth": _SHORT, "rows": _SHORT, "columns": _SHORT},
)


def describe_named(name: str) -> dict[str, Any]:
    """Returns the configuration of a model by its name in the collection; raises as `classes.describe` does."""
    return describe(NETWORKS, name)


def prepare() -> None:
    """Imports what all models need, so that processes forked later have it."""
    import_first(NETWORKS)
