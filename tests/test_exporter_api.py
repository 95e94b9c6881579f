"""`export`: every documented parameter does what the documentation says, or says what to do instead."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import onnx
import onnx_ir.passes.common as common_passes
import pytest
import torch
from exporting import Called

import batch_export
from batch_export import (
    DiagnosticOptions,
    ExportOptions,
    OnnxExporterError,
    ONNXProgram,
    OnnxRegistry,
    dynamo_export,
    enable_fake_mode,
    export,
)
from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning, OpsetError, VerificationError

pytestmark = pytest.mark.sampled

DOCUMENTED = [
    *("model", "args", "f", "kwargs", "export_params", "verbose", "input_names", "output_names", "opset_version"),
    *("dynamic_axes", "keep_initializers_as_inputs", "dynamo", "external_data", "dynamic_shapes"),
    *("custom_translation_table", "report", "optimize", "verify", "profile", "dump_exported_program"),
    *("artifacts_dir", "fallback"),
]


class Affine(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(20, 20)

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
        result: torch.Tensor = self.linear(x) * scale
        return result if y is None else result + y


class Dicts(torch.nn.Module):
    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
        return x + more["a"]


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=1)


@pytest.fixture(scope="module")
def model() -> Affine:
    return Affine().eval()


X = torch.ones(3, 20)


def names(program: ONNXProgram) -> list[str]:
    return [value.name or "" for value in program.model.graph.inputs]


def test_the_documented_parameters_are_all_there() -> None:
    parameters = inspect.signature(export).parameters
    assert list(parameters)[: len(DOCUMENTED)] == DOCUMENTED
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in DOCUMENTED[3:])


@pytest.mark.parametrize(
    ("args", "kwargs", "inputs"),
    [
        ((X,), None, ["x"]),
        (X, None, ["x"]),
        ([X], None, ["x"]),
        ((X, X), None, ["x", "y"]),
        ((X,), {"y": X}, ["x", "y"]),
        ((), {"x": X, "y": X}, ["x", "y"]),
        ((), {"y": X, "x": X}, ["x", "y"]),
        ((X, {"y": X}), None, ["x", "y"]),
        ((X, {"y": X, "scale": 3.0}), None, ["x", "y"]),
        ((X, {}), None, ["x"]),
        ((X, None, 2.0), None, ["x"]),
    ],
)
def test_args_and_kwargs_in_every_form(model: Affine, args: Any, kwargs: Any, inputs: list[str]) -> None:
    program = export(model, args, kwargs=kwargs)
    assert sorted(names(program)) == sorted(inputs)
    given = args if isinstance(args, (tuple, list)) else (args,)
    called = {**(kwargs or {})}
    if given and isinstance(given[-1], dict):
        given, called = given[:-1], given[-1]
    torch.testing.assert_close(program(*given, **called)[0], model(*given, **called), atol=1e-5, rtol=1e-5)


def test_a_trailing_dict_that_is_an_input_stays_one() -> None:
    program = export(Dicts(), (X, {"a": X}))
    assert names(program) == ["x", "more_a"]
    torch.testing.assert_close(program(X, {"a": X})[0], X + X)


def test_numbers_are_fixed(model: Affine) -> None:
    program = export(model, (X, None, 3.0))
    torch.testing.assert_close(program(X, None, 3.0)[0], model(X, None, 3.0), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match=r"is fixed in the model as 3\.0, and 4\.0 was given.*pass a tensor"):
        program(X, None, 4.0)
    with pytest.raises(ValueError, match=r"is fixed in the model as None, and a tensor was given"):
        program(X, torch.ones(4), 3.0)


@pytest.mark.parametrize(
    "kind", ["module", "function", "method", "exported program", "scripted", "traced", "script function"]
)
def test_models_of_every_kind(kind: str) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    layer = torch.nn.Linear(20, 4).eval()
    models: dict[str, Any] = {
        "module": layer,
        "function": double,
        "method": layer.forward,
        "exported program": torch.export.export(layer, (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)),
        "scripted": torch.jit.script(layer),
        "traced": torch.jit.trace(layer, X),
        "script function": torch.jit.trace(double, X),
    }
    program = export(models[kind], (X,), dynamic_shapes=({0: "batch"},))
    expected = double if "function" in kind else layer
    other = torch.randn(5, 20)
    torch.testing.assert_close(program(other)[0], expected(other), atol=1e-5, rtol=1e-5)
    assert program.model.graph.inputs[0].shape == ("batch", 20)
    if kind in ("module", "scripted", "traced", "exported program"):
        assert {"weight", "bias"} <= set(program.model.graph.initializers)


def test_names_of_inputs_and_outputs(model: Affine) -> None:
    program = export(model, (X, X), input_names=["left", "right"], output_names=["result"])
    assert names(program) == ["left", "right"]
    assert [value.name for value in program.model.graph.outputs] == ["result"]


@pytest.mark.parametrize("opset", [18, 20, 23, 25])
def test_the_opset_is_exactly_the_one_asked_for(model: Affine, opset: int, tmp_path: Path) -> None:
    export(model, (X,), tmp_path / "model.onnx", opset_version=opset)
    read = onnx.load(tmp_path / "model.onnx")
    assert [(entry.domain, entry.version) for entry in read.opset_import] == [("", opset)]


@pytest.mark.parametrize("opset", [6, 29])
def test_an_opset_that_cannot_be_reached_is_refused(model: Affine, opset: int) -> None:
    with pytest.raises(OpsetError, match="choose an opset from 7 to 28"):
        export(model, (X,), opset_version=opset)


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("params", [True, False])
@pytest.mark.parametrize("as_inputs", [True, False])
def test_writing_to_a_file(model: Affine, tmp_path: Path, external: bool, params: bool, as_inputs: bool) -> None:
    path = tmp_path / "model.onnx"
    export(model, (X,), str(path), external_data=external, export_params=params, keep_initializers_as_inputs=as_inputs)
    read = onnx.load(path)
    assert ("linear.weight" in {value.name for value in read.graph.initializer}) is params
    assert ("linear.weight" in {value.name for value in read.graph.input}) is as_inputs
    assert (tmp_path / "model.onnx.data").exists() is (external and params)


def test_nothing_is_written_without_a_path(model: Affine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    export(model, (X,))
    assert list(tmp_path.iterdir()) == []


def test_verbose_prints_the_stages(model: Affine, capsys: pytest.CaptureFixture[str]) -> None:
    export(model, (X,))
    assert capsys.readouterr().out == ""
    export(model, (X,), verbose=True)
    printed = capsys.readouterr().out
    for stage in ("capture", "translate", "optimise"):
        assert f"batch_export: {stage} of Affine done in" in printed


def test_dynamic_axes_as_documented() -> None:
    common: dict[str, Any] = {"input_names": ["x"], "output_names": ["sum"]}
    static = export(Sum(), (torch.ones(2, 2),), **common)
    assert (static.model.graph.inputs[0].shape, static.model.graph.outputs[0].shape) == ((2, 2), (2,))
    dynamic = export(Sum(), (torch.ones(2, 2),), dynamic_axes={"x": {0: "my_custom_axis_name"}, "sum": [0]}, **common)
    assert dynamic.model.graph.inputs[0].shape == ("my_custom_axis_name", 2)
    assert dynamic.model.graph.outputs[0].shape == ("sum_dynamic_axes_1",)
    assert dynamic(torch.ones(5, 2))[0].tolist() == [2.0] * 5


def test_dynamic_axes_by_list_by_parameter_name_and_for_nested_inputs() -> None:
    listed = export(Sum(), (torch.ones(2, 2),), dynamic_axes={"x": [0]})
    assert listed.model.graph.inputs[0].shape == ("x_dynamic_axes_1", 2)
    nested = export(
        Dicts(),
        (X, {"a": X}),
        input_names=["x", "inner"],
        dynamic_axes={"x": {0: "batch"}, "inner": {0: "batch"}},
    )
    assert [value.shape for value in nested.model.graph.inputs] == [("batch", 20), ("batch", 20)]


def test_dynamic_axes_that_name_nothing() -> None:
    with pytest.raises(DynamicShapeError, match=r"dynamic_axes names z, which is neither an input nor an output"):
        export(Sum(), (torch.ones(2, 2),), dynamic_axes={"z": [0]})
    with pytest.raises(
        DynamicShapeError, match=r"axis 0 \(n\) of the output sum was asked for as dynamic, but it is 2"
    ):
        export(Sum(), (torch.ones(2, 2),), output_names=["sum"], dynamic_axes={"sum": {0: "n"}})


def test_dynamic_shapes_are_preferred_to_dynamic_axes() -> None:
    program = export(Sum(), (torch.ones(2, 2),), dynamic_axes={"x": {0: "no"}}, dynamic_shapes=({0: "yes"},))
    assert program.model.graph.inputs[0].shape == ("yes", 2)


def test_dynamo_false_is_the_torchscript_exporter(model: Affine, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    program = export(model, (X,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
    assert program.exporter == "torchscript"
    assert program.model.graph.inputs[0].shape == ("batch", 20)
    assert path.exists()
    other = torch.randn(7, 20)
    torch.testing.assert_close(program(other)[0], model(other), atol=1e-5, rtol=1e-5)


def test_fallback_warns_and_names_the_exporter(tmp_path: Path) -> None:
    target = torch.ops.aten.mul.Tensor

    def broken(x: Any, y: Any) -> Any:
        raise RuntimeError("no")

    def call(**options: Any) -> ONNXProgram:
        return export(Sum2(), (torch.ones(2, 2),), custom_translation_table={target: broken}, **options)

    with pytest.raises(OnnxExporterError, match="RuntimeError: no"):
        call()
    with pytest.warns(UserWarning, match=r"falls back to the TorchScript exporter: .*RuntimeError: no"):
        program = call(fallback=True, f=tmp_path / "model.onnx")
    assert program.exporter == "torchscript"
    assert isinstance(program.export_exception, OnnxExporterError)
    assert program(torch.ones(2, 2))[0].tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert (tmp_path / "model.onnx").exists()
    program.save_diagnostics(tmp_path / "log.sarif")
    (told,) = json.loads((tmp_path / "log.sarif").read_text())["runs"][0]["results"]
    assert "RuntimeError: no" in told["message"]["text"]


class Sum2(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_an_export_that_succeeds_does_not_fall_back(model: Affine, recwarn: pytest.WarningsRecorder) -> None:
    assert export(model, (X,), fallback=True).exporter == "core"
    assert not [one for one in recwarn if "falls back" in str(one.message)]


def test_the_core_alone_knows_no_torchscript_exporter(model: Affine) -> None:
    from batch_export.exporter.api import export as core_export

    with pytest.raises(OnnxExporterError, match=r"which the core does not have.*batch_export\.export"):
        core_export(model, (X,), dynamo=False)


def test_artifacts(model: Affine, tmp_path: Path) -> None:
    export(model, (X,), report=True, profile=True, dump_exported_program=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*_success.md")
    assert "| capture | done |" in report.read_text()
    (profile,) = tmp_path.glob("*_profile.md")
    text = profile.read_text()
    assert "| translate |" in text
    assert "| aten::linear | 1 |" in text
    (dumped,) = tmp_path.glob("*.pt2")
    torch.testing.assert_close(torch.export.load(dumped).module()(X), model(X))
    (listing,) = tmp_path.glob("*_exported_program.txt")
    assert "aten.linear.default" in listing.read_text()


def test_a_failed_export_has_a_report(tmp_path: Path) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("this model never works")

    with pytest.raises(CaptureError, match="this model never works"):
        export(Broken(), (X,), report=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*_failed_capture.md")
    text = report.read_text()
    for strategy in ("torch.export(strict=False)", "torch.export(strict=True)", "draft_export", "torch.jit.trace"):
        assert f"| {strategy} |" in text


def test_optimize_and_passes() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1) * (x + 1)

    def count(**options: Any) -> int:
        return sum(1 for _ in export(Twice(), (torch.ones(2),), **options).model.graph)

    assert count(optimize=False) == 3
    assert count(optimize=True) == 2
    program = export(
        Twice(), (torch.ones(2),), optimize=False, passes=[common_passes.CommonSubexpressionEliminationPass()]
    )
    assert [one.name for one in program.passes] == ["CommonSubexpressionEliminationPass"]
    assert (program.passes[0].nodes_before, program.passes[0].nodes_after) == (3, 2)
    named = export(
        Twice(),
        (torch.ones(2),),
        optimize=False,
        passes=["onnx_ir.passes.common.CommonSubexpressionEliminationPass"],
    )
    assert sum(1 for _ in named.model.graph) == 2
    with pytest.raises(OnnxExporterError, match=r"there is no pass 'onnx_ir\.passes\.common\.Nothing'"):
        export(Twice(), (torch.ones(2),), passes=["onnx_ir.passes.common.Nothing"])


@pytest.mark.parametrize("shapes", [None, ({0: "batch"},)])
def test_verification_of_a_buffer_that_is_changed_and_returned(shapes: Any) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(1), persistent=False)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.total += x.sum()
            return x + self.total, self.total

    model = Counting()
    export(model, (X,), verify=True, dynamic_shapes=shapes)
    assert model.total.item() == 0


def test_verify(model: Affine) -> None:
    export(model, (X,), verify=True)
    target = torch.ops.aten.sum.dim_IntList

    def wrong(x: Any, dim: Any, keepdim: bool = False, dtype: int = -1) -> Any:
        from onnxscript import opset20 as op

        return op.ReduceMax(x, [1], keepdims=0)

    with pytest.raises(VerificationError, match="output sum"):
        export(Sum(), (torch.ones(2, 2),), verify=True, output_names=["sum"], custom_translation_table={target: wrong})
    with enable_fake_mode():
        fake = Affine()
    with pytest.raises(VerificationError, match="a model made in fake mode has no weights"):
        export(fake, (X,), verify=True)


class OneOfTwo(torch.nn.Module):
    """Chooses by how many rows there are, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the rows where there are more than four, and else their negatives."""
        self.calls += 1
        return x * 2 if x.shape[0] > 4 else -x


@pytest.mark.parametrize("within", ["nothing", "example", "model"])
def test_inference_mode_round_an_export(within: str) -> None:
    model, x = OneOfTwo(), torch.randn(5, 3)
    with torch.inference_mode():
        model, x = OneOfTwo() if within == "model" else model, torch.randn(5, 3) if within == "example" else x
        program = export(model, (x,), dynamic_shapes=None if within == "model" else ({0: "n"},))
    for count in (5,) if within == "model" else (5, 2):
        given = torch.randn(count, 3)
        torch.testing.assert_close(program(given)[0], given * 2 if count > 4 else -given)


def test_verifying_random_numbers_says_that_they_are() -> None:
    with pytest.raises(VerificationError, match=r"the model draws random numbers.*RandomUniformLike.*eval mode"):
        export(Called(lambda x: x + torch.rand_like(x)), (X,), verify=True)


def test_a_program_that_torch_cannot_write_is_written_as_text(tmp_path: Path) -> None:
    program = Called(lambda x: (x + 1, x.shape[0] > 3))
    with pytest.warns(ExportWarning, match="written as text alone"):
        export(program, (X,), dynamic_shapes=({0: "n"},), dump_exported_program=True, artifacts_dir=tmp_path)
    (text,) = tmp_path.iterdir()
    assert "ExportedProgram" in text.read_text()


def test_a_report_that_cannot_be_written_hides_neither_the_error_nor_the_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options: dict[str, Any] = {"report": True, "artifacts_dir": tmp_path / "file" / "reports"}
    with pytest.warns(ExportWarning, match="the report is not written: .*file"):
        assert export(torch.nn.ReLU(), (X,), **options)(X)

    def failing(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("gone")

    with pytest.warns(ExportWarning, match="the report is not written"), pytest.raises(CaptureError, match="gone"):
        export(Called(failing), (X,), **options)


def test_a_model_without_weights_is_not_verified() -> None:
    with torch.device("meta"):
        module, x = torch.nn.Linear(3, 2), torch.randn(2, 3)
    with pytest.raises(VerificationError, match="on the meta device has no weights"):
        export(module, (x,), verify=True)


@pytest.mark.parametrize("kind", ["ExportedProgram", "ExportableModule"])
def test_what_is_captured_has_no_older_form(model: Affine, kind: str, recwarn: pytest.WarningsRecorder) -> None:
    """torch exports both with its newer exporter, too, whatever `dynamo` says."""

    class Bringing(torch.onnx.ExportableModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

        def example_arguments(self) -> tuple[tuple[torch.Tensor], None]:
            return (X,), None

    given = torch.export.export(model, (X,)) if kind == "ExportedProgram" else Bringing()
    program = export(given, dynamo=False)
    assert program.exporter == "core"
    assert not [one for one in recwarn if "legacy" in str(one.message)]
    torch.testing.assert_close(program(X)[0], model(X))


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("training", torch.onnx.TrainingMode.TRAINING, r"model\.train\(\)"),
        ("operator_export_type", torch.onnx.OperatorExportTypes.ONNX_ATEN, "custom_translation_table"),
        ("operator_export_types", torch.onnx.OperatorExportTypes.ONNX_ATEN, "custom_translation_table"),
        ("do_constant_folding", False, "optimize=False"),
        ("custom_opsets", {"custom": 2}, "version="),
        ("autograd_inlining", False, "always inlined"),
    ],
)
def test_deprecated_parameters_say_what_to_do_instead(model: Affine, name: str, value: Any, instead: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{name} is deprecated and does nothing; .*{instead}"):
        export(model, (X,), **{name: value})


def test_an_unknown_parameter_is_an_error(model: Affine) -> None:
    with pytest.raises(TypeError, match="export\\(\\) has no parameter 'dynamc_shapes'"):
        export(model, (X,), dynamc_shapes=None)


def test_the_legacy_entry_points(model: Affine, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(DeprecationWarning, match="dynamo_export"):
        program = dynamo_export(model, X, y=X)
    assert names(program) == ["x", "y"]
    registry = OnnxRegistry(23)
    options = ExportOptions(
        dynamic_shapes=True, onnx_registry=registry, diagnostic_options=DiagnosticOptions(verbosity_level=10)
    )
    with pytest.warns(DeprecationWarning, match="dynamo_export"):
        dynamic = dynamo_export(model, X, export_options=options)
    assert "batch_export: capture of Affine" in capsys.readouterr().out
    assert isinstance(dynamic.model.graph.inputs[0].shape[0], type(dynamic.model.graph.outputs[0].shape[0]))
    assert not isinstance(dynamic.model.graph.inputs[0].shape[0], int)
    assert dynamic.model.opset_imports[""] == 23
    with pytest.warns(DeprecationWarning, match="dynamo_export"):
        nested = dynamo_export(Dicts(), X, {"a": X})
    assert names(nested) == ["x", "more_a"]


def test_a_registry_brings_its_functions(model: Affine) -> None:
    from onnxscript import opset20 as op

    def by_adding(x: Any, y: Any) -> Any:
        return op.Add(x, x)

    registry = OnnxRegistry(20)
    registry.register_op(by_adding, "aten", "mul", "Tensor")
    program = export(Sum2(), (torch.ones(2),), registry=registry)
    assert [node.op_type for node in program.model.graph] == ["Add"]
    assert registry.is_registered_op("aten", "mul", "Tensor")
    found = registry.get_op_functions("aten", "mul", "Tensor")
    assert found is not None
    assert found[-1].origin == "custom"
    assert registry.opset_version == 20
    assert not OnnxRegistry(20).is_registered_op("aten", "no_such_operator")
    with pytest.raises(ValueError, match="named by a namespace and a name"):
        registry.register_op(by_adding, "aten::mul", "x")


def test_diagnostics_are_a_sarif_log(model: Affine, tmp_path: Path) -> None:
    program = export(model, (X,))
    with pytest.raises(ValueError, match=r"ends in \.sarif"):
        program.save_diagnostics(tmp_path / "log.json")
    program.save_diagnostics(tmp_path / "log.sarif")
    log = json.loads((tmp_path / "log.sarif").read_text())
    assert log["version"] == "2.1.0"
    assert log["runs"][0]["tool"]["driver"]["name"] == "batch_export"
    assert program.diagnostic_context is not None
    assert program.export_exception is None
    ONNXProgram(program.model, None).save_diagnostics(tmp_path / "bare.sarif")
    assert json.loads((tmp_path / "bare.sarif").read_text())["runs"][0]["results"] == []


def test_every_public_name_is_there() -> None:
    for name in batch_export.__all__:
        assert getattr(batch_export, name) is not None


def test_the_documentation_names_tests_that_exist() -> None:
    root = Path(__file__).resolve().parents[1]
    named = set(
        re.findall(r"`(test_\w+\.py)::(test_\w+)`", (root / "docs" / "exporter.md").read_text(encoding="utf-8"))
    )
    assert len(named) > 60
    for file, test in named:
        assert f"def {test}(" in (root / "tests" / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_the_documentation_has_every_parameter() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "exporter.md").read_text(encoding="utf-8")
    parameters = [name for name in inspect.signature(export).parameters if name not in ("torchscript", "deprecated")]
    assert [name for name in parameters if f"`{name}`" not in text] == []
