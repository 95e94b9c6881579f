"""Real architectures through the core: tiny configs, static and dynamic, each checked at a second shape as well."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exporting import assert_same, export_and_compare
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from batch_export.exporter import export

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.sampled, pytest.mark.zoo]

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
}


def tokens(batch: int, seq: int) -> Tensor:
    torch.manual_seed(batch * 100 + seq)
    return torch.randint(3, 90, (batch, seq))


class Logits(nn.Module):
    """A model's first output by token ids and a mask."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **self.options)[0]


def mixtral() -> nn.Module:
    config = transformers.MixtralConfig(
        **{**SIZES, "intermediate_size": 64},
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
    )
    return Logits(transformers.MixtralForCausalLM(config), use_cache=False)


def mamba() -> nn.Module:
    config = transformers.MambaConfig(
        vocab_size=99, hidden_size=16, state_size=4, num_hidden_layers=2, time_step_rank=4
    )
    return Logits(transformers.MambaForCausalLM(config), use_cache=False)


def xlnet() -> nn.Module:
    config = transformers.XLNetConfig(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=37)
    return Logits(transformers.XLNetModel(config), use_mems=False)


def deberta() -> nn.Module:
    config = transformers.DebertaConfig(
        **SIZES, max_position_embeddings=64, relative_attention=True, pos_att_type=["p2c", "c2p"]
    )
    return Logits(transformers.DebertaModel(config))


def deberta_v2() -> nn.Module:
    config = transformers.DebertaV2Config(
        **SIZES, max_position_embeddings=64, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8
    )
    return Logits(transformers.DebertaV2Model(config))


def funnel() -> nn.Module:
    config = transformers.FunnelConfig(
        vocab_size=99, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=37, num_decoder_layers=1
    )
    return Logits(transformers.FunnelModel(config))


def qwen3_moe() -> nn.Module:
    config = transformers.Qwen3MoeConfig(
        **SIZES, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    )
    return Logits(transformers.Qwen3MoeForCausalLM(config), use_cache=False)


TEXT = {
    "mixtral": mixtral,
    "mamba": mamba,
    "xlnet": xlnet,
    "deberta": deberta,
    "deberta_v2": deberta_v2,
    "funnel": funnel,
    "qwen3_moe": qwen3_moe,
}

RARER = {"deberta", "deberta_v2", "funnel", "mamba", "qwen3_moe", "xlnet"}
"""Left to the nox session `ops`; the others have a relative of theirs in every run."""


def chosen(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.ops) if name in RARER else name


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", [chosen(name) for name in TEXT])
def test_text_models(name: str, dynamic: bool) -> None:
    torch.manual_seed(0)
    module = TEXT[name]().eval()
    args = (tokens(2, 8), torch.ones(2, 8, dtype=torch.int64))
    if not dynamic:
        export_and_compare(module, args)
        return
    spec = {0: "batch", 1: "seq"}
    more = (tokens(3, 12), torch.ones(3, 12, dtype=torch.int64))
    export_and_compare(module, args, more, dynamic_shapes={"input_ids": spec, "attention_mask": spec})


class Pixels(nn.Module):
    """An image model's last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Any:
        return self.model(pixel_values=pixel_values, return_dict=True)[0]


def dinov2() -> nn.Module:
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )
    return Pixels(transformers.Dinov2Model(config))


def swin_v2() -> nn.Module:
    config = transformers.Swinv2Config(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4
    )
    return Pixels(transformers.Swinv2Model(config))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("build", [dinov2, pytest.param(swin_v2, marks=pytest.mark.ops)])
def test_image_models(build: Any, dynamic: bool) -> None:
    torch.manual_seed(0)
    module, args = build().eval(), (torch.randn(2, 3, 32, 32),)
    if not dynamic:
        export_and_compare(module, args)
        return
    export_and_compare(module, args, (torch.randn(3, 3, 32, 32),), dynamic_shapes={"pixel_values": {0: "batch"}})


class Clip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        text = dict(SIZES, max_position_embeddings=32)
        vision = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
        }
        self.model = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
        )

    def forward(self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor) -> Any:
        out = self.model(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return out.logits_per_image, out.text_embeds


def test_clip() -> None:
    torch.manual_seed(0)

    def inputs(batch: int, images: int) -> tuple[Tensor, ...]:
        return tokens(batch, 7), torch.randn(images, 3, 32, 32), torch.ones(batch, 7, dtype=torch.int64)

    text = {0: "texts"}
    shapes = {"input_ids": text, "pixel_values": {0: "images"}, "attention_mask": text}
    export_and_compare(Clip().eval(), inputs(2, 3), inputs(4, 2), dynamic_shapes=shapes)


class WhisperDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.WhisperConfig(
            vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37, num_mel_bins=8,
            max_source_positions=16, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
        )  # fmt: skip
        self.model = transformers.WhisperForConditionalGeneration(config)

    def forward(self, input_ids: Tensor, states: Tensor) -> Any:
        hidden = self.model.model.decoder(input_ids=input_ids, encoder_hidden_states=states, use_cache=False)[0]
        return self.model.proj_out(hidden)


class T5Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
        self.model = transformers.T5ForConditionalGeneration(config)

    def forward(self, input_ids: Tensor, states: Tensor) -> Any:
        hidden = self.model.decoder(input_ids=input_ids, encoder_hidden_states=states, use_cache=False)[0]
        return self.model.lm_head(hidden)


@pytest.mark.parametrize("build", [WhisperDecoder, pytest.param(T5Decoder, marks=pytest.mark.ops)])
def test_decoders_over_an_encoders_states(build: Any) -> None:
    torch.manual_seed(0)
    shapes = {"input_ids": {0: "batch", 1: "seq"}, "states": {0: "batch", 1: "source"}}
    args = (tokens(2, 5), torch.randn(2, 16, 32))
    export_and_compare(build().eval(), args, (tokens(3, 7), torch.randn(3, 9, 32)), dynamic_shapes=shapes)


class WithCache(nn.Module):
    """A decoder that takes a DynamicCache and gives it back."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, max_position_embeddings=64)
        self.model = transformers.LlamaForCausalLM(config)

    def forward(self, input_ids: Tensor, past_key_values: Any) -> Any:
        out = self.model(input_ids=input_ids, past_key_values=past_key_values, use_cache=True)
        return out.logits, [(layer.keys, layer.values) for layer in out.past_key_values.layers]


