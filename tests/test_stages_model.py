"""Twin of `batch_export/stages/model.py`: building by name, seeded inputs, dynamic shapes, one sentence a fault."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from batch_export import axes
from batch_export.config.model import model_spec
from batch_export.errors import LibraryMissingError, ModelError, UsageError
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room

BUILDERS = """
from __future__ import annotations
import functools
import random
import typing
import numpy
import torch
from torch import nn

class Two(nn.Module):
    def __init__(self, width=4, dropout=0.5):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.noise = float(numpy.random.rand()) + random.random()
        self.dropout = nn.Dropout(dropout)
    def forward(self, x, past, *, flag=True):
        return self.dropout(self.linear(x)) + past[0]["key"] if flag else x

class Open(nn.Module):
    def forward(self, x, **others):
        return x + others["y"] + others["z"]

def two(width=4, dropout=0.5):
    return Two(width, dropout)

def kept(**anything):
    module = Two()
    module.keep_training_mode = True
    return module

def open_ended():
    return Open()

class Turned(Two):
    def __init__(self, widths, **others):
        super().__init__(widths[-1], **others)
        widths.reverse()

class Fast(Two):
    def __init__(self, speed=1.0, **others):
        super().__init__(**others)
        self.speed = speed

class Handed(Fast):
    def __init__(self, **others):
        super().__init__(**others)

    @classmethod
    def made(cls, **others):
        return cls(**others)

def turned(widths, **others):
    return Turned(widths, **others)

handed_on = functools.partial(Handed, dropout=0.1)

class Words(typing.TypedDict, total=False):
    speed: float

def worded(**others: typing.Unpack[Words]):
    return Fast(**others)

class Checked(torch._C.FileCheck):
    def __init__(self, **others):
        super().__init__()

    @classmethod
    def made(cls, **others):
        return Fast(**others)

def broken():
    raise ValueError("no such width\\nand more")

def greedy():
    raise MemoryError("too much")

def lazy():
    return None

def needy(depth):
    return Two()

