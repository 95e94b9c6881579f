"""Architectures beside the zoo's, for the benchmarks: small models of transformers, by their configs, and of torch.nn.

A name leaves as a `ModelSpec` like those of `conf/model`. Nothing here knows an architecture: every config gets the
same small sizes under whichever of the usual names it has, and its model class takes token ids, images or sound. What
is built has random weights and statistics, so that no weight is 0 or 1 by its initialisation.
"""

# torch and transformers type a module's call and their classes as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from batch_export.spec import AxisSpec, InputSpec, ModelSpec

TEXT = (
    *("bert-generation", "bloom", "camembert", "codegen", "convbert", "ctrl", "data2vec-text", "deberta", "deberta-v2"),
    *("ernie", "esm", "falcon", "flaubert", "fnet", "gemma", "gemma2", "gpt_neo", "gpt_neox", "gptj", "granite"),
    *("mistral", "mobilebert", "modernbert", "mpt", "nystromformer", "olmo", "openai-gpt", "opt", "phi", "phi3"),
    *("qwen3", "rembert", "roberta-prelayernorm", "roformer", "squeezebert", "stablelm", "starcoder2", "xglm", "xlnet"),
)
VISION = (
    *("beit", "bit", "convnextv2", "cvt", "deit", "dinov2", "focalnet", "glpn", "levit"),
    *("mobilenet_v1", "mobilenet_v2", "mobilevit", "poolformer", "pvt", "regnet", "resnet", "segformer"),
    *("swiftformer", "swinv2", "vit_msn", "yolos"),
)
AUDIO = ("hubert", "sew", "unispeech", "wavlm")

_SMALL: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.0,
    "vocab_size": 500,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "n_ctx": 64,
    "dim": 32,
    "emb_dim": 32,
    "embedding_size": 32,
    "input_embedding_size": 32,
    "output_embedding_size": 32,
    "true_hidden_size": 32,
    "intra_bottleneck_size": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "head_dim": 8,
    "rotary_dim": 4,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "d_inner": 64,
    "dff": 64,
    "attention_heads": 4,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_seq_len": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
    "image_size": 64,
    "attention_layers": ["global", "local"],
    "attention_types": [[["global", "local"], 1]],
    "segment_means_seq_len": 16,
    "num_landmarks": 4,
}
"""Sizes under the names that configs of transformers have for them; a config takes those of its own kind."""


def specs(patterns: Sequence[str]) -> list[ModelSpec]:
    """The specs whose names (`beit`, `bilstm`) fit one of the globs, in the order of this file."""
    all_of_them = [
        *(_text(name) for name in TEXT),
        *(_vision(name) for name in VISION),
        *(_audio(name) for name in AUDIO),
        *(_layer(name) for name in LAYERS),
    ]
    return [spec for spec in all_of_them if any(fnmatchcase(spec.name, pattern) for pattern in patterns)]


def _target(function: Callable[..., nn.Module]) -> str:
    return f"{__name__}.{function.__name__}"


_BATCH = AxisSpec("batch", 2, (1, 3))


def _text(name: str) -> ModelSpec:
    ids = InputSpec(("data",), "int64", ("batch", "seq"), low=3, high=500)
    axes = (_BATCH, AxisSpec("seq", 16, (9, 33)))
    return ModelSpec(name, _target(transformer), {"kind": name, "field": "input_ids"}, (ids,), axes)


def _vision(name: str) -> ModelSpec:
    pixels = InputSpec(("data",), "float32", ("batch", 3, 64, 64))
    return ModelSpec(name, _target(transformer), {"kind": name, "field": "pixel_values"}, (pixels,), (_BATCH,))


def _audio(name: str) -> ModelSpec:
    sound = InputSpec(("data",), "float32", ("batch", "samples"))
    axes = (_BATCH, AxisSpec("samples", 1600, (1200, 2000)))
    return ModelSpec(name, _target(transformer), {"kind": name, "field": "input_values"}, (sound,), axes)


