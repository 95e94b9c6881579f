"""transformers' collection: configs made small by rule, seeded modules, and inputs that eager takes."""

from __future__ import annotations

import random
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

import torch  # noqa: E402  # after the check that the zoo's extra is there

from batch_export.collections.small_models.calling import UndescribedError  # noqa: E402
from batch_export.collections.small_models.errors_read import arguments_missed, settings_said  # noqa: E402
from batch_export.collections.small_models.layers import places_among, pointed_at  # noqa: E402
from batch_export.collections.small_models.leaves import Attempt, Leaf  # noqa: E402
from batch_export.collections.small_models.repairs import repaired  # noqa: E402
from batch_export.collections.small_models.shrinking import WIDTH, shrink  # noqa: E402
from batch_export.collections.transformers.building import build, config_of  # noqa: E402
from batch_export.collections.transformers.describing import describe  # noqa: E402
from batch_export.collections.transformers.names import names, split  # noqa: E402
from batch_export.config.model import model_spec  # noqa: E402
from batch_export.stages import model as models  # noqa: E402

pytestmark = pytest.mark.zoo


def small(model_type: str, degree: str = "narrow") -> Any:
    return config_of(model_type, shrink(transformers.CONFIG_MAPPING[model_type](), degree))


def test_a_small_config_keeps_every_kind_of_layer() -> None:
    kinds = {kind: set(transformers.CONFIG_MAPPING[kind]().layer_types) for kind in ("gemma3_text", "qwen3_next")}
    for model_type, wanted in kinds.items():
        config = small(model_type)
        assert set(config.layer_types) == wanted
        assert config.num_hidden_layers == len(config.layer_types) <= 4


def test_heads_and_experts_fit_one_another() -> None:
    config = small("mixtral")
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (WIDTH, 4, 2)
    assert config.num_experts_per_tok <= config.num_local_experts <= 4
    state = small("bamba")
    assert state.mamba_n_heads * state.mamba_d_head == state.mamba_expand * state.hidden_size


def test_a_config_within_a_config_keeps_what_the_outer_class_gave_it() -> None:
    whole = transformers.CONFIG_MAPPING["paligemma"]()
    config = small("paligemma")
    assert config.vision_config.patch_size == whole.vision_config.patch_size == 14
    assert config.text_config.hidden_size == config.projection_dim == WIDTH
    assert config.image_token_id < 32


def test_stages_keep_their_number() -> None:
    assert len(small("swin").depths) == len(transformers.CONFIG_MAPPING["swin"]().depths)


def test_sections_of_a_rotation_share_out_half_of_a_narrow_head() -> None:
    given = {"text_config": {"rope_parameters": {"rope_theta": 1e6, "mrope_section": [16, 24, 24]}}}
    whole = transformers.CONFIG_MAPPING["qwen2_vl"](**given)
    sections = shrink(whole, "narrow")["text_config"]["rope_parameters"]["mrope_section"]
    assert sum(sections) == 8
    assert min(sections) >= 1


@pytest.mark.parametrize("model_type", ["lw_detr", "depth_anything", "mask2former"])
def test_a_backbone_gives_out_as_many_stages_as_it_did(model_type: str) -> None:
    whole = transformers.CONFIG_MAPPING[model_type]().backbone_config
    config = small(model_type).backbone_config
    assert len(config.out_features) == len(whole.out_features) > 1
    assert set(config.out_features) <= set(config.stage_names)


def test_layers_that_are_pointed_at_stay_apart() -> None:
    fields = {"num_hidden_layers": 12, "out_indices": [3, 5, 7, 11], "global_attn_indexes": [2, 5, 8]}
    assert pointed_at(fields) == 4
    assert places_among([3, 5, 7, 11], 4, 12) == [0, 1, 2, 3]
    assert places_among([9, 10, 11, 12], 4, 12) == [1, 2, 3, 4]
    assert places_among((2, 5, 8), 2, 12) == (1,)
    assert places_among(-2, 2) == -2


def test_an_error_tells_what_a_model_was_not_given() -> None:
    def inner(mask: torch.Tensor | None) -> torch.Tensor:
        return mask.sum()  # type: ignore[union-attr]

    def forward(x: torch.Tensor, sound_mask: torch.Tensor | None = None) -> torch.Tensor:
        return x + inner(
            sound_mask,
        )

    parameters = ["x", "sound_mask", "inputs_embeds"]
    with pytest.raises(AttributeError) as raised:
        forward(torch.ones(1))
    assert arguments_missed(raised.value, parameters) == ["sound_mask"]
    assert arguments_missed(ValueError("give `inputs_embeds`, please"), parameters) == ["inputs_embeds"]
    assert arguments_missed(ValueError("a size of 3"), parameters) == []
    assert settings_said("make sure that `is_decoder=True` and `other = False`") == {"is_decoder": True, "other": False}


