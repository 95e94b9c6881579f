"""Sweeps take what `export` takes: exported programs, `.pt2` files, scripted modules, methods of classes, caches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from batch_export import axes
from batch_export.config.model import model_spec
from batch_export.errors import ModelError, UsageError
from batch_export.peers import torchscript
from batch_export.record import Cell
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, ModelSpec
from batch_export.stages import capture, reference, translate
from batch_export.stages import model as model_room
from batch_export.stages.workbench import Workbench

BUILDERS = """
import os
import torch

class Net(torch.nn.Module):
    def __init__(self, width=4, seed=0):
        super().__init__()
        self.linear, self.seed = torch.nn.Linear(width, 3), seed
    def forward(self, x, y):
        return self.linear(x) + y
    @classmethod
    def from_pretrained(cls, name, width=4):
        return cls(width)

class Outer:
    class Inner:
        @staticmethod
        def make():
            return Net()

def program():
    free = {0: torch.export.Dim("batch")}
    inputs = torch.ones(2, 4), torch.ones(2, 3)
    return torch.export.export(Net().eval(), inputs, dynamic_shapes={"x": free, "y": free})

def file(folder):
    path = os.path.join(folder, "net.pt2")
    torch.export.save(program(), path)
    return path

def scripted():
    return torch.jit.script(Net().eval())

def frozen():
    return torch.jit.freeze(scripted())

def seeded(seed):
    return Net(seed=seed)

class Step(torch.nn.Module):
    def forward(self, x, past):
        keys, values = past.update(x, 2 * x, 0)
        return (keys * values).sum(-1), past

class Cross(torch.nn.Module):
    def forward(self, x, past):
        keys, _ = past.self_attention_cache.update(x, x, 0)
        return keys.sum(2) + past.cross_attention_cache.layers[0].values.sum(2)

def maybe_seeded(seed=42):
    return Net(seed=seed)
"""
INPUTS: dict[str, Any] = {
    "x": {"dtype": "float32", "shape": ["batch", 4]},
    "y": {"dtype": "float32", "shape": ["batch", 3]},
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module, importable under a name that no other test uses."""
    name = f"own_models_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(BUILDERS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def spec_of(target: str, **others: Any) -> ModelSpec:
    batch = {"batch": {"example": 2, "check": [5]}}
    return model_spec("sample", {"_target_": target, "inputs": INPUTS, "axes": batch, **others})


def exported(spec: ModelSpec, dynamic: str, folder: Path) -> list[Any]:
    """The axes of the first input in the file, after the steps that a sweep takes."""
    cell = Cell(spec.name, dynamic, 20, "cpu", "core")
    bench = Workbench(cell, spec, ExporterSpec("core", CORE_EXPORTER_TARGET), folder)
    capture.execute(bench)
    made = translate.execute(bench, 20)
    assert made.model is not None
    assert reference.execute(bench).failure is None
    assert bench.captured is not None
    x = onnx.load(made.model.onnx, load_external_data=False).graph.input[0]
    assert x.name == "x"
    return [size.dim_param or size.dim_value for size in x.type.tensor_type.shape.dim]


@pytest.mark.parametrize("builder", ["program", "file", "scripted", "frozen"])
def test_programs_and_scripted_modules_go_through_every_step(module: str, builder: str, tmp_path: Path) -> None:
    arguments = {"folder": os.fspath(tmp_path)} if builder == "file" else {}
    spec = spec_of(f"{module}.{builder}", **arguments)
    assert exported(spec, "full", tmp_path) == ["batch", 4]
    assert exported(spec, "static", tmp_path) == [2, 4]


def test_an_exported_program_is_captured_as_it_is(module: str) -> None:
    built = model_room.build(spec_of(f"{module}.program"))
    program = model_room.exported_program(built)
    assert isinstance(program, torch.export.ExportedProgram)
    assert model_room.exported_program(model_room.build(spec_of(f"{module}.scripted"))) is None
    x, y = torch.randn(3, 4), torch.randn(3, 3)
    torch.testing.assert_close(built(y=y, x=x), built(x, y))