class FirstOutput(nn.Module):
    """A model of transformers that takes one tensor and returns the first tensor of its output."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model = model
        self.field = field

    def forward(self, data: Tensor) -> Tensor:
        """`int64[batch, seq]`, `float32[batch, 3, height, width]` or `float32[batch, samples]` to its first output."""
        return self.model(**{self.field: data}, return_dict=False)[0]


def transformer(kind: str, field: str) -> nn.Module:
    """The base model of a type of transformers, small."""
    from transformers import AutoConfig, AutoModel  # lazy: slow to load, and absent without the extra `zoo`

    make: Any = AutoModel.from_config
    known = AutoConfig.for_model(kind).to_dict()
    chosen = {key: size for key, size in _SMALL.items() if _takes(known, key)}
    config = AutoConfig.for_model(kind, **chosen)
    config._attn_implementation = "sdpa" if _has_sdpa(config) else "eager"
    return _scattered(FirstOutput(make(config), field))


def _takes(known: dict[str, Any], key: str) -> bool:
    if key not in known:
        return False
    return isinstance(known[key], list) == isinstance(_SMALL[key], list) or known[key] is None


def _has_sdpa(config: Any) -> bool:
    import transformers  # lazy: see above

    model = transformers.AutoModel._model_mapping[type(config)]
    return bool(getattr(model, "_supports_sdpa", False))


def _scattered(module: nn.Module) -> nn.Module:
    """Moves weights that are all 0 or all 1, and running statistics, away from there."""
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point() or tensor.numel() < 2:
                continue
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2.0)
            elif bool((tensor == tensor.flatten()[0]).all()):
                tensor.add_(torch.randn_like(tensor) * 0.1)
    return module


class Bidirectional(nn.Module):
    """Recurrent layers that begin from zeros and return their outputs alone."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, data: Tensor) -> Tensor:
        """`float32[batch, seq, 16]` to `float32[batch, seq, hidden]`."""
        return self.layers(data)[0]


class Attention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, data: Tensor) -> Tensor:
        """`float32[batch, seq, 16]` to the same."""
        return self.attention(data, data, data, need_weights=False)[0]


class TiedHead(nn.Module):
    """An embedding whose table is also the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 64)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 500, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, data: Tensor) -> Tensor:
        """`int64[batch, seq]` to `float32[batch, seq, 500]`."""
        return self.head(self.norm(self.embedding(data)))


def _sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


_SEQUENCE = InputSpec(("data",), "float32", ("batch", "seq", 16))
_IDS = InputSpec(("data",), "int64", ("batch", "seq"), low=0, high=500)
_VECTORS = InputSpec(("input",), "float32", ("batch", 16))
_IMAGES = InputSpec(("input",), "float32", ("batch", 3, 32, 32))
_SIGNALS = InputSpec(("input",), "float32", ("batch", 8, "seq"))
_TOKENS = InputSpec(("src",), "float32", ("batch", "seq", 16))
_SEQ = AxisSpec("seq", 12, (7, 21))

LAYERS: dict[str, tuple[InputSpec, Callable[[], nn.Module]]] = {
    "bilstm": (_SEQUENCE, lambda: Bidirectional(nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True))),
    "bigru": (_SEQUENCE, lambda: Bidirectional(nn.GRU(16, 32, 2, batch_first=True, bidirectional=True))),
    "birnn": (_SEQUENCE, lambda: Bidirectional(nn.RNN(16, 32, 2, batch_first=True, bidirectional=True))),
    "lstm_1": (_SEQUENCE, lambda: Bidirectional(nn.LSTM(16, 32, batch_first=True))),
    "lstm_projected": (_SEQUENCE, lambda: Bidirectional(nn.LSTM(16, 32, batch_first=True, proj_size=8))),
    "self_attention": (_SEQUENCE, Attention),
    "encoder_layer": (
        _TOKENS,
        lambda: nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=True),
    ),
    "tied_head": (_IDS, TiedHead),
    "bn_mlp": (
        _VECTORS,
        lambda: _sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8), nn.BatchNorm1d(8)),
    ),
    "bn_deconv": (
        _IMAGES,
        lambda: _sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU()),
            *(nn.ConvTranspose2d(8, 6, 4, 2, 1, groups=2), nn.BatchNorm2d(6), nn.Tanh()),
        ),
    ),
    "separable_1d": (
        _SIGNALS,
        lambda: _sequential(nn.Conv1d(8, 8, 5, padding=2, groups=8), nn.BatchNorm1d(8), nn.ReLU6(), nn.Conv1d(8, 4, 1)),
    ),
    "weight_norm": (
        _SIGNALS,
        lambda: _sequential(nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 16, 3, padding=1)), nn.GELU()),
    ),
    "group_norm": (
        _IMAGES,
        lambda: _sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)),
    ),
}


def _layer(name: str) -> ModelSpec:
    leaf, _ = LAYERS[name]
    axes = (_BATCH, _SEQ) if "seq" in leaf.shape else (_BATCH,)
    return ModelSpec(name, _target(layers), {"kind": name}, (leaf,), axes)


def layers(kind: str) -> nn.Module:
    """Layers of torch.nn by their name here."""
    return _scattered(LAYERS[kind][1]())
