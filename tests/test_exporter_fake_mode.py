"""Fake mode: models built and exported without memory, and weights applied afterwards from every kind of source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import save_file

from batch_export import ONNXFakeContext, enable_fake_mode, export
from batch_export.errors import SaveError
from batch_export.exporter.program.program import ONNXProgram


class Scaled(torch.nn.Module):
    """The documented example: a model with one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(42.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight + x


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 16)
        self.norm = torch.nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(torch.relu(self.linear(x)))
        return result


def fake_layers(**options: Any) -> ONNXProgram:
    with enable_fake_mode():
        model = Layers().eval()
        x = torch.randn(4, 8)
    return export(model, (x,), **options)


def real_layers() -> Layers:
    torch.manual_seed(1)
    model = Layers().eval()
    model.norm.running_mean.add_(0.5)
    return model


def test_the_documented_example(tmp_path: Path) -> None:
    with enable_fake_mode() as context:
        model = Scaled()
        x = torch.randn(2, 2, 2)
    assert isinstance(context, ONNXFakeContext)
    program = export(model, (x,), dynamo=True, optimize=False)
    assert program.fake_context == context

    bare = tmp_path / "my_model_without_initializers.onnx"
    program.save(bare, include_initializers=False, keep_initializers_as_inputs=True)
    read = onnx.load(bare)
    assert [value.name for value in read.graph.input] == ["x", "weight"]
    assert not read.graph.initializer

    program.apply_weights({"weight": torch.tensor(42.0)})
    full = tmp_path / "my_model_with_initializers.onnx"
    program.save(full)
    assert [value.name for value in onnx.load(full).graph.initializer] == ["weight"]
    assert program(torch.ones(2, 2, 2))[0].unique().tolist() == [43.0]


def test_export_inside_the_context_too() -> None:
    with enable_fake_mode():
        program = export(Scaled(), (torch.randn(2, 2),))
    program.apply_weights({"weight": torch.tensor(1.0)})
    assert program(torch.zeros(2, 2))[0].tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("source", ["state dict", "module", "checkpoint", "nested checkpoint", "safetensors", "index"])
def test_weights_come_from_every_kind_of_source(source: str, tmp_path: Path) -> None:
    model = real_layers()
    program = fake_layers(dynamic_shapes=({0: "batch"},))
    program.apply_weights(model_state(source, model, tmp_path))
    x = torch.randn(7, 8)
    torch.testing.assert_close(program(x)[0], model(x), atol=1e-6, rtol=1e-5)


def model_state(source: str, model: torch.nn.Module, folder: Path) -> Any:
    if source == "module":
        return model
    state = model.state_dict()
    if source == "state dict":
        return state
    if source == "safetensors":
        save_file(state, folder / "model.safetensors")
        return folder / "model.safetensors"
    if source == "index":
        halves = {"one.safetensors": ["linear.weight", "linear.bias"]}
        halves["two.safetensors"] = [name for name in state if name not in halves["one.safetensors"]]
        for file, names in halves.items():
            save_file({name: state[name] for name in names}, folder / file)
        listed = ", ".join(f'"{name}": "{file}"' for file, names in halves.items() for name in names)
        path = folder / "model.safetensors.index.json"
        path.write_text(f'{{"weight_map": {{{listed}}}}}')
        return str(path)
    path = folder / "model.pt"
    torch.save({"state_dict": state} if source == "nested checkpoint" else state, path)
    return str(path)


def test_model_state_is_for_one_file_only(tmp_path: Path) -> None:
    model = real_layers()
    program = fake_layers()
    program.save(tmp_path / "model.onnx", model_state=model.state_dict())
    initializers = {value.name: value for value in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert onnx.numpy_helper.to_array(initializers["linear.bias"]).tolist() == model.linear.bias.tolist()
    with pytest.raises(SaveError, match="weights have no data"):
        program.save(tmp_path / "again.onnx")


def test_saving_fake_weights_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match=r"weights have no data .*: linear\.weight.*apply_weights"):
        fake_layers().save(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        SaveError, match=r"the weight linear\.bias is FLOAT\[16\] in the model, and FLOAT\[3\] was given"
    ):
        fake_layers().apply_weights({"linear.bias": torch.zeros(3)})
    with pytest.raises(SaveError, match="DOUBLE"):
        fake_layers().apply_weights({"linear.bias": torch.zeros(16, dtype=torch.float64)})


def test_unknown_weights_are_a_warning() -> None:
    with pytest.warns(UserWarning, match="no weights named lineal.bias"):
        fake_layers().apply_weights({"lineal.bias": torch.zeros(16)})


def test_a_checkpoint_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"no weights")
    with pytest.raises(SaveError, match="could not be read"):
        fake_layers().apply_weights(tmp_path / "model.pt")
    with pytest.raises(SaveError, match="there is no checkpoint"):
        fake_layers().apply_weights(tmp_path / "missing.pt")


def test_a_checkpoint_with_code_in_it_is_not_executed(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1), "code": Layers}, tmp_path / "model.pt")
    with pytest.raises(SaveError, match="could not be read"):
        fake_layers().apply_weights(tmp_path / "model.pt")


def test_a_real_model_has_no_fake_context() -> None:
    assert export(Scaled(), (torch.ones(2),)).fake_context is None