def cache(batch: int, past: int) -> Any:
    torch.manual_seed(past)
    return [(torch.randn(batch, 2, past, 8), torch.randn(batch, 2, past, 8)) for _ in range(2)]


class FromPairs(nn.Module):
    """Builds the DynamicCache inside, so that its tensors are the model's inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = WithCache()

    def forward(self, input_ids: Tensor, past: list[tuple[Tensor, Tensor]]) -> Any:
        return self.inner(input_ids, transformers.DynamicCache(past))


def step(batch: int, seq: int, past: int) -> tuple[Any, ...]:
    return tokens(batch, seq), cache(batch, past)


def test_a_decoder_with_its_cache_as_tensors() -> None:
    torch.manual_seed(0)
    layer = ({0: "batch", 2: "past"}, {0: "batch", 2: "past"})
    shapes = {"input_ids": {0: "batch", 1: "seq"}, "past": [layer, layer]}
    export_and_compare(FromPairs().eval(), step(2, 3, 4), step(3, 2, 7), dynamic_shapes=shapes)


class CacheToCache(nn.Module):
    """A decoder step: a DynamicCache in, the logits and the longer DynamicCache out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = WithCache()

    def forward(self, input_ids: Tensor, past_key_values: Any) -> Any:
        out = self.inner.model(input_ids=input_ids, past_key_values=past_key_values, use_cache=True)
        return out.logits, out.past_key_values


@pytest.mark.parametrize("opset", [pytest.param(20, marks=pytest.mark.ops), 25])
def test_a_decoder_step_from_dynamic_cache_to_dynamic_cache(opset: int) -> None:
    torch.manual_seed(0)

    def inputs(batch: int, seq: int, past: int) -> tuple[Any, ...]:
        ids, pairs = step(batch, seq, past)
        return ids, transformers.DynamicCache(pairs)

    module, layer = CacheToCache().eval(), {0: "batch", 2: "past"}
    shapes = {"input_ids": {0: "batch", 1: "seq"}, "past_key_values": [[layer, layer], [layer, layer]]}
    program = export(module, inputs(2, 3, 4), dynamic_shapes=shapes, opset_version=opset)
    assert {str(value.shape[2]) for value in program.model.graph.outputs[1:]} == {"past + seq"}
    for sizes in ((2, 3, 4), (3, 1, 9)):
        with torch.no_grad():
            logits, longer = module(*inputs(*sizes))
        keys_and_values = [*(layer.keys for layer in longer.layers), *(layer.values for layer in longer.layers)]
        assert_same(program(*inputs(*sizes)), [logits, *keys_and_values])


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_with_projection_and_free_batch(kind: str) -> None:
    torch.manual_seed(0)
    options = {"proj_size": 3} if kind == "LSTM" else {}
    module = getattr(nn, kind)(5, 8, num_layers=2, bidirectional=True, batch_first=True, **options)
    shapes = ({0: "batch"},)
    export_and_compare(module.eval(), (torch.randn(2, 6, 5),), (torch.randn(4, 6, 5),), dynamic_shapes=shapes)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "relu", "projected"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers_with_free_batch_and_length(kind: str, batch_first: bool) -> None:
    torch.manual_seed(0)
    made = {"relu": ("RNN", {"nonlinearity": "relu"}), "projected": ("LSTM", {"proj_size": 3})}
    name, options = made.get(kind, (kind, {}))
    module = getattr(nn, name)(5, 8, num_layers=2, bidirectional=True, batch_first=batch_first, **options)
    inputs = [(torch.randn(*sizes, 5),) for sizes in ((2, 6), (1, 1), (7, 3), (3, 25))]
    program = export_and_compare(module, *inputs, dynamic_shapes=({0: "first", 1: "second"},))
    assert [str(size) for size in program.model.graph.inputs[0].shape] == ["first", "second", "5"]
    assert [str(size) for size in program.model.graph.outputs[0].shape][:2] == ["first", "second"]
    none = torch.zeros(0, 4, 5) if batch_first else torch.zeros(4, 0, 5)
    expected = [leaf for leaf in pytree.tree_leaves(module(none)) if leaf is not None]
    assert [tuple(value.shape) for value in program(none)] == [tuple(value.shape) for value in expected]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "projected"])
