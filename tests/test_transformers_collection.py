"""transformers' collection: configs made small by rule, seeded modules, and inputs that eager takes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

import torch  # noqa: E402  # after the check that the zoo's extra is there

from batch_export.collections.small_models.calling import Made, UndescribedError, first_taken, free_axes  # noqa: E402
from batch_export.collections.small_models.config_tree import Change, changed, overlaid  # noqa: E402
from batch_export.collections.small_models.errors_read import arguments_missed, settings_said  # noqa: E402
from batch_export.collections.small_models.further_repairs import further_repaired  # noqa: E402
from batch_export.collections.small_models.layers import kept_layers, places_among, pointed_at  # noqa: E402
from batch_export.collections.small_models.leaves import Attempt, Leaf  # noqa: E402
from batch_export.collections.small_models.mending import Mender  # noqa: E402
from batch_export.collections.small_models.repairs import repaired  # noqa: E402
from batch_export.collections.small_models.shrinking import WIDTH, shrink  # noqa: E402
from batch_export.collections.small_models.sizes_read import lengths_said, multiple_said, unlike_sizes  # noqa: E402
from batch_export.collections.small_models.statements import comparisons_at, words_at  # noqa: E402
from batch_export.collections.transformers import describing  # noqa: E402
from batch_export.collections.transformers.building import build, config_of  # noqa: E402
from batch_export.collections.transformers.config_sizes import ConfigSizes  # noqa: E402
from batch_export.collections.transformers.describing import describe  # noqa: E402
from batch_export.collections.transformers.names import names, split  # noqa: E402
from batch_export.collections.transformers.shapes_by_doc import shapes_by_doc  # noqa: E402
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


def test_a_head_that_two_parts_make_up_stays_their_sum() -> None:
    config = SimpleNamespace(
        hidden_size=512, qk_nope_head_dim=128, qk_rope_head_dim=64, qk_head_dim=192, v_head_dim=128
    )
    small = shrink(config, "narrow")
    assert (small["qk_nope_head_dim"], small["qk_rope_head_dim"], small["qk_head_dim"]) == (16, 16, 32)


def test_a_config_within_a_config_keeps_what_the_outer_class_gave_it() -> None:
    whole = transformers.CONFIG_MAPPING["paligemma"]()
    config = small("paligemma")
    assert config.vision_config.patch_size == whole.vision_config.patch_size == 14
    assert config.text_config.hidden_size == config.projection_dim == WIDTH
    assert whole.vision_config.projection_dim > config.vision_config.projection_dim == WIDTH  # no field of its class
    assert small("chmv2").backbone_config.return_class_token is True  # none either
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


@pytest.mark.parametrize("name", ["qwen2_vl.Qwen2VLModel", "minicpmv4_7.MiniCPMV4_7Model"])
def test_a_model_that_is_told_what_images_it_gets_is_given_places(name: str) -> None:
    """Else it looks for the places of images in its text, which is a decision by data."""
    config = describe(*name.split("."))
    assert config["inputs"]["position_ids"]["shape"] == [3, 1, "seq"]


def test_a_library_that_is_not_there_is_the_reason() -> None:
    with pytest.raises(UndescribedError, match=r"^it needs a library that is not installed: .*timm"):
        describe("timm_backbone", "TimmBackbone")


def test_a_stand_in_takes_the_place_of_a_config_of_one_class_alone() -> None:
    config = describe("pe_video_encoder", "PeVideoEncoder")
    assert config["config"]["vision_config"]["model_type"] == "resnet"
    assert set(config["axes"]) == {"batch", "height", "width"}
    with pytest.raises(UndescribedError, match=r"^it needs a library that is not installed: .*timm"):
        describe(
            "edgetam_vision_model", "EdgeTamVisionModel"
        )  # which is given lists of features, by an argument of timm's


def test_what_cannot_be_built_says_why_at_each_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_export.collections.small_models.calling.MOST_PARAMETERS", 1000)
    with pytest.raises(UndescribedError, match=r"narrow: it has [\d,]+ parameters.*; whole: it has"):
        describe("bert", "BertModel")


def met(call: Any, *arguments: Any) -> Exception:
    """What a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # whatever it is
        call(*arguments)
    assert isinstance(raised.value, Exception)
    return raised.value


