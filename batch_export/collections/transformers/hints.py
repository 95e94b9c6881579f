"""What no rule finds: arguments for a few config classes, by model type, and stand-ins for configs of other packages.

Plain data. A hint says how a config is made small or complete, never how its model is exported.
"""

from __future__ import annotations

from typing import Any

_SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
"""What the class' own default does not have, and its model needs for heads of 16."""

_BY_LAYER = {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")}
"""What classes look up by the kind of a layer, and have no default for."""

_INDEXED = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
}
"""What a class has no default for, and its layers of sparse attention need."""

_ALTERNATING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}

_GLM = ("glm4v", "glm4v_moe", "glm46v", "glmga", "glm_ocr")

ARGUMENTS: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "reformer": {"axial_pos_embds": False},
    "chameleon": {"vocabulary_map": {"<image>": 4, "IMGIMGA": 5}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2, "num_dense_layers": 1},
    "cohere_compass_text": {"rope_parameters": _BY_LAYER},
    "cohere_compass": {"text_config": {"rope_parameters": _BY_LAYER}},
    "glm_image_text": {"rope_parameters": _SECTIONS},
    "xmod": {"default_language": "en_XX"},
    "hunyuan_vl_text": {"rope_parameters": _SECTIONS},
    "kosmos-2": {"latent_query_num": 9},  # as many places in the text as the image has features
    "align": {"projection_dim": 640},  # the width of its images, which a coefficient makes
    "lw_detr": {"projector_scale_factors": [1.0]},  # it has none, and its model needs one
    "perceiver": {"num_cross_attention_heads": 1, "num_self_attention_heads": 1},  # the width follows the image
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]], "spatial_target_layers": [1], "downsample_rate": "1/2"},
    "qwen4_exp": {"text_config": _INDEXED},
    "qwen4_exp_text": _INDEXED,
    "qwen2_5_omni_thinker": {"text_config": {"rope_parameters": _SECTIONS}},
    "step3p7": {"text_config": _ALTERNATING},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"]}},
    "emu3": {"vocabulary_map": {"<image>": 4}},
    **{kind: {"text_config": {"rope_parameters": _SECTIONS}} for kind in _GLM},
}
"""Laid over what the shrinker found."""

_RESNET: dict[str, Any] = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 64, 128],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}

STAND_INS: dict[str, dict[str, Any]] = {"timm_backbone": _RESNET, "timm_wrapper": _RESNET}
"""By model type: configs that take the place of one that needs a package beside transformers."""
