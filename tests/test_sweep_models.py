"""Sweeps take what `export` takes: exported programs, `.pt2` files, scripted modules, methods of classes, caches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from batch_export.config.model import model_spec
from batch_export.errors import ModelError
from batch_export.peers import torchscript
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
    axes = {"batch": {"example": 2, "check": [5]}}
    return model_spec("sample", {"_target_": target, "inputs": INPUTS, "axes": axes, **others})


def exported(spec: ModelSpec, dynamic: str, folder: Path) -> list[Any]:
    """The axes of the first input in the file, after the steps that a sweep takes."""
    bench = Workbench(spec, dynamic, ExporterSpec("core", CORE_EXPORTER_TARGET), folder)
    capture.execute(bench)
    made = translate.execute(bench, 20, None)
    assert made.model is not None
    assert reference.execute(bench).failure is None
    assert bench.captured is not None
    import onnx

    (x, _) = onnx.load(made.model.onnx, load_external_data=False).graph.input
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