def test_an_error_tells_which_shape_an_input_should_have() -> None:
    sounds = Attempt({"input_values": Leaf("float32", ("batch", "samples"))}, {"batch": 2, "samples": 1600})
    with pytest.raises(RuntimeError) as raised:
        torch.nn.LayerNorm(64)(torch.randn(2, 1600))
    found = repaired(sounds, raised.value)
    assert found is not None
    assert found.leaves["input_values"].shape == ("batch", "frames", 64)
    assert repaired(found, raised.value) is None
    with pytest.raises(RuntimeError) as raised:
        torch.nn.Linear(48, 3)(torch.randn(2, 1600))
    found = repaired(sounds, raised.value)
    assert found is not None
    assert found.leaves["input_values"].shape[-1] == 48
    images = Attempt(
        {"pixel_values": Leaf("float32", ("batch", 3, "height", "width"))}, {"batch": 2, "height": 64, "width": 64}
    )
    found = repaired(images, ValueError("Input image size (128*64) doesn't match model (64*64)."))
    assert found is not None
    assert found.sizes == {"batch": 2, "height": 32, "width": 64}
    assert repaired(images, ValueError("a size of 3")) is None


def test_a_model_that_reads_where_its_text_ends_is_given_an_end() -> None:
    config = describe("bart", "BartForSequenceClassification")
    assert list(config["inputs"]) == ["input_ids", "attention_mask"]
    assert config["prefix"] == [small("bart").eos_token_id]


def test_a_class_with_a_config_within_that_of_its_type_is_made_with_it() -> None:
    assert describe("musicgen", "MusicgenForCausalLM")["model_type"] == "musicgen_decoder"


def test_a_module_is_the_same_twice_and_no_parameter_is_constant() -> None:
    arguments = shrink(transformers.CONFIG_MAPPING["resnet"](), "narrow")
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(build("ResNetModel", "resnet", arguments).state_dict())
    assert all(torch.equal(value, made[1][name]) for name, value in made[0].items())
    for name, value in made[0].items():
        if value.is_floating_point() and value.numel() > 1:
            assert float(value.std()) > 0, name


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("t5.T5ForConditionalGeneration", ["batch", "seq", "target"]),
        ("vit.ViTModel", ["batch"]),
        ("clip.CLIPModel", ["batch", "seq"]),
        ("wav2vec2.Wav2Vec2ForCTC", ["batch", "samples"]),
    ],
)
def test_a_description_is_a_configuration_whose_model_runs_at_all_its_sizes(name: str, axes: list[str]) -> None:
    spec = model_spec(f"transformers:{name}", describe(*split(name)))
    assert sorted(axis.name for axis in spec.axes) == axes
    module = models.build(spec)
    for index in range(2):
        sizes = {axis.name: axis.check[index] for axis in spec.axes}
        with torch.no_grad():
            assert module(**models.example_inputs(spec, sizes)) is not None


def test_places_of_an_image_go_before_the_text() -> None:
    config = describe("llava", "LlavaForConditionalGeneration")
    spec = model_spec("transformers:llava", config)
    module = models.build(spec)
    image = module.prefix
    assert len(config["prefix"]) == image.numel() > 1
    with torch.no_grad():
        logits = module(**models.example_inputs(spec, {axis.name: axis.example for axis in spec.axes})).logits
    assert logits.shape[1] == image.numel() + 9


def test_a_library_that_is_not_there_is_the_reason() -> None:
    with pytest.raises(UndescribedError, match=r"^it needs a library that is not installed: .*timm"):
        describe("timm_backbone", "TimmBackbone")


def test_what_cannot_be_built_says_why_at_each_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_export.collections.small_models.calling.MOST_PARAMETERS", 1000)
    with pytest.raises(UndescribedError, match=r"narrow: it has [\d,]+ parameters.*; whole: it has"):
        describe("bert", "BertModel")


@pytest.mark.world
def test_most_types_are_described_without_a_line_of_their_own() -> None:
    bases = sorted(name for name, tags in names().items() if "base" in tags)
    drawn = random.Random(0).sample(bases, 40)
    lacking = []
    for name in drawn:
        try:
            describe(*split(name))
        except UndescribedError as error:
            lacking.append(f"{name}: {error}")
    assert len(lacking) <= 4, lacking
