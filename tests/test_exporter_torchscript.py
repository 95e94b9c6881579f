"""Scripted, traced and frozen modules, with inputs by position and by name."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rarer
import torch

from batch_export import export
from batch_export.errors import CaptureError

pytestmark = pytest.mark.sampled

X = torch.randn(3, 4)


class Optional(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, scale: float = 2.0) -> torch.Tensor:
        if y is not None:
            x = x + y
        return x * scale


class Nested(torch.nn.Module):
    def forward(self, xs: list[torch.Tensor], more: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return xs[0] + more["a"], xs[1]


def _layer() -> torch.nn.Module:
    return torch.nn.Linear(4, 3).eval()


@pytest.mark.parametrize("kind", ["scripted", "traced", "frozen", "optimised"])
def test_inputs_by_position_and_by_name(kind: str) -> None:
    model: Any = {
        "scripted": lambda: torch.jit.script(_layer()),
        "traced": lambda: torch.jit.trace(_layer(), X),
        "frozen": lambda: torch.jit.freeze(torch.jit.script(_layer())),
        "optimised": lambda: torch.jit.optimize_for_inference(torch.jit.script(_layer())),
    }[kind]()
    expected = model(X)
    free = {} if kind == "optimised" else {"dynamic_shapes": ({0: "batch"},)}
    for args, kwargs in (((X,), {}), ((), {"input": X})):
        program = export(model, args, kwargs=kwargs, verify=True, **free)
        assert [value.name for value in program.model.graph.inputs] == ["input"]
        torch.testing.assert_close(program(*args, **kwargs)[0], expected, atol=1e-5, rtol=1e-5)


def test_parameters_with_defaults() -> None:
    model = torch.jit.script(Optional())
    program = export(model, (X,), dynamic_shapes=({0: "batch"},))
    assert program.model.graph.inputs[0].shape == ("batch", 4)
    torch.testing.assert_close(program(X)[0], X * 2)
    torch.testing.assert_close(export(model, (X,), kwargs={"scale": 3.0})(X)[0], X * 3)


def test_nested_inputs_and_outputs() -> None:
    inputs = ([X, X + 1], {"a": X})
    program = export(torch.jit.script(Nested()), inputs)
    assert [value.name for value in program.model.graph.inputs] == ["xs_0", "xs_1", "more_a"]
    for one, other in zip(program(*copy.deepcopy(inputs)), Nested()(*inputs), strict=True):
        torch.testing.assert_close(one, other)


def test_inputs_that_do_not_fit() -> None:
    model = torch.jit.script(Optional())
    with pytest.raises(CaptureError, match=r"do not fit forward\(x, y, scale\): x is missing"):
        export(model, (), kwargs={"scale": 1.0})
    with pytest.raises(CaptureError, match=r"do not fit forward\(x, y, scale\): z too many"):
        export(model, (X,), kwargs={"z": X})


def test_an_optional_tensor_that_is_given() -> None:
    program = export(torch.jit.script(Optional()), (X, X))
    torch.testing.assert_close(program(X, X)[0], X * 4)


def test_the_torchscript_exporter_takes_them_by_name() -> None:
    model = torch.jit.script(_layer())
    with pytest.warns(DeprecationWarning, match="TorchScript-based ONNX export"):
        program = export(model, (), kwargs={"input": X}, dynamo=False)
    torch.testing.assert_close(program(input=X)[0], model(X), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("first", rarer.first(1, [True, False]), ids=["after ours is loaded", "before"])
def test_ours_in_the_place_of_torchs_still_finds_torchs(first: bool, tmp_path: Path) -> None:
    """`torch.onnx.export = batch_export.export`, and `dynamo=False` behind it."""
    script = f"""
import io, sys, warnings, torch, batch_export
torch.onnx.export = batch_export.export if {first} else (lambda *args, **kwargs: batch_export.export(*args, **kwargs))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    program = torch.onnx.export(torch.nn.ReLU(), (torch.randn(2),), dynamo=False)
assert program.exporter == "torchscript", program
deprecated = [one for one in told if issubclass(one.category, DeprecationWarning)]
assert [one.filename for one in deprecated] == ["<string>"], [str(one) for one in deprecated]
assert "You are using the legacy TorchScript-based ONNX export" in str(deprecated[0].message), deprecated[0]
assert isinstance(program, torch.onnx.ONNXProgram)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


ONES, FIVES = torch.ones(3), torch.full((3,), 5.0)


class TensorDefaults(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor = ONES, z: torch.Tensor = FIVES) -> torch.Tensor:
        return x + y * 2 + z * 3


@pytest.mark.parametrize(
    ("args", "kwargs", "names"),
    [
        ((torch.randn(2, 3),), {}, ["x"]),
        ((torch.randn(2, 3), torch.randn(3)), {}, ["x", "y"]),
        ((torch.randn(2, 3),), {"z": torch.randn(3)}, ["x", "z"]),
        ((torch.randn(2, 3),), {"z": torch.randn(3), "y": torch.randn(3)}, ["x", "y", "z"]),
    ],
)
def test_defaults_that_are_tensors_are_no_inputs(args: Any, kwargs: Any, names: list[str]) -> None:
    program = export(torch.jit.script(TensorDefaults()), args, kwargs=kwargs, dynamic_shapes=({0: "batch"},))
    assert [value.name for value in program.model.graph.inputs] == names
    assert program.model.graph.inputs[0].shape == ("batch", 3)
    torch.testing.assert_close(program(*args, **kwargs)[0], TensorDefaults()(*args, **kwargs))