size = 3
"""
INPUTS: dict[str, Any] = {
    "x": {"dtype": "float32", "shape": ["batch", 4]},
    "past": [{"key": {"dtype": "float32", "shape": ["batch", 4]}}],
    "flag": {"value": True},
}
AXES = {"batch": {"example": 2, "check": [1, 5]}}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module with builders, importable under a name that no other test uses."""
    name = f"builders_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(BUILDERS, encoding="utf-8")
    (tmp_path / f"{name}_needs.py").write_text("import surely_not_installed\n", encoding="utf-8")
    (tmp_path / f"{name}_raises.py").write_text("raise RuntimeError('at import')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def spec_of(target: str, inputs: dict[str, Any] | None = None, **others: Any) -> ModelSpec:
    return model_spec("sample", {"_target_": target, "inputs": inputs or INPUTS, "axes": AXES, **others})


def test_a_module_is_built_in_eval_mode_and_from_the_seed(package: str) -> None:
    torch.backends.mha.set_fastpath_enabled(True)
    first = model_room.build(spec_of(f"{package}.two", seed=3))
    torch.rand(7)
    second = model_room.build(spec_of(f"{package}.two", seed=3))
    third = model_room.build(spec_of(f"{package}.two", seed=4))
    assert not first.training
    assert not any(parameter.requires_grad for parameter in first.parameters())
    assert torch.equal(first.linear.weight, second.linear.weight)
    assert first.noise == second.noise != third.noise
    assert not torch.equal(first.linear.weight, third.linear.weight)
    assert not torch.backends.mha.get_fastpath_enabled()


def test_a_model_that_turns_its_list_of_widths_round_does_not_change_the_spec(package: str) -> None:
    spec = spec_of(f"{package}.turned", widths=[8, 4])
    assert [model_room.build(spec).linear.in_features for _ in range(2)] == [4, 4]
    assert spec.arguments == {"widths": [8, 4]}


def test_a_builder_may_keep_the_training_mode(package: str) -> None:
    module = model_room.build(spec_of(f"{package}.kept", colour="any"))
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize(
    ("target", "more", "sentence"),
    [
        ("{}.tow", {}, "has no 'tow'; did you mean 'two'?"),
        ("{}.size", {}, "is a int, which cannot be called"),
        ("{}_absent.two", {}, "there is no module '{}_absent' for its builder"),
        ("{}_needs.two", {}, "imports 'surely_not_installed', which is not installed; install it, and name it"),
        ("{}_raises.two", {}, "importing {}_raises raised RuntimeError: at import"),
        ("{}.broken", {}, "its builder {}.broken raised ValueError: no such width"),
        ("{}.lazy", {}, "its builder {}.lazy returned None; it must return a torch.nn.Module"),
        ("{}.needy", {}, "its builder {}.needy needs the argument 'depth'; set it in the config"),
        ("{}.two", {"witdh": 3}, "has no argument 'witdh'; did you mean 'width'?"),
        ("{}.two", {"tag": ["x"]}, "has no argument 'tag'; did you mean 'tags'?"),
        (
            "{}.kept",
            {"gaurds": "error"},
            "names no parameter 'gaurds', which its **kwargs would take; did you mean 'guards'?",
        ),
        ("{}.handed_on", {"gaurds": "error"}, "names no parameter 'gaurds'"),
        ("{}.worded", {"gaurds": "error"}, "names no parameter 'gaurds'"),
        (
            "{}.Turned",
            {"widths": [4], "tolerence": {}},
            "names no parameter 'tolerence', which its **kwargs would take",
        ),
        ("{}.two", {"inputs": {"y": INPUTS["x"], "past": INPUTS["past"]}}, "forward of Two has no parameter 'y'"),
        ("{}.two", {"inputs": {"x": INPUTS["x"]}}, "forward of Two needs 'past', which 'inputs' does not list"),
        (
            "{}.two",
            {"inputs": {"past": INPUTS["past"], "x": INPUTS["x"]}},
            "takes its inputs in another order than 'inputs' lists them; list x, past",
        ),
    ],
)
def test_what_cannot_be_built_ends_in_one_sentence(
    package: str, target: str, more: dict[str, Any], sentence: str
) -> None:
    spec = spec_of(target.format(package), **more)
    with pytest.raises(ModelError) as caught:
        model_room.build(spec)
    message = str(caught.value)
    assert message.startswith("model 'sample': ")
    assert sentence.format(package) in message
    assert "\n" not in message


def test_builders_that_take_anything_are_given_what_they_or_their_classes_name(package: str) -> None:
    anything = {"colour": "any", "num_inputs": 3, "timesteps": 10, "output_attentions": True}
    assert model_room.build(spec_of(f"{package}.kept", **anything)).training
    for builder in (
        "Handed",
        "Handed.made",
        "handed_on",
        "worded",
        "Checked.made",
    ):  # the last: one without a signature
        assert model_room.build(spec_of(f"{package}.{builder}", speed=2.0)).speed == 2.0
    with pytest.raises(ModelError, match=r"did you mean 'seed'\? Next step: correct the config, or name the parameter"):
        model_room.build(spec_of(f"{package}.kept", speed=2.0))


def test_running_out_of_memory_is_not_blamed_on_the_model(package: str) -> None:
    with pytest.raises(MemoryError):
        model_room.build(spec_of(f"{package}.greedy"))


@pytest.mark.parametrize("library", ["surely_not_installed", "surely_not_installed.part"])
def test_a_missing_library_is_told_apart_before_anything_is_imported(package: str, library: str) -> None:
    spec = spec_of(f"{package}_raises.two", requires=["torch", library])
    with pytest.raises(LibraryMissingError) as caught:
        model_room.build(spec)
    assert str(caught.value) == f"model 'sample' needs the package {library!r}, which is not installed"


def test_the_zoo_wins_over_a_folder_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "torch_basic.py").write_text("def cnn():\n    raise RuntimeError('not the zoo')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    image = {"image": {"dtype": "float32", "shape": ["batch", 3, 8, 8]}}
    assert type(model_room.build(spec_of("models.torch_basic.cnn", image))).__name__ == "ConvNet"


def test_inputs_depend_on_seed_sizes_and_place_only() -> None:
    spec = spec_of("a.b")
    first = model_room.example_inputs(spec, {"batch": 2})
    torch.manual_seed(1)
    again = model_room.example_inputs(spec, {"batch": 2})
    assert list(first) == ["x", "past", "flag"]
    assert first["flag"] is True
    assert torch.equal(first["x"], again["x"])
    assert not torch.equal(first["x"], first["past"][0]["key"])
    assert [tuple(tensor.shape) for tensor in model_room.flat_tensors(first)] == [(2, 4), (2, 4)]
    assert len(model_room.flat_tensors(first)) == len(axes.input_names(spec))
    other = model_room.example_inputs(spec_of("a.b", seed=1), {"batch": 2})
    assert not torch.equal(first["x"], other["x"])


def test_an_input_without_axes_has_a_draw_of_its_own_at_every_size() -> None:
    spec = spec_of("a.b", {"x": INPUTS["x"], "scale": {"dtype": "float32", "shape": [3]}})
    drawn = [model_room.example_inputs(spec, {"batch": size})["scale"] for size in (2, 3, 2)]
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("leaf", "turns"),
    [
        ({"dtype": "bool"}, True),
        ({"dtype": "int64", "range": [0, 2]}, True),
        ({"dtype": "uint8", "range": [3, 5]}, True),
        ({"dtype": "uint16", "range": [0, 2]}, True),
        ({"dtype": "uint64", "range": [0, 2]}, True),
        ({"dtype": "bool", "fill": 1}, False),
        ({"dtype": "bool", "range": [1, 5]}, False),
        ({"dtype": "int64", "range": [0, 3]}, False),
        ({"dtype": "float32", "range": [0, 2]}, False),
    ],
)
def test_inputs_of_two_values_have_the_other_ones_once(leaf: dict[str, Any], turns: bool) -> None:
    spec = replace(spec_of("a.b", {"x": INPUTS["x"], "y": {"shape": [50], **leaf}}), variants=("turned",))
    assert axes.variants(spec) == (("turned",) if turns else ())
    usual, turned = (model_room.example_inputs(spec, {"batch": 2}, word) for word in ("", "turned"))
    assert torch.equal(usual["x"], turned["x"])
    assert usual["y"].dtype == turned["y"].dtype
    assert all(one != other for one, other in zip(usual["y"].tolist(), turned["y"].tolist(), strict=True)) is turns
    assert set(usual["y"].tolist()) == set(turned["y"].tolist())