def test_recurrent_layers_of_float64(kind: str) -> None:
    torch.manual_seed(0)
    name, options = {"projected": ("LSTM", {"proj_size": 3})}.get(kind, (kind, {}))
    module = getattr(nn, name)(5, 8, num_layers=2, bidirectional=True, **options).double()
    inputs = [(torch.randn(*sizes, 5, dtype=torch.float64),) for sizes in ((6, 2), (1, 1), (3, 7), (2, 0))]
    export_and_compare(module, *inputs, dynamic_shapes=({0: "length", 1: "batch"},))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_as_scans_below_opset_18(kind: str, opset: int, dtype: torch.dtype) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            options = {"proj_size": 3} if kind == "LSTM" else {}
            self.layer = getattr(nn, kind)(5, 8, bidirectional=True, batch_first=True, **options).to(dtype)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            output, last = self.layer(x.to(dtype))
            return tuple(one.float() for one in (output, *(last if kind == "LSTM" else [last])))

    torch.manual_seed(0)
    inputs = [(torch.randn(*sizes, 5),) for sizes in ((2, 6), (1, 1), (7, 9))]
    shapes = ({0: "batch", 1: "length"},)
    tolerance = 1e-4 if dtype == torch.float64 else 2e-2
    program = export_and_compare(Layer(), *inputs, dynamic_shapes=shapes, opset_version=opset, tolerance=tolerance)
    bodies = [node.attributes["body"].as_graph() for node in program.model.graph if node.op_type == "Scan"]
    assert all("Shape" not in [node.op_type for node in body] for body in bodies)  # pieces of known sizes


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_over_a_batch_declared_from_one_up_have_no_case_of_none(kind: str) -> None:
    module = getattr(nn, kind)(5, 8, bidirectional=True)
    inputs = [(torch.randn(*sizes, 5),) for sizes in ((6, 2), (1, 1), (3, 7))]
    shapes = ({0: "length", 1: torch.export.Dim("batch", min=1)},)
    program = export_and_compare(module, *inputs, dynamic_shapes=shapes)
    assert not {"Pad", "Slice", "Max"} & {node.op_type for node in program.model.graph}


def test_a_recurrent_layer_of_free_length_in_a_model_that_must_be_made_functional() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.layer = nn.Embedding(10, 4), nn.GRU(4, 6, batch_first=True)

        def forward(self, tokens: Tensor) -> Tensor:
            output, last = self.layer(self.embedding(tokens))
            table = torch.zeros(3, 4)
            torch.as_strided(table, (3,), (4,)).add_(1.0)
            return output.flip(1)[:, 0] + table.sum() + last.mean()

    inputs = [(torch.randint(0, 10, sizes),) for sizes in ((2, 6), (1, 1), (4, 9))]
    export_and_compare(Tagger(), *inputs, dynamic_shapes=({0: "batch", 1: "length"},))


class FakeQuantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("scale", torch.full((4,), 0.02))
        self.register_buffer("zero", torch.zeros(4, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 10, -128, 127)
        weight = torch.fake_quantize_per_channel_affine(self.linear.weight, self.scale, self.zero, 0, -128, 127)
        return nn.functional.linear(x, weight, self.linear.bias)


def test_fake_quantisation_becomes_quantize_and_dequantize() -> None:
    torch.manual_seed(0)
    program = export_and_compare(
        FakeQuantised().eval(), (torch.randn(3, 8),), (torch.randn(5, 8) * 9,), dynamic_shapes=({0: "batch"},)
    )
    kinds = [node.op_type for node in program.model.graph]
    assert kinds.count("QuantizeLinear") == kinds.count("DequantizeLinear") == 2


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x)
        return torch.fft.irfft(spectrum * spectrum.conj(), n=x.shape[-1]) + spectrum.abs().sum(-1, keepdim=True)


def test_a_model_with_a_real_fft() -> None:
    export_and_compare(Spectrum(), (torch.randn(3, 32),), (torch.randn(5, 32),), dynamic_shapes=({0: "batch"},))


class ShortTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stft(x, 16, 8, window=self.window, return_complex=True).abs()


def test_a_model_with_a_short_time_fourier_transform() -> None:
    export_and_compare(ShortTime(), (torch.randn(2, 64),), tolerance=1e-3)


class RoundTrip(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.ifft2(torch.fft.fft2(x) * 2.0).real


def test_a_model_with_a_complex_fft_of_two_axes() -> None:
    export_and_compare(RoundTrip(), (torch.randn(2, 8, 16),))