@pytest.mark.parametrize("target", ["Net.from_pretrained", "Outer.Inner.make"])
def test_methods_of_classes_are_builders(module: str, target: str) -> None:
    arguments = {"name": "any"} if "pretrained" in target else {}
    assert type(model_room.build(spec_of(f"{module}.{target}", **arguments))).__name__ == "Net"


def test_a_method_that_is_not_there(module: str) -> None:
    with pytest.raises(ModelError, match=r"Net has no callable 'from_pretraind'; did you mean 'from_pretrained'\?"):
        model_room.build(spec_of(f"{module}.Net.from_pretraind"))


def test_a_builder_argument_called_seed_is_the_configs_seed(module: str) -> None:
    assert model_room.build(spec_of(f"{module}.seeded", seed=7)).seed == 7
    assert model_room.build(spec_of(f"{module}.maybe_seeded", seed=0)).seed == 0
    assert model_room.build(spec_of(f"{module}.maybe_seeded")).seed == 42
    assert not hasattr(model_room.build(spec_of(f"{module}.scripted", seed=3)), "seeded")


def test_the_older_exporter_takes_scripted_modules_by_name(module: str, tmp_path: Path) -> None:
    built = model_room.build(spec_of(f"{module}.scripted"))
    kwargs = {"y": torch.ones(2, 3), "x": torch.ones(2, 4)}
    path = tmp_path / "model.onnx"
    names: dict[str, Any] = {"input_names": ["x", "y"], "output_names": None}
    torchscript.export(built, (), kwargs, path=path, opset_version=17, dynamic_shapes=None, **names)
    assert path.stat().st_size > 0


CACHE = {"cache": "transformers.DynamicCache", "layers": 1, "keys": {"dtype": "float32", "shape": ["batch", 2, 3, 4]}}
HEADS = {"dtype": "float32", "shape": ["batch", 2, 1, 4]}


@pytest.mark.parametrize(
    ("builder", "past", "names"),
    [
        ("Step", CACHE, ["x", "past_key_cache_0", "past_value_cache_0"]),
        (
            "Cross",
            {
                "cache": "transformers.EncoderDecoderCache",
                "self_attention_cache": CACHE,
                "cross_attention_cache": CACHE,
            },
            [
                "x",
                "past_self_attention_cache_key_cache_0",
                "past_self_attention_cache_value_cache_0",
                "past_cross_attention_cache_key_cache_0",
                "past_cross_attention_cache_value_cache_0",
            ],
        ),
    ],
)
def test_caches_are_named_in_the_config(
    module: str, builder: str, past: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    spec = spec_of(f"{module}.{builder}", inputs={"x": HEADS, "past": past})
    assert list(axes.input_names(spec)) == names
    assert exported(spec, "full", tmp_path) == ["batch", 2, 1, 4]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cache": "DynamicCache"}, r"'inputs\.past\.cache' must be a dotted name such as transformers\.DynamicCache"),
        ({"layers": 0}, r"'inputs\.past\.layers' is 0, and a size there must be at least 1"),
        ({"keys": {"shape": [2]}}, r"'inputs\.past' is a cache and needs 'keys'"),
        ({"self_attention_cache": CACHE}, r"'inputs\.past\.cross_attention_cache' is not a cache"),
    ],
)
def test_a_cache_that_is_described_wrongly(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        spec_of("a.b", inputs={"x": HEADS, "past": {**CACHE, **change}})


def test_a_class_that_is_no_cache(module: str) -> None:
    spec = spec_of(f"{module}.Step", inputs={"x": HEADS, "past": {**CACHE, "cache": f"{module}.Net"}})
    with pytest.raises(ModelError, match=r"'cache' names .*\.Net, which is not a cache class"):
        model_room.build(spec)