def test_errors_say_which_sizes_do_not_fit_one_another() -> None:
    assert unlike_sizes(str(met(torch.nn.Linear(48, 3), torch.ones(2, 64)))) == [(64, 48)]
    assert unlike_sizes(str(met(torch.nn.LayerNorm(16), torch.ones(2, 64)))) == [(64, 16)]
    assert unlike_sizes(str(met(torch.add, torch.ones(5), torch.ones(7)))) == [(5, 7), (7, 5)]
    assert unlike_sizes(str(met(torch.split, torch.ones(4), [4, 2, 2]))) == [(4, 8)]
    assert unlike_sizes(str(met(torch.nn.Conv1d(1, 3, 3), torch.ones(2, 4, 9)))) == [(4, 1)]
    assert lengths_said(str(met(torch.ones(18).view, 2, -1, 32))) == [(18, 32)]
    assert multiple_said("`x` length 1600 is not a multiple of 1920") == (1600, 1920)
    assert multiple_said("the length has to be a multiple of `n_window * 2` (100), but got 24.") == (24, 100)
    assert unlike_sizes("a size of 3") == []
    assert multiple_said("a multiple of a size") is None


def test_a_signal_gets_the_channels_the_length_and_the_multiple_that_are_asked_for() -> None:
    sounds = Attempt({"x": Leaf("float32", ("batch", "samples"))}, {"batch": 2, "samples": 1600})
    (found,) = further_repaired(sounds, met(torch.nn.Conv1d(1, 3, 7), torch.ones(2, 1600)))
    assert found.leaves["x"].shape == ("batch", 1, "samples")
    (longer,) = further_repaired(found, met(torch.nn.Conv1d(1, 3, 2000), torch.ones(2, 1, 1600)))
    assert longer.sizes == {"batch": 2, "samples": 6400}
    (padded,) = further_repaired(sounds, ValueError("length 1600 is not a multiple of 1920"))
    assert padded.sizes["samples"] == 1920
    assert further_repaired(sounds, ValueError("a size of 3")) == []


def test_axes_get_the_other_of_two_sizes_that_do_not_fit() -> None:
    codes = Attempt({"x": Leaf("int64", ("batch", "seq", 32), 0, 9)}, {"batch": 2, "seq": 9})
    found = further_repaired(codes, met(torch.add, torch.ones(2, 9, 32), torch.ones(33)))
    assert [one.leaves["x"].shape for one in found] == [("batch", "seq", 33)]
    texts = Attempt({"ids": Leaf("int64", ("batch", "seq"), 0, 9)}, {"batch": 2, "seq": 9})
    found = further_repaired(texts, met(torch.add, torch.ones(2, 9, 4), torch.ones(2, 3, 4)))
    assert [one.sizes for one in found] == [{"batch": 2, "seq": 3}]
    bins = Attempt({"x": Leaf("float32", ("batch", "frames", 80))}, {"batch": 2, "frames": 24})
    found = further_repaired(bins, met(torch.nn.Linear(256, 3), torch.ones(12, 320)))
    assert [one.leaves["x"].shape[-1] for one in found] == [64]
    masks = Attempt({"mask": Leaf("int64", ("batch", "seq"), fill=1)}, {"batch": 2, "seq": 9})
    found = further_repaired(masks, met(torch.ones(2, 9)[..., None].expand, -1, -1, -1, 4))
    assert [one.leaves["mask"].shape for one in found] == [("batch", "seq", 1)]
    assert all(one.leaves["x"].shape[1] == "frames" for one in further_repaired(bins, ValueError("no size")))


class Part(transformers.PreTrainedConfig):  # type: ignore[misc]
    """A config within another one."""

    model_type = "part_of_a_test"

    def __init__(
        self, hidden_size: int = 512, adapter_dim: int = 512, num_experts: int | None = None, **more: Any
    ) -> None:
        self.hidden_size = hidden_size
        self.adapter_dim = adapter_dim
        self.num_experts = num_experts
        self.rope_parameters = {"rope_theta": 1e4, "mrope_section": [4, 2, 2]}
        self.hook_ids = [11, 5]
        self.num_hidden_layers = 2
        super().__init__(**more)


class Whole(transformers.PreTrainedConfig):  # type: ignore[misc]
    """A config with one within it."""

    model_type = "whole_of_a_test"

    def __init__(self, hidden_size: int = 512, inner: Part | None = None, **more: Any) -> None:
        self.hidden_size = hidden_size
        self.inner = inner or Part()
        self.num_key_value_heads = 2
        self.feature_sizes = [[256, 256], [128, 128]]
        self.image_size = 64
        super().__init__(**more)