def test_several_inputs_of_two_values_are_turned_together_and_one_by_one() -> None:
    leaves = {name: {"dtype": "bool", "shape": []} for name in ("a", "b", "c")}
    spec = replace(spec_of("a.b", {"x": INPUTS["x"], **leaves}), variants=("zeros", "turned"))
    assert axes.variants(spec) == ("zeros", "turned", "turned1", "turned2", "turned3")
    usual = model_room.example_inputs(spec, {"batch": 2})
    for variant, turned in (("turned", {"a", "b", "c"}), ("turned1", {"a"}), ("turned3", {"c"})):
        made = model_room.example_inputs(spec, {"batch": 2}, variant)
        assert {name for name in leaves if bool(made[name] != usual[name])} == turned


def test_whole_numbers_and_truth_values_are_at_either_end_beside_ordinary_others() -> None:
    leaves = {
        "mask": {"dtype": "bool", "shape": [40]},
        "bits": {"dtype": "int64", "shape": [40], "range": [0, 2]},
        "ids": {"dtype": "int32", "shape": [40], "range": [-3, 9]},
        "last": {"dtype": "uint8", "shape": [40], "fill": 7},
    }
    spec = replace(spec_of("a.b", {"x": INPUTS["x"], **leaves}), variants=("large", "lowest", "highest"))
    assert axes.variants(spec) == ("large", "lowest", "highest")
    usual = model_room.example_inputs(spec, {"batch": 2})
    for variant, ends in (("lowest", (0, 0, -3, 7)), ("highest", (1, 1, 8, 7)), ("large", (1, 1, 8, 7))):
        made = model_room.example_inputs(spec, {"batch": 2}, variant)
        assert [set(made[name].tolist()) for name in leaves] == [{end} for end in ends]
        assert [made[name].dtype for name in leaves] == [usual[name].dtype for name in leaves]
        assert torch.equal(made["x"], usual["x"]) is (variant != "large")


