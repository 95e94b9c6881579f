"""ONNXProgram: running, saving in every way, changing, and showing itself."""

from __future__ import annotations

import io
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx_ir.passes import common

from batch_export import ONNXProgram, ONNXRuntimeOptions, export
from batch_export.errors import SaveError
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.program import writing

pytestmark = pytest.mark.sampled


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, more: dict[str, Any], scale: float = 2.0) -> tuple[torch.Tensor, dict[str, Any]]:
        y = self.linear(x) * scale + more["a"][0]
        return y, {"sum": y.sum(), "nothing": None, "pair": (y - 1, more["b"])}


def inputs(batch: int = 2) -> tuple[torch.Tensor, dict[str, Any]]:
    return torch.randn(batch, 32), {"a": [torch.randn(batch, 32)], "b": torch.randn(3)}


@pytest.fixture(scope="module")
def model() -> Nested:
    torch.manual_seed(0)
    return Nested().eval()


@pytest.fixture
def program(model: Nested) -> ONNXProgram:
    shapes = {"x": {0: "batch"}, "more": {"a": [{0: "batch"}], "b": None}}
    return export(model, inputs(), dynamic_shapes=shapes)


def check(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_model_and_exported_program_may_be_set(program: ONNXProgram, model: Nested) -> None:
    other = export(torch.nn.ReLU(), (torch.ones(2),))
    program.model, program.exported_program = other.model, other.exported_program
    assert program(torch.tensor([-1.0, 3.0]))[0].tolist() == [0.0, 3.0]
    assert program.exported_program is not None
    program.exported_program = None
    assert program.exported_program is None


@pytest.mark.parametrize(
    "change",
    [
        common.ShapeInferencePass(),
        common.AddInitializersToInputsPass(),
        common.CommonSubexpressionEliminationPass(),
        common.NameFixPass(),
    ],
    ids=lambda change: type(change).__name__,
)
def test_passes_of_onnx_ir_take_the_model(change: Any, program: ONNXProgram, model: Nested) -> None:
    """Also those that ask a value whether it is there, and those after which weights are inputs too."""
    change(program.model)
    x, more = inputs(5)
    y, rest = model(x, more)
    check(program(x, more), [y, rest["sum"], *rest["pair"]])


def test_values_of_the_model_are_there(program: ONNXProgram) -> None:
    assert set(ir.convenience.create_value_mapping(program.model.graph)) >= {"x", "linear.weight", "linear"}
    assert all(bool(value) for node in program.model.graph for value in node.outputs)


def test_it_runs_on_inputs_nested_as_the_model_takes_them(program: ONNXProgram, model: Nested) -> None:
    x, more = inputs(5)
    y, rest = model(x, more)
    expected = [y, rest["sum"], *rest["pair"]]
    check(program(x, more), expected)
    check(program(x, more=more), expected)
    check(program.adapt_torch_outputs_to_onnx((y, rest)), expected)


def test_too_few_inputs_are_named(program: ONNXProgram) -> None:
    with pytest.raises(ValueError, match="more is missing: the inputs of the model are x, more"):
        program(torch.ones(2, 32))


def test_it_shows_its_graph_and_no_weights(program: ONNXProgram) -> None:
    text = str(program)
    nodes = sum(1 for _ in program.model.graph.all_nodes())
    assert f"{nodes} nodes" in text
    assert "x: FLOAT[batch, 32]" in text
    assert "linear.weight: FLOAT[32, 32]" in text
    assert "Gemm(x, linear.weight, linear.bias)" in text
    assert len(text) < 3000
    assert len(repr(program)) < 200


SAVED = [
    # include, as inputs -> initializers, inputs
    (True, False, True, False),
    (True, True, True, True),
    (False, False, False, False),
    (False, True, False, True),
]


@pytest.mark.parametrize("external", [True, False, None])
@pytest.mark.parametrize(("include", "as_inputs", "stored", "listed"), SAVED)
def test_saving_with_every_option_for_weights(
    program: ONNXProgram,
    tmp_path: Path,
    include: bool,
    as_inputs: bool,
    stored: bool,
    listed: bool,
    external: bool | None,
) -> None:
    path = tmp_path / "model.onnx"
    program.save(path, include_initializers=include, keep_initializers_as_inputs=as_inputs, external_data=external)

    read = onnx.load(path)
    weights = {"linear.weight", "linear.bias"}
    assert ({value.name for value in read.graph.initializer} & weights == weights) is stored
    assert ({value.name for value in read.graph.input} & weights == weights) is listed
    assert (tmp_path / "model.onnx.data").exists() is bool(external and stored)
    assert [value.name for value in program.model.graph.inputs] == ["x", "more_a_0", "more_b"]
    assert "linear.weight" in program.model.graph.initializers
    if stored:
        onnx.checker.check_model(path, full_check=True)
        onnxruntime.InferenceSession(path)


def test_saving_to_a_file_object(program: ONNXProgram) -> None:
    stream = io.BytesIO()
    program.save(stream)
    onnxruntime.InferenceSession(stream.getvalue())
    with pytest.raises(TypeError, match="needs a path"):
        program.save(io.BytesIO(), external_data=True)


def test_a_model_beyond_the_limit_of_one_file(
    program: ONNXProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PROTO_LIMIT_BYTES", 1000)
    program.save(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size >= 32 * 32 * 4
    with pytest.raises(SaveError, match=r"a single ONNX file holds 1,000.*save to a path"):
        program.save(io.BytesIO())
    with pytest.raises(SaveError, match="leave out external_data=False"):
        program.save(tmp_path / "other.onnx", external_data=False)


def test_a_model_state_replaces_the_weights_of_the_file_only(
    program: ONNXProgram, model: Nested, tmp_path: Path
) -> None:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    program.save(tmp_path / "model.onnx", model_state=zeros)
    saved = {value.name: value for value in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert not onnx.numpy_helper.to_array(saved["linear.weight"]).any()
    assert program.model.graph.initializers["linear.weight"].const_value.raw is model.linear.weight
    with pytest.raises(ValueError, match="choose one"):
        program.save(tmp_path / "model.onnx", model_state=zeros, include_initializers=False)


def test_an_unwritable_destination(program: ONNXProgram, tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="could not be written to") as caught:
        program.save(tmp_path / "missing" / "model.onnx")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_the_proto_is_the_model(program: ONNXProgram) -> None:
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert program.model_proto.producer_name == "batch_export"


def test_applied_weights_are_used_although_a_session_was_open(program: ONNXProgram, model: Nested) -> None:
    x, more = inputs()
    before = program(x, more)[0]
    program.apply_weights({name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()})
    after = program(x, more)[0]
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, more["a"][0])


def test_a_bias_of_zeros_is_a_weight_like_any_other() -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Conv1d(3, 3, 1), torch.nn.LayerNorm(4)).eval()
    torch.nn.init.zeros_(model[1].bias)
    x = torch.randn(2, 3, 4)
    program = export(model, (x,))
    trained = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Conv1d(3, 3, 1), torch.nn.LayerNorm(4)).eval()
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.normal_()
    program.apply_weights(trained.state_dict())
    torch.testing.assert_close(program(x)[0], trained(x), atol=1e-5, rtol=1e-4)


def test_intermediate_values(program: ONNXProgram, model: Nested) -> None:
    x, more = inputs()
    values = program.compute_values(["linear"], (x, more))
    torch.testing.assert_close(values["linear"], model.linear(x), atol=1e-5, rtol=1e-5)
    assert len(program(x, more)) == 4
    with pytest.raises(ValueError, match="no values named missing"):
        program.compute_values(["missing"], (x, more))


def test_optimising_later(model: Nested) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1) * (x + 1)

    program = export(Twice(), (torch.ones(2),), optimize=False)
    assert sum(1 for _ in program.model.graph) == 3
    program.optimize()
    assert sum(1 for _ in program.model.graph) == 2
    torch.testing.assert_close(program(torch.ones(2))[0], torch.tensor([4.0, 4.0]))


