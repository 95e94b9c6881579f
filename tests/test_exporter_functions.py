"""`modules_as_functions`: calls of modules as functions of the model, which compute what the file without them does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from exporting import assert_same, eager
from torch import nn

from batch_export.conversion.convert import convert
from batch_export.errors import OnnxExporterError
from batch_export.exporter import ONNXProgram, export
from batch_export.exporter.functions import calls
from batch_export.exporter.functions.making import make_functions
from batch_export.runtime.registered import RUNTIMES
from benchmarks.module_functions import difference, saved

pytestmark = pytest.mark.sampled

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
BATCH = ({0: "batch"},)


class Layer(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.norm, self.linear, self.scale = nn.LayerNorm(4), nn.Linear(4, 4), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.linear(self.norm(x))) * self.scale


class Masked(Layer):
    """What it computes of the mask is the same in all layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[1]).unsqueeze(-1) < x.shape[0]
        return super().forward(x).masked_fill(mask, 0.5)


class Branching(Layer):
    """Its branches read what is outside of them: a weight, and what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) * self.scale + 2, lambda x: self.norm(x) - 1.5, (x,))


class Choosing(Layer):
    """A buffer decides, which is known when a file is written, for values whose axes are as free as before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keep", torch.ones(1, 1, 1, dtype=torch.bool))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self.keep, super().forward(x), x * 3)


class Returning(Layer):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        made = super().forward(x)
        return made, made.mean(-1)


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module, calls: int = 1) -> None:
        super().__init__()
        self.layers, self.calls = nn.ModuleList(layers), calls

    def forward(self, x: torch.Tensor) -> Any:
        means = []
        for layer in self.layers:
            for _ in range(self.calls):
                x = layer(x)
                if isinstance(x, tuple):
                    x, mean = x
                    means.append(mean)
        return (x, *means[1:]) if means else x