def test_numbers_around_zero_have_either_sign_throughout() -> None:
    leaves = {
        "y": {"dtype": "float16", "shape": [40]},
        "slope": {"dtype": "float32", "shape": [40], "range": [-1, 4]},
        "share": {"dtype": "float32", "shape": [40], "range": [0, 1]},
        "mask": {"dtype": "bool", "shape": [40]},
    }
    spec = replace(spec_of("a.b", {"x": INPUTS["x"], **leaves}), variants=("negative", "positive"))
    assert axes.variants(spec) == ("negative", "positive")
    usual = model_room.example_inputs(spec, {"batch": 2})
    for variant, sign in (("negative", -1), ("positive", 1)):
        made = model_room.example_inputs(spec, {"batch": 2}, variant)
        for name in ("x", "y"):
            assert usual[name].sign().unique().tolist() == [-1, 1]
            assert torch.equal(made[name], sign * usual[name].abs())
        assert set(usual["slope"].sign().tolist()) == {-1, 1}
        assert set(made["slope"].sign().tolist()) == {sign}
        assert -1 <= float(made["slope"].min()) <= float(made["slope"].max()) <= 4
        assert all(torch.equal(made[name], usual[name]) for name in ("share", "mask"))
    assert (
        axes.variants(
            replace(spec_of("a.b", {"m": INPUTS["x"] | leaves["share"] | {"shape": ["batch"]}}), variants=("negative",))
        )
        == ()
    )


@pytest.mark.parametrize("entry", [{"dtype": "bool"}, {"dtype": "bool", "fill": 1}, {"dtype": "int64", "fill": 1}])
def test_a_mask_has_padding_in_its_second_half(entry: dict[str, Any]) -> None:
    spec = replace(spec_of("a.b", {"x": INPUTS["x"], "mask": {**entry, "shape": ["batch", 5]}}), variants=axes.PADDING)
    assert axes.variants(spec) == axes.PADDING
    half, none = (model_room.example_inputs(spec, {"batch": 2}, variant)["mask"] for variant in axes.PADDING)
    assert half.tolist() == [[1, 1, 1, 0, 0]] * 2
    assert none.tolist() == [[0] * 5] * 2
    assert str(half.dtype) == f"torch.{entry['dtype']}"


@pytest.mark.parametrize("inputs", [{"x": INPUTS["x"]}, {"mask": {"dtype": "bool", "shape": ["batch", 4]}}])
def test_the_ends_of_whole_numbers_are_none_of_their_own_without_others(inputs: dict[str, Any]) -> None:
    assert axes.variants(replace(spec_of("a.b", inputs), variants=("lowest", "highest", "large"))) == ("large",)


def test_whole_numbers_below_zero_have_a_lowest_end() -> None:
    ids = {"dtype": "int64", "shape": ["batch", 4], "range": [-4, 30]}
    assert axes.variants(replace(spec_of("a.b", {"ids": ids}), variants=("zeros", "lowest", "highest"))) == (
        "zeros",
        "lowest",
    )