def test_sessions_with_options(program: ONNXProgram, model: Nested) -> None:
    x, more = inputs()
    expected = model(x, more)[0]
    seen: list[str] = []

    def initializer(path: Any) -> onnxruntime.InferenceSession:
        seen.append(path)
        return onnxruntime.InferenceSession(path)

    program.initialize_inference_session(initializer)
    torch.testing.assert_close(program(x, more)[0], expected, atol=1e-5, rtol=1e-5)
    assert len(seen) == 1
    program.release()
    assert not Path(seen[0]).exists()

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = ""
    program.initialize_inference_session(
        session_options=options, execution_providers=["CPUExecutionProvider"], execution_provider_options=[{}]
    )
    torch.testing.assert_close(program(x, more)[0], expected, atol=1e-5, rtol=1e-5)
    wanted = ONNXRuntimeOptions(execution_providers=["CPUExecutionProvider"])
    for given in (wanted, wanted.initializer()):
        program.initialize_inference_session(given)
        torch.testing.assert_close(program(x, more)[0], expected, atol=1e-5, rtol=1e-5)


class Joined(torch.nn.Module):
    def forward(self, past: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([past, x])


def test_renamed_axes_also_inside_expressions_and_metadata() -> None:
    axes = ({0: "past"}, {0: "seq"})
    program = export(Joined(), (torch.ones(3, 2), torch.ones(4, 2)), dynamic_shapes=axes)
    assert program.model.graph.outputs[0].shape == ("past + seq", 2)
    program.rename_axes({"past": "history"})
    assert program.model.graph.inputs[0].shape == ("history", 2)
    assert program.model.graph.outputs[0].shape == ("history + seq", 2)
    ranges = program.model.graph.metadata_props["pkg.torch.export.ExportedProgram.range_constraints"]
    assert "history: VR" in ranges
    assert "past" not in ranges
    program.rename_axes({"history + seq": "total"})
    assert program.model.graph.outputs[0].shape == ("total", 2)
    with pytest.warns(UserWarning, match=r"no axis is called past; the axes are history, seq"):
        program.rename_axes({"past": "x"})
    axis = program.model.graph.inputs[1].shape[0]
    program.rename_axes({axis: "step"})
    assert program.model.graph.inputs[1].shape == ("step", 2)


def test_programs_of_one_capture_are_renamed_and_optimised_apart() -> None:
    captured = capture(Joined(), (torch.ones(3, 2), torch.ones(4, 2)), {}, dynamic_shapes=({0: "past"}, {0: "seq"}))
    first, second = (to_onnx(captured, 20, optimize=False) for _ in range(2))
    first.rename_axes({"past": "history"})
    first.optimize()
    assert first.captured is not None
    assert second.captured is not None
    assert sorted(first.captured.axis_names.values()) == ["history", "seq"]
    assert sorted(second.captured.axis_names.values()) == ["past", "seq"]
    assert first.passes
    assert not second.passes
    with pytest.raises(FrozenInstanceError):
        first.provenance.exporter = "another"  # type: ignore[misc]


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def test_outputs_that_are_buffers_come_from_the_model() -> None:
    model = Counting()
    program = export(model, (torch.ones(2),))
    fresh = Counting()
    expected = fresh(torch.ones(2))
    adapted = program.adapt_torch_outputs_to_onnx(expected, model_with_state_dict=fresh)
    given = program(torch.ones(2))
    check([*given, *given.mutated.values()], adapted)
    assert adapted[1].item() == 1.0


def test_the_documented_adapter_examples() -> None:
    def takes(x_dict: dict[str, torch.Tensor], y_tuple: Any) -> torch.Tensor:
        x = x_dict["a"] if "a" in x_dict else x_dict["b"]
        y1, (y2, y3) = y_tuple
        return x + y1 + y2 + y3

    x_dict = {"a": torch.tensor(1.0)}
    y_tuple = (torch.tensor(2.0), (torch.tensor(3.0), torch.tensor(4.0)))
    program = export(takes, (x_dict, y_tuple))
    adapted = program.adapt_torch_inputs_to_onnx(x_dict, y_tuple, model_with_state_dict=takes)
    assert adapted == (torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0), torch.tensor(4.0))
    assert program(x_dict, y_tuple)[0].item() == 10.0

    def gives(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        x = x + y
        y = y + z
        return (x, (y, x + y))

    values = (torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0))
    program = export(gives, values)
    assert program.adapt_torch_outputs_to_onnx(gives(*values), model_with_state_dict=gives) == [
        torch.tensor(3.0),
        torch.tensor(5.0),
        torch.tensor(8.0),
    ]


def test_complex_inputs_and_outputs_are_pairs_of_reals() -> None:
    def turn(x: torch.Tensor) -> torch.Tensor:
        return x * x

    x = torch.randn(3, dtype=torch.complex64)
    program = export(turn, (x,))
    torch.testing.assert_close(torch.view_as_complex(program(x)[0]), x * x)