class Convolving(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu()


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = make().eval()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm1d):
            nn.init.uniform_(norm.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(norm.weight)
    return model


def both(model: nn.Module, folder: Path, modules: Any = True, **options: Any) -> ONNXProgram:
    """The program with functions, whose file is compared with the one without, and its numbers with eager's."""
    plain = export(model, (X,), **options)
    program = export(model, (X,), modules_as_functions=modules, **options)
    assert difference(saved(plain, folder), saved(program, folder)) == ""
    for given in (X, X[:1] + 1):
        if options.get("dynamic_shapes") or given is X:
            assert_same(program(given), eager(model, (given,)))
    program.release()
    return program


def made(program: ONNXProgram) -> dict[str, tuple[str, ...]]:
    return {one.name: one.calls for one in program.functions.made}


STACKS: dict[str, tuple[Callable[[], nn.Module], dict[str, int]]] = {
    "alike": (lambda: Stack(*(Layer() for _ in range(4))), {"Layer": 4}),
    "not shared in the capture": (lambda: Stack(Layer(), Layer()), {"Layer": 2}),
    "another number": (lambda: Stack(*map(Layer, (1.0, 2.0, 2.0))), {"Layer": 1, "Layer_1": 2}),
    "called twice": (lambda: Stack(Layer(), Layer(), calls=2), {"Layer": 4}),
    "computed once for all": (lambda: Stack(Masked(), Masked(), Masked()), {"Masked": 3}),
    "with branches": (lambda: Stack(Branching(), Branching(), Branching(3.0)), {"Branching": 2, "Branching_1": 1}),
    "a result that one caller does not read": (
        lambda: Stack(*(Returning() for _ in range(3))),
        {"Returning": 1, "Returning_1": 2},
    ),
    "choices that a buffer decides": (lambda: Stack(*(Choosing() for _ in range(3))), {"Choosing": 3}),
    "weights that are folded": (lambda: Stack(*(Convolving() for _ in range(3))), {"Convolving": 3}),
}


@pytest.mark.parametrize("what", STACKS)
@pytest.mark.parametrize("shapes", [None, BATCH], ids=["static", "free"])
def test_a_function_stands_for_all_calls_that_do_the_same(what: str, shapes: Any, tmp_path: Path) -> None:
    make, counts = STACKS[what]
    model = seeded(make)
    program = both(model, tmp_path, [type(model.layers[0])], dynamic_shapes=shapes)  # type: ignore[index]
    assert {name: len(found) for name, found in made(program).items()} == counts
    assert program.functions.left == {}


def test_calls_name_their_modules_and_take_their_weights() -> None:
    program = export(seeded(lambda: Stack(Layer(), Layer(), calls=2)), (X,), modules_as_functions=[Layer])
    assert made(program) == {"Layer": ("layers.0", "layers.0@1", "layers.1", "layers.1@1")}
    nodes = [node for node in program.model.graph if node.op_type == "Layer"]
    weights = ["norm.weight", "norm.bias", "linear.bias"]  # the other one is turned once for both calls
    assert [[value.name for value in node.inputs][2:] for node in nodes] == [
        [f"layers.{at}.{name}" for name in weights] for at in (0, 0, 1, 1)
    ]
    (function,) = program.model.functions.values()
    assert [value.name for value in function.inputs][2:] == weights
    assert function.domain == Layer.__module__
    assert nodes[0].metadata_props["batch_export.module"] == "layers.0"
    assert "function test_exporter_functions::Layer(" in str(program)


def test_all_modules_are_functions_that_call_one_another(tmp_path: Path) -> None:
    program = both(seeded(lambda: Stack(Layer(), Layer(), Layer())), tmp_path, True, dynamic_shapes=BATCH)
    assert {name: len(found) for name, found in made(program).items()} == {"LayerNorm": 3, "Linear": 3, "Layer": 3}
    assert [node.op_type for node in program.model.graph] == ["Layer"] * 3
    layer = next(one for one in program.model.functions.values() if one.name == "Layer")
    assert {"LayerNorm", "Linear"} <= {node.op_type for node in layer}


class Counting(Layer):
    """Reads a size, which torch says is of a module that is none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * x.shape[0]


@pytest.mark.parametrize("optimize", [True, False])
def test_sizes_are_no_module(optimize: bool, tmp_path: Path) -> None:
    model = seeded(lambda: Stack(Counting(), Counting()))
    program = both(model, tmp_path, True, dynamic_shapes=BATCH, optimize=optimize)
    assert set(made(program)) == {"LayerNorm", "Linear", "Counting"}
    assert program.functions.wanted == {one.kind for one in program.functions.made}


@pytest.mark.parametrize("opset", [13, 17, 21, 24])
def test_functions_are_at_the_opset_of_the_file(opset: int, tmp_path: Path) -> None:
    program = both(seeded(lambda: Stack(Layer(), Layer())), tmp_path, True, opset_version=opset)
    file = saved(program, tmp_path)
    assert {entry.domain: entry.version for entry in file.opset_import}[""] == opset
    assert {entry.version for one in file.functions for entry in one.opset_import if not entry.domain} == {opset}
    assert file.ir_version >= 8


def test_other_weights_reach_every_call(tmp_path: Path) -> None:
    model, other = (seeded(lambda: Stack(Convolving(), Convolving())) for _ in range(2))
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.5)
    program = export(model, (X,), modules_as_functions=[Convolving], dynamic_shapes=BATCH)
    program.save(tmp_path / "other.onnx", model_state=other, external_data=True)
    program.save(tmp_path / "inputs.onnx", keep_initializers_as_inputs=True)
    onnx.checker.check_model(onnx.load(tmp_path / "inputs.onnx"), full_check=True)
    expected = export(other, (X,), dynamic_shapes=BATCH)
    file = onnx.load(tmp_path / "other.onnx")
    assert difference(saved(expected, tmp_path), file) == ""
    program.apply_weights(other)
    assert_same(program(X), eager(other, (X,)))
    program.release()


def test_a_program_with_functions_is_optimised_later(tmp_path: Path) -> None:
    model = seeded(lambda: Stack(Turning(), Turning(), Turning()))
    program = export(model, (X,), modules_as_functions=True, optimize=False)
    before = sum(len(list(one)) for one in program.model.functions.values())
    program.optimize()
    assert sum(len(list(one)) for one in program.model.functions.values()) < before
    plain = export(model, (X,), optimize=False)
    plain.optimize()
    assert difference(saved(plain, tmp_path), saved(program, tmp_path)) == ""
    assert_same(program(X), eager(model, (X,)))
    program.release()


class Turning(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.transpose(0, 1).transpose(0, 1))


def test_names_of_axes_and_values_in_the_graph_stay(tmp_path: Path) -> None:
    program = export(
        seeded(lambda: Stack(Layer(), Layer())),
        (X,),
        tmp_path / "model.onnx",
        modules_as_functions=True,
        dynamic_shapes=BATCH,
        input_names=["given"],
        output_names=["gives"],
        verify=True,
        report=True,
        artifacts_dir=tmp_path,
    )
    program.rename_axes({"batch": "rows"})
    assert [str(value.shape) for value in (*program.model.graph.inputs, *program.model.graph.outputs)] == [
        "[rows,3,4]"
    ] * 2
    (layer,) = (one for one in program.model.functions.values() if one.name == "Layer")
    assert [str(value.shape) for value in (layer.inputs[0], *layer.outputs)] == ["[rows,3,4]"] * 2
    assert (program.model.graph.inputs[0].name, program.model.graph.outputs[0].name) == ("given", "gives")
    assert [value.shape for value in program.compute_values(["gives"], (X,)).values()] == [X.shape]
    report = next(tmp_path.glob("*_success.md")).read_text(encoding="utf-8")
    assert f"| Layer | {Layer.__module__}.Layer | 2 |" in report


def test_conversion_to_another_opset_writes_functions_out(tmp_path: Path) -> None:
    model = seeded(lambda: Stack(Layer(), Layer()))
    export(model, (X,), tmp_path / "model.onnx", modules_as_functions=True, opset_version=18)
    convert(tmp_path / "model.onnx", 21, tmp_path / "other.onnx")
    assert not onnx.load(tmp_path / "other.onnx").functions


def test_nodes_of_others_between_those_of_a_call() -> None:
    """They go before or after it; where they can do neither, the call is no function."""
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["": 20]> main (float[2] x) => (float[2] e, float[2] f) {
            a = Sin(x)
            b = Cos(a)
            c = Tan(b)
            d = Exp(c)
            e = Abs(d)
            f = Neg(b)
        }"""
    )
    inner, around = calls.ModuleCall("inner", 0, "m.Inner"), calls.ModuleCall("around", 0, "m.Around")
    where = [(inner,), (), (inner,), (around,), (), (around,)]
    for node, found in zip(model.graph, where, strict=True):
        calls.write(node, found)
    functions = make_functions(model, {"m.Inner", "m.Around"})
    assert [node.op_type for node in model.graph] == ["Sin", "Cos", "Tan", "Around", "Abs"]
    assert [one.name for one in functions.made] == ["Around"]
    assert functions.left == {"inner": "nodes of others lie between its own, which need them and which they need"}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_the_deprecated_parameter_leads_here() -> None:
    with pytest.warns(DeprecationWarning, match="export_modules_as_functions is deprecated; .*modules_as_functions"):
        program = export(Stack(nn.Linear(4, 4), calls=2).eval(), (X,), export_modules_as_functions={nn.Linear})
    assert made(program) == {"Linear": ("layers.0", "layers.0@1")}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["no.such.Class"], "no.such.Class, which cannot be imported: No module named 'no'.*package.module.Class"),
        (["torch.nn.Nothing"], "torch.nn.Nothing, which cannot be imported: .*no attribute 'Nothing'"),
        ([torch.Tensor], "is no class of modules.*classes of torch.nn.Module"),
        (3, "holds 3, which is no class of modules"),
        ([nn.Conv2d], r"torch.nn.modules.conv.Conv2d, and no call .*it has calls of: .*test_exporter_functions.Layer"),
    ],
)
def test_classes_that_cannot_be(asked: Any, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=message):
        export(Stack(Layer()).eval(), (X,), modules_as_functions=asked)


def test_the_torchscript_exporter_has_none() -> None:
    with pytest.raises(OnnxExporterError, match="TorchScript exporter writes no functions"):
        export(Stack(Layer()).eval(), (X,), modules_as_functions=True, dynamo=False)


def test_a_name_stands_for_its_class() -> None:
    program = export(Stack(Layer(), Layer()).eval(), (X,), modules_as_functions=["torch.nn.LayerNorm"])
    assert made(program) == {"LayerNorm": ("layers.0.norm", "layers.1.norm")}


def test_runtimes_say_whether_they_inline_functions() -> None:
    assert {name for name, runtime in RUNTIMES.items() if not runtime.functions} == {"openvino", "tract", "iree"}