def test_inputs_leave_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model_room.example_inputs(spec_of("a.b"), {"batch": 2})
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "complex64", "int8", "uint16", "int64", "bool"],
)
@pytest.mark.parametrize("how", [{"range": [1, 5]}, {"fill": 1}, {}])
def test_every_dtype_is_drawn_and_filled(dtype: str, how: dict[str, Any]) -> None:
    if "int" in dtype and not how:
        how = {"range": [0, 3]}
    spec = spec_of("a.b", {"x": {"dtype": dtype, "shape": ["batch", 50], **how}})
    (tensor,) = model_room.flat_tensors(model_room.example_inputs(spec, {"batch": 3}))
    assert tensor.dtype is getattr(torch, dtype)
    assert tensor.shape == (3, 50)
    values = tensor.to(torch.complex64 if tensor.is_complex() else torch.float32)
    if "fill" in how:
        assert bool((values == 1).all())
    else:
        assert len(set(values.flatten().tolist())) > 1 or (dtype == "bool" and how)
    if "range" in how and dtype != "bool" and not tensor.is_complex():
        assert float(values.min()) >= how["range"][0]
        assert float(values.max()) <= how["range"][1] - ("int" in dtype)


def test_sums_of_axes_are_shapes() -> None:
    spec = model_spec(
        "sample",
        {
            "_target_": "a.b",
            "inputs": {
                "mask": {"dtype": "int64", "shape": ["batch", "past+seq"], "fill": 1},
                "past": {"dtype": "float32", "shape": ["past", "seq"]},
            },
            "axes": {name: {"example": size} for name, size in (("batch", 2), ("past", 6), ("seq", 4))},
        },
    )
    assert model_room.example_inputs(spec, {"batch": 1, "past": 0, "seq": 3})["mask"].shape == (1, 3)
    assert model_room.dynamic_shapes(spec, "full") == {
        "mask": {0: "batch", 1: "past+seq"},
        "past": {0: "past", 1: "seq"},
    }
    assert model_room.dynamic_shapes(spec, "past") == {"mask": {1: "past+4"}, "past": {0: "past"}}
    with pytest.raises(UsageError, match="names the axis 'seq'"):
        model_room.example_inputs(spec, {"batch": 1, "past": 0})


def test_dynamic_shapes_are_the_tree_of_the_inputs() -> None:
    spec = spec_of("a.b")
    assert model_room.dynamic_shapes(spec, "static") is None
    assert model_room.dynamic_shapes(spec, "batch") == {
        "x": {0: "batch"},
        "past": [{"key": {0: "batch"}}],
        "flag": None,
    }
    auto = model_room.dynamic_shapes(spec, "auto")
    assert auto is not None
    assert auto["x"] == {0: torch.export.Dim.AUTO}


@pytest.mark.parametrize("strict", [False, True])
def test_open_ended_keyword_arguments_can_be_dynamic(package: str, strict: bool) -> None:
    leaf = INPUTS["x"]
    spec = spec_of(f"{package}.open_ended", {"x": leaf, "y": leaf, "z": leaf})
    module = model_room.build(spec)
    assert list(inspect.signature(module.forward).parameters) == ["x", "y", "z"]
    assert type(module).__name__ == "Open"
    assert model_room.dynamic_shapes(spec, "full") == {name: {0: "batch"} for name in "xyz"}
    dims = {name: {0: torch.export.Dim.DYNAMIC} for name in "xyz"}
    inputs = model_room.example_inputs(spec, {"batch": 2})
    program = torch.export.export(copy.deepcopy(module), (), inputs, dynamic_shapes=dims, strict=strict)
    inputs = model_room.example_inputs(spec, {"batch": 5})
    assert torch.equal(program.module()(**inputs), module(**inputs))


class Scripted(nn.Module):
    """A module that TorchScript can compile; its forward has no Python signature afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def scripted() -> nn.Module:
    return torch.jit.script(Scripted())


def test_a_script_module_is_a_module() -> None:
    module = model_room.build(spec_of(f"{__name__}.scripted", {"x": INPUTS["x"]}))
    assert isinstance(module, torch.jit.ScriptModule)


def unpacked() -> nn.Module:
    return torch.export.export(Scripted(), (torch.ones(2),)).module()


def test_the_module_of_an_exported_program_is_a_module_though_it_has_no_modes() -> None:
    module = model_room.build(spec_of(f"{__name__}.unpacked", {"x": INPUTS["x"]}))
    assert isinstance(module, torch.fx.GraphModule)