class Meeting(torch.nn.Module):
    """A module whose layers and checks a config has to agree with."""

    def __init__(self, config: Part) -> None:
        super().__init__()
        self.config = config
        self.first = torch.nn.Linear(8, config.adapter_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x)  # type: ignore[no-any-return]

    def check(self) -> None:
        if self.config.adapter_dim != self.config.hidden_size:
            raise ValueError("one of them is wrong")

    def route(self) -> torch.Tensor:
        return torch.empty((self.config.num_experts, 3))  # type: ignore[arg-type]


def first_mend(error: Exception, config: Any, whole: Any = None) -> Change:
    return Mender(config, whole or config).mends(error)[0][0]


def test_fields_are_changed_by_what_an_error_says() -> None:
    config = Whole(inner=Part(hidden_size=64, adapter_dim=48))
    lacks = met(lambda: config.inner.num_key_value_heads)
    assert first_mend(lacks, config) == Change(("inner",), "num_key_value_heads", 2)
    assert first_mend(met(lambda: config.inner.rope_theta), config) == Change(("inner",), "rope_theta", 10000.0)
    unset = met(Meeting(Part(adapter_dim=4)).route)
    assert first_mend(unset, config) == Change(("inner",), "num_experts", 4)
    parts = first_mend(met(torch.split, torch.ones(4), [4, 2, 2]), config)
    assert (parts.path, parts.value["mrope_section"]) == (("inner",), [2, 1, 1])
    assert first_mend(IndexError("list index out of range"), config) == Change(("inner",), "hook_ids", [1, 0])
    before = Whole(image_size=1024)
    before.image_size = 1024
    shaped = first_mend(met(torch.ones(4096).view, 2, -1, 256, 256), config, before)
    assert shaped == Change((), "feature_sizes", [[16, 16], [8, 8]])
    deep = Whole()
    deep.inner.num_hidden_layers = 48
    assert first_mend(UndescribedError("it has 9,000 parameters, and"), deep) == Change(
        ("inner",), "num_hidden_layers", 2
    )
    assert Mender(config, config).mends(ValueError("it is wrong")) == []
    staged = Part()
    staged.blocks_per_stage, staged.global_attention_blocks = [1, 2, 2, 2], [1]
    assert first_mend(met(lambda: 7 % len("")), staged) == Change((), "global_attention_blocks", [6])


def test_a_field_that_made_the_layer_which_failed_is_changed_first() -> None:
    config = Part(hidden_size=48, adapter_dim=48)
    model = torch.nn.Sequential(Meeting(config), torch.nn.Linear(64, 3))
    error = met(model, torch.ones(5, 8))
    changes = [one for mend in Mender(config, config).mends(error) for one in mend]
    assert {change.name for change in changes} == {"hidden_size", "adapter_dim"}
    narrow = Meeting(config)
    words = words_at(met(narrow, torch.ones(5, 7)))
    assert words.index("first") < words.index("adapter_dim")


def test_what_a_check_compares_is_made_the_same() -> None:
    config = Part(hidden_size=64, adapter_dim=48)
    assert comparisons_at(met(Meeting(config).check))[0][1:] == ("config.adapter_dim", "config.hidden_size")


def test_changes_reach_configs_within_configs_and_leave_what_is_given() -> None:
    given = {"a": 1, "inner": {"model_type": "x", "b": 2}}
    assert changed(given, [Change(("inner",), "b", 3), Change((), "c", 4)]) == {
        "a": 1,
        "inner": {"model_type": "x", "b": 3},
        "c": 4,
    }
    assert given == {"a": 1, "inner": {"model_type": "x", "b": 2}}
    whole = Whole()
    laid = overlaid(whole, {"hidden_size": 64, "inner": {"adapter_dim": 32}})
    assert (laid.hidden_size, laid.inner.adapter_dim, laid.inner.hidden_size) == (64, 32, 512)
    assert whole.inner.adapter_dim == 512


def test_two_layers_of_each_kind_stay_where_they_are_asked_for() -> None:
    fields = {"num_hidden_layers": 6, "layer_types": ["a", "a", "a", "b", "a", "b"]}
    assert kept_layers(fields) == (0, 3)
    assert kept_layers(fields, of_each=2) == (0, 1, 3, 5)


def test_docstrings_give_shapes() -> None:
    doc = """
        states (`torch.FloatTensor` of shape `(batch_size, episode_length, hidden_size)`): what it is
        x_mask (`torch.BoolTensor` of shape `(batch_size, num_frames)`): where
        kind (`torch.LongTensor` of shape `(batch_size,)`): which
        pixels (`torch.Tensor` of shape `(num_image_tokens, hidden_size * 2, 3)`): an image
        joined (`torch.Tensor` of shape `[batch_size, number_of_tokens, dim * len(config.places)]`): of several layers
        other (`torch.Tensor` of shape `(batch_size, nobody_knows)`): left out
    """
    found = shapes_by_doc(doc, ConfigSizes(Part(hidden_size=64, places=[1, 3, 5])))
    assert {name: leaf.shape for name, leaf in found.items()} == {
        "states": ("batch", "seq", 64),
        "x_mask": ("batch", "frames"),
        "kind": ("batch",),
        "pixels": (4, 128, 3),
        "joined": ("batch", "seq", 192),
    }
    assert found["x_mask"] == Leaf("bool", ("batch", "frames"), fill=1)
    assert found["kind"].dtype == "int64"


def test_a_persistent_search_gives_what_errors_name_one_after_the_other() -> None:
    names = ["first", "second", "third", "fourth"]

    class Chain(torch.nn.Module):
        def forward(self, **given: torch.Tensor) -> torch.Tensor:
            for name in names:
                if name not in given:
                    raise ValueError(f"give `{name}`")
            return sum(given.values(), torch.zeros(()))

    def attempts(also: Any) -> Any:
        yield Attempt({name: Leaf("float32", ("batch",)) for name in ("x", *also)}, {"batch": 2})

    def search(persistent: bool) -> list[str]:
        taken = first_taken(lambda one: (Chain(), {}), attempts, ["x", *names], persistent=persistent)
        return list(taken.attempt.leaves)

    assert search(True) == ["x", *names]
    with pytest.raises(UndescribedError, match="give `first`") as raised:
        search(False)
    assert raised.value.causes == ()


def test_a_persistent_search_refuses_what_is_random_and_what_has_one_size() -> None:
    class Random(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand_like(x)

    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(2)

    for model, reason in ((Random(), "something else the second time"), (Fixed(), "at one size alone")):
        made = lambda one, model=model: (model, {})  # noqa: E731
        attempt = Attempt({"x": Leaf("float32", ("batch",))}, {"batch": 2})
        assert first_taken(made, lambda also, one=attempt: iter([one]), ["x"]).attempt == attempt
        with pytest.raises(UndescribedError, match=reason):
            first_taken(made, lambda also, one=attempt: iter([one]), ["x"], persistent=True)


def test_an_axis_that_decides_how_many_outputs_there_are_is_a_number() -> None:
    class Listing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [2 * row for row in x]

    leaf = Leaf("float32", ("batch", "seq"))
    made = Made(Listing(), Attempt({"x": leaf}, {"batch": 2, "seq": 9}), {})

    assert free_axes(made) == {"seq": (13, 6)}


def test_classes_that_tensors_alone_cannot_call_say_so() -> None:
    with pytest.raises(UndescribedError, match="its class has no forward"):
        describe("bark", "BarkModel")
    with pytest.raises(UndescribedError, match="has to be given 'inference_session', a Sam2VideoInferenceSession"):
        describe("sam2_video", "Sam2VideoModel")
    with pytest.raises(UndescribedError, match=r"^it needs a library that is not installed: .*torchaudio"):
        describe("higgs_audio_v2_tokenizer", "HiggsAudioV2TokenizerModel")


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("glm4v_text.Glm4vTextModel", ["batch", "seq"]),
        ("decision_transformer.DecisionTransformerModel", ["batch", "seq"]),
        ("pe_audio_encoder.PeAudioEncoder", ["batch", "samples"]),
        ("zamba.ZambaModel", ["batch", "seq"]),
        ("chmv2.CHMv2ForDepthEstimation", ["batch", "height", "width"]),
    ],
)
def test_a_model_that_its_errors_describe_runs_at_all_its_sizes(name: str, axes: list[str]) -> None:
    spec = model_spec(f"transformers:{name}", describe(*split(name)))
    assert sorted(axis.name for axis in spec.axes) == axes
    module = models.build(spec)
    for index in range(2):
        sizes = {axis.name: axis.check[index] for axis in spec.axes}
        with torch.no_grad():
            assert module(**models.example_inputs(spec, sizes)) is not None


def test_a_small_config_is_mended_before_a_large_one_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    arguments = describing._arguments

    def noting(kind: Any, model_type: str, degree: str, of_each: int = 1) -> dict[str, Any]:
        run.append(degree)
        return arguments(kind, model_type, degree, of_each)

    monkeypatch.setattr(describing, "_arguments", noting)

    assert "narrow" in describe("zamba", "ZambaModel")["tags"]
    assert {"narrow", "headed", "plain"} == set(run)


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
