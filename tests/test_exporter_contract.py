"""What `torch.onnx.export` promises beside its parameters: names, changed tensors, files, errors, warnings, helpers."""

from __future__ import annotations

import copy
import io
import json
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch.onnx import testing as torch_testing
from torch.onnx import verification as torch_verification

import batch_export
from batch_export import OnnxExporterError, ONNXProgram, export, verify_onnx_program
from batch_export.errors import CaptureError, MissingOperatorError, OpsetError, TranslationError, VerificationError
from batch_export.exporter.translate.decompose import run_decomposition
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.weight


class Counting(torch.nn.Module):
    pos: torch.Tensor

    def __init__(self, returned: bool = False) -> None:
        super().__init__()
        self.returned = returned
        self.register_buffer("pos", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        self.pos.add_(x.sum())
        return (self.pos, x * 2) if self.returned else x + self.pos


X = torch.ones(3)


def inputs(program: ONNXProgram) -> list[str]:
    return [value.name or "" for value in program.model.graph.inputs]


def outputs(program: ONNXProgram) -> list[str]:
    return [value.name or "" for value in program.model.graph.outputs]


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [None, ["weight"]])
def test_an_input_keeps_its_name_and_a_weight_gives_way(names: list[str] | None, tmp_path: Path) -> None:
    program = export(Scaled(), (X,), input_names=names)
    assert inputs(program) == ["weight"]
    assert list(program.model.graph.initializers) == ["weight_1"]
    program.apply_weights({"weight": 5 * X})
    assert program(X)[0].tolist() == [5, 5, 5]
    program.save(tmp_path / "model.onnx", model_state={"weight": 7 * X})
    (stored,) = onnx.load(tmp_path / "model.onnx").graph.initializer
    assert onnx.numpy_helper.to_array(stored).tolist() == [7, 7, 7]


def test_an_output_gets_its_name_whatever_else_has_it() -> None:
    program = export(Scaled(), (X,), output_names=["weight"])
    assert outputs(program) == ["weight"]
    assert not {*inputs(program), *program.model.graph.initializers} & {"weight"}
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert program(X)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("size", "is_apart"), [(3, False), (40, True)])
def test_small_weights_need_no_second_file(tmp_path: Path, size: int, is_apart: bool) -> None:
    path = tmp_path / "model.onnx"
    layer = torch.nn.Linear(size, size)
    export(layer, (torch.ones(2, size),), path, external_data=True)
    assert (tmp_path / "model.onnx.data").exists() is is_apart
    stored = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    assert np.array_equal(stored["weight"], layer.weight.detach().numpy())


def test_one_name_for_an_input_and_an_output_is_refused() -> None:
    with pytest.raises(OnnxExporterError, match=r"x is given in input_names and in output_names.*choose another name"):
        export(Scaled(), (X,), input_names=["x"], output_names=["x"])


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("returned", [True, False])
def test_a_changed_buffer_has_one_name(returned: bool, optimize: bool) -> None:
    program = export(Counting(returned), (X,), optimize=optimize)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert outputs(program)[-1] == "pos_mutated"
    assert program(X).mutated["pos"].tolist() == [3, 3, 3]
    assert program(X)[0].tolist() == ([3, 3, 3] if returned else [4, 4, 4])


def test_a_call_gives_what_the_model_returns_and_the_next_state_beside_it() -> None:
    program = export(Counting(), (X,))
    eager = Counting()
    for _ in range(3):
        given = program(X)
        torch.testing.assert_close(tuple(given), (eager(X),))
        assert given.mutated.keys() == {"pos"}
        torch.testing.assert_close(given.mutated["pos"], eager.pos)
        program.apply_weights(given.mutated)
    assert program.call_reference(X).mutated.keys() == {"pos"}
    assert export(Counting(), (X,), mutations="drop")(X).mutated == {}


def test_torchs_check_takes_programs_with_a_state() -> None:
    class Counts(Counting):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.pos.add_(x.sum())
            return x * 2

    torch.onnx.testing.assert_onnx_program(export(Counts().eval(), (X,)))


def test_a_changed_input_that_is_returned_too() -> None:
    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1)

    assert outputs(export_and_compare(Adds(), (X.clone(),)))[-1] == "x_mutated"


def test_optimising_later_keeps_the_names() -> None:
    program = export(Counting(True), (X,), optimize=False, output_names=["a", "b", "c"])
    program.optimize()
    assert outputs(program) == ["a", "b", "c"]


# Changed tensors ------------------------------------------------------------------------------------------------------


def test_changed_tensors_are_outputs_an_error_or_dropped() -> None:
    assert outputs(export_and_compare(Counting(), (X,), mutations="drop"))[1:] == []
    with pytest.raises(
        TranslationError,
        match=r"changes the buffer pos, which mutations='error' refuses.*test_exporter_contract\.py:\d+",
    ):
        export(Counting(), (X,), mutations="error")
    assert len(outputs(export(Scaled(), (X,), mutations="error"))) == 1
    with pytest.raises(ValueError, match="mutations='no': choose outputs, error, drop"):
        export(Scaled(), (X,), mutations="no")


def test_training_mode_is_exported_as_it_is_and_moves_statistics() -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = export(module, (torch.randn(4, 3),))
    assert module.training
    moved = {f"0.{name}_mutated" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert set(outputs(program)[1:]) == moved
    assert "Dropout" in {node.op_type for node in program.model.graph}


class Averaging(torch.nn.Module):
    """Normalises by each batch, and keeps the mean over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.BatchNorm1d(3, momentum=None, affine=False)
        self.second = torch.nn.BatchNorm1d(3, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal: torch.Tensor = self.second(self.first(x) * 2)
        return normal


def test_averages_over_all_batches_go_on_counting() -> None:
    model = Averaging()
    for _ in range(3):
        model(torch.randn(4, 3))
    before = copy.deepcopy(model.state_dict())
    program = export(model, (torch.randn(4, 3),), dynamic_shapes=({0: "batch"},))
    assert all(map(torch.equal, model.state_dict().values(), before.values()))
    for batch in (4, 9):
        x = torch.randn(batch, 3)
        model.load_state_dict(before)
        outputs = program(x)
        torch.testing.assert_close(torch.as_tensor(outputs[0]), model(x))
        assert len(outputs.mutated) == len(before) - 2  # the weights stay
        for name, value in outputs.mutated.items():
            torch.testing.assert_close(torch.as_tensor(value), model.state_dict()[name])


def test_statistics_in_training_mode_can_be_dropped() -> None:
    layer = torch.nn.BatchNorm1d(3).train()
    assert len(outputs(export(layer, (torch.randn(4, 3),), mutations="drop"))) == 1
    with pytest.raises(TranslationError, match="the buffer running_mean"):
        export(layer, (torch.randn(4, 3),), mutations="error")


# Files, errors, warnings ----------------------------------------------------------------------------------------------


def test_a_file_object_gets_one_file() -> None:
    stream = io.BytesIO()
    with pytest.warns(DeprecationWarning, match="a file object as f is deprecated"):
        export(Scaled(), (X,), stream)
    assert onnx.load_from_string(stream.getvalue()).graph.initializer[0].name == "weight_1"


def test_warnings_have_the_words_that_filters_look_for() -> None:
    words = "from_dynamic_axes_to_dynamic_shapes is deprecated and will be removed"
    with pytest.warns(DeprecationWarning, match=words):
        export(torch.nn.Tanh(), (X,), input_names=["x"], dynamic_axes={"x": {0: "n"}})
    with pytest.warns(DeprecationWarning, match="You are using the legacy TorchScript-based ONNX export"):
        export(torch.nn.Tanh(), (X,), dynamo=False)


def test_errors_and_warnings_are_torchs_too() -> None:
    with pytest.raises(torch.onnx.OnnxExporterError, match="choose an opset"):
        export(Scaled(), (X,), opset_version=3)
    with pytest.warns(torch.onnx.errors.OnnxExporterWarning, match="no weights named other"):
        export(Scaled(), (X,)).apply_weights({"other": X})


def test_what_is_deprecated_says_so_where_it_is_written() -> None:
    with pytest.warns(DeprecationWarning, match=r"dynamic_axes is deprecated; use dynamic_shapes") as heard:
        export(lambda x: x * 2, (X,), input_names=["x"], dynamic_axes={"x": {0: "n"}})
    assert heard[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        defaults = {"training": torch.onnx.TrainingMode.EVAL, "do_constant_folding": True, "autograd_inlining": True}
        export(Scaled(), (X,), operator_export_type=torch.onnx.OperatorExportTypes.ONNX, **defaults)


def test_an_export_prints_nothing(tmp_path: Path) -> None:
    code = (
        "import torch\nfrom batch_export import export\n"
        "p = export(torch.nn.GRU(4, 3, batch_first=True).eval(), (torch.ones(2, 5, 4),), verify=True)\n"
        "try: export(torch.nn.Linear(4, 3), (torch.ones(2, 5),))\n"
        "except Exception as error: pass\n"
        "class Deviation(torch.nn.Module):\n"
        "    def forward(self, x):\n        if x.shape[0] > 4: x = x * 2\n        return x - x.std(0)\n"
        "export(Deviation(), (torch.randn(5, 3),), dynamic_shapes=({0: 'n'},))\n"
    )
    (tmp_path / "printing.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "default", str(tmp_path / "printing.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout + run.stderr == ""


def test_a_model_that_does_not_run_is_told_with_its_line() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("never")

    with pytest.raises(CaptureError) as caught:
        export(Broken(), (X,))
    message = str(caught.value)
    assert "ValueError: never (at " in message
    assert f"{Path(__file__).name}:" in message
    assert "call the model with these inputs outside of the export" in message
    assert "\n" not in message


def test_a_function_without_translation_is_named_without_its_address() -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x

    def nothing(*_: Any) -> Any:
        return None

    with pytest.raises(MissingOperatorError, match=r"^helper has no ONNX translation and no decomposition"):
        run_decomposition(helper, [], {}, fake_mode=None, is_translatable=nothing, translate=nothing, rebind=nothing)


class Foreign(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.onnx.ops.symbolic_multi_out(
            "custom::Op", [x], dtypes=[22, torch.float16, 1], shapes=[x.shape, [3], [1]], version=1
        )


def test_verifying_operators_that_the_runtime_lacks() -> None:
    with pytest.raises(
        VerificationError, match=r"does not run at the example inputs.*leave out verify=True.*of custom"
    ):
        export(Foreign(), (X,), verify=True)


# Dtypes and nodes -----------------------------------------------------------------------------------------------------


def test_symbolic_operators_keep_element_types_that_torch_lacks() -> None:
    program = export(Foreign(), (X,))
    assert [value.dtype for value in program.model.graph.outputs] == [
        ir.DataType.INT4,
        ir.DataType.FLOAT16,
        ir.DataType.FLOAT,
    ]

    class One(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = torch.onnx.ops.symbolic("custom::Op", [x], dtype=22, shape=x.shape, version=1)
            return made

    assert export(One(), (X,)).model.graph.outputs[0].dtype == ir.DataType.INT4


@pytest.mark.parametrize("external", [True, False])
def test_float4_counts_numbers_and_not_pairs(external: bool, tmp_path: Path) -> None:
    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            pairs = torch.arange(2048, dtype=torch.int32).to(torch.uint8).view(torch.float4_e2m1fn_x2)
            self.weight = torch.nn.Parameter(pairs, requires_grad=False)

        def forward(self) -> torch.Tensor:
            return self.weight

    path = tmp_path / "model.onnx"
    program = export(Packed(), (), path, external_data=external, opset_version=23)
    assert program.model.graph.outputs[0].dtype == ir.DataType.FLOAT4E2M1
    assert program.model.graph.outputs[0].shape == (4096,)
    onnx.checker.check_model(path, full_check=True)
    read = ir.load(path).graph.initializers.values()
    (stored,) = [value.const_value for value in read if value.const_value is not None]
    assert stored.tobytes() == bytes(index % 256 for index in range(2048))
    with pytest.raises(OpsetError, match="Identity takes no float4e2m1 at opset 20"):
        export(Packed(), (), opset_version=20)


@pytest.mark.parametrize("optimize", [True, False])
def test_no_opset_asked_for_is_the_first_that_has_the_models_dtypes(optimize: bool) -> None:
    class Pairs(torch.nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.empty([3, 1], dtype=torch.float4_e2m1fn_x2)

    class Scales(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float8_e8m0fnu)

    pairs, scales = export(Pairs(), optimize=optimize), export(Scales(), (X,), optimize=optimize)
    assert (pairs.model.opset_imports[""], scales.model.opset_imports[""]) == (23, 24)
    assert pairs.model.graph.outputs[0].shape == (3, 2)
    for program in (pairs, scales):
        onnx.checker.check_model(program.model_proto, full_check=True)
    assert export(torch.nn.ReLU(), (X,)).model.opset_imports[""] == 20
    with pytest.raises(OpsetError, match="Cast gives no float8e8m0 at opset 23"):
        export(Scales(), (X,), opset_version=23, optimize=optimize)


@pytest.mark.parametrize("optimize", [True, False])
def test_what_only_assertions_read_is_left_out(optimize: bool) -> None:
    class Checked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._assert_async(torch._is_all_true(x > 0))
            torch._check(x.shape[0] > 0)
            torch._assert(x.sum() > -1.0, "too small")
            torch._assert(x.shape[0] > 0, "none")
            return x * 2

    program = export(Checked(), (X,), optimize=optimize)
    assert [node.op_type for node in program.model.graph] == ["Mul"]


@pytest.mark.parametrize(("values", "expected"), [([True, True], (1, 1)), ([True, False], (0, 1)), ([], (1, 0))])
def test_whether_all_or_any_are_true(values: list[bool], expected: tuple[int, int]) -> None:
    class Both(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch._is_all_true(x), torch._is_any_true(x)

    program = export(Both(), (torch.tensor([True, False]),), dynamic_shapes=({0: "n"},))
    found = program(torch.tensor(values, dtype=torch.bool))
    assert tuple(int(value) for value in found) == expected


# The program, and torch's helpers -------------------------------------------------------------------------------------


def test_the_reference_evaluator_runs_it_too() -> None:
    program = export(Scaled(), (X,))
    torch.testing.assert_close(program.call_reference(X), program(X))


def test_intermediate_values_by_name_and_by_position() -> None:
    program = export(Scaled(), (X,))
    found = program.compute_values(["weight_1", "mul"], (2 * X,))
    assert "mul" in found
    assert [name for name, _ in found.items()] == list(dict(found)) == ["weight_1", "mul"]
    first, second = found  # a sequence, as torch's own checks take it
    assert first is found[0] is found["weight_1"]
    assert second is found.values()[1]
    with pytest.raises(KeyError):
        found["missing"]
    assert found["weight_1"].tolist() == found[0].tolist() == [1, 1, 1]
    assert found[1].tolist() == [2, 2, 2]
    with pytest.raises(KeyError):
        found["nothing"]


def test_inputs_by_name_go_to_their_places() -> None:
    class Difference(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    program = export(Difference(), (X, X))
    assert program(y=X, x=3 * X)[0].tolist() == program(3 * X, y=X)[0].tolist() == [2, 2, 2]


def test_names_of_inputs_follow_the_call() -> None:
    class Difference(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, c: dict[str, torch.Tensor]) -> torch.Tensor:
            return a - b * c["k"] + c["l"]

    given = {"c": {"k": 2 * X, "l": X}, "b": X}

    def named(names: list[str] | None) -> list[str | None]:
        program = export(Difference(), (X,), kwargs=given, input_names=names)
        assert torch.equal(program(X, **given)[0], Difference()(X, **given))
        return [value.name for value in program.model.graph.inputs]

    assert named(["first", "k", "l", "second"]) == ["first", "second", "k", "l"]
    assert named(["first", "k"]) == ["first", "b", "k", "c_l"]
    assert named(["first"]) == ["first", "b", "c_k", "c_l"]


def test_outputs_of_one_operator_are_called_after_it() -> None:
    program = export(lambda x: (x.topk(1), x + 1), (X,))
    assert [value.name for value in program.model.graph.outputs] == ["topk_0", "topk_1", "add"]


def test_outputs_of_a_call_are_a_tree_like_any_tuple() -> None:
    program = export(lambda x: (x, {"k": x + 1}), (X,))
    outputs = program(X)
    assert isinstance(outputs, tuple)
    assert isinstance(program.call_reference(X), tuple)
    leaves, spec = torch.utils._pytree.tree_flatten(outputs)
    assert [tensor.tolist() for tensor in leaves] == [X.tolist(), (X + 1).tolist()]
    assert torch.utils._pytree.tree_unflatten(leaves, spec) == tuple(leaves)


def test_torchs_own_checks_take_our_programs() -> None:
    layer = torch.nn.Linear(4, 3).eval()
    program = export(layer, (torch.randn(2, 4),))
    torch_testing.assert_onnx_program(program)
    torch_testing.assert_onnx_program(program, backend="reference")
    assert [info.name for info in torch_verification.verify_onnx_program(program)] == ["linear"]
    less = export(lambda x: (x + x) - 1, (X,))
    infos = torch_verification.verify_onnx_program(less, compare_intermediates=True)
    assert [(info.name, info.max_abs_diff) for info in infos] == [("add", 0), ("sub", 0)]


def test_our_verification_is_public_and_compares_every_kind_of_node_argument() -> None:
    class Various(torch.nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> Any:
            first, second = torch.split(x, 2, dim=1)
            put = torch.index_put(first, (at,), torch.tensor([[7.0, 8.0], [9.0, 6.0]]))
            joined = torch.cat([put, second], 1)
            best, places = joined.topk(2)
            return best.to(torch.float64), places, torch.einsum("ij,ij->i", joined, joined)

    program = export(Various(), (torch.randn(5, 4), torch.tensor([0, 3])))
    infos = verify_onnx_program(program, compare_intermediates=True)
    assert {"cat", "split_0"} <= {info.name for info in infos}
    assert max(info.max_abs_diff for info in infos) < 1e-5
    assert all(isinstance(info, batch_export.VerificationInfo) for info in infos)


def test_a_constant_that_is_returned_has_its_operators_name() -> None:
    class Steps(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x + 1, torch.linspace(0, 1, 5)

    program = export(Steps(), (torch.ones(2),))
    assert [value.name for value in program.model.graph.outputs] == ["add", "linspace"]


def test_outputs_are_called_as_the_operators_of_the_model() -> None:
    rows = torch.export.Dim("rows")
    program = export(
        lambda x, y: (x.double(), x.narrow(1, 0, 1), x + y[1:], x),
        (torch.ones(2, 3), torch.ones(3, 3)),
        dynamic_shapes=({0: rows}, {0: rows + 1}),
    )
    assert [value.name for value in program.model.graph.outputs] == ["to", "narrow", "add", "x_output"]
    assert [value.name for value in program.model.graph.inputs] == ["x", "y"]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.long() & 1, "and_1"),
        (lambda x: x.T, "numpy_t"),
        (lambda x: torch.fft.rfft(x), "fft_rfft"),
        (lambda x: torch.logdet(x), "logdet"),
    ],
    ids=["and", "transpose", "rfft", "logdet"],
)
def test_what_torch_takes_apart_has_its_operators_name(function: Any, name: str) -> None:
    assert [value.name for value in export(function, (torch.eye(2),)).model.graph.outputs] == [name]


def _saved(path: Path) -> Path:
    shapes = ({0: torch.export.Dim("rows")},)
    torch.export.save(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(2, 2),), dynamic_shapes=shapes), path)
    return path


@pytest.mark.parametrize("form", [str, Path], ids=["words", "path"])
def test_a_program_in_a_file_is_a_model(tmp_path: Path, form: Any) -> None:
    path = _saved(tmp_path / "held.pt2")
    program = export(form(path), input_names=["x"], verify=True)
    x = torch.randn(5, 2)
    torch.testing.assert_close(program(x)[0], torch.export.load(path).module()(x))


def test_files_without_a_program_that_torch_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refusal(path: Path | str) -> str:
        with pytest.raises(CaptureError) as raised:
            export(path)
        return str(raised.value)

    path = _saved(tmp_path / "held.pt2")
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    (document,) = (name for name in held if "/models/" in name)
    for change, sentence in (
        (
            {"schema_version": {"major": 99, "minor": 1}, "torch_version": "9.9"},
            r"was saved by torch 9\.9 \(schema 99\.1\)",
        ),
        ({"graph_module": {}}, "cannot read the program in"),
    ):
        other = tmp_path / "other.pt2"
        with zipfile.ZipFile(other, "w") as archive:
            for name, content in held.items():
                changed = json.dumps({**json.loads(content), **change}).encode() if name == document else content
                archive.writestr(name, changed)
        assert re.search(sentence, refusal(other))
    scripted = tmp_path / "scripted.pt2"
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), scripted)
    assert "holds a TorchScript module, and no exported program. Next step: pass torch.jit.load(path)" in refusal(
        scripted
    )
    torch.save({"weight": torch.ones(2)}, tmp_path / "weights.pt2")
    assert "holds a pickled object, and no exported program" in refusal(tmp_path / "weights.pt2")
    (tmp_path / "junk.pt2").write_bytes(b"hello")
    assert "is no archive of torch.export.save" in refusal(tmp_path / "junk.pt2")
    assert "there is no file" in refusal(tmp_path / "none.pt2")
    assert "does not end in .pt2" in refusal("resnet50")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(not hasattr(torch.onnx, "ExportableModule"), reason="this torch has no ExportableModule")
def test_an_exportable_module_brings_its_inputs_along() -> None:
    class Model(torch.onnx.ExportableModule):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        def example_arguments(self) -> Any:
            return (torch.ones(2, 3),), None

        def input_names(self) -> Any:
            return ["image"]

        def output_names(self) -> Any:
            return ["double"]

        def dynamic_shapes(self) -> Any:
            return ({0: "batch"},)

    program = export(Model())
    assert (inputs(program), outputs(program)) == (["image"], ["double"])
    assert program.model.graph.inputs[0].shape == ("batch", 3)
    assert inputs(export(Model(), (X,), input_names=["other"])) == ["other"]


def test_programs_are_instances_of_torchs_class() -> None:
    assert isinstance(export(torch.nn.ReLU(), (X,)), torch.onnx.ONNXProgram)


class Third(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return x.shape[0] / 3, x + 1


def test_numbers_made_of_sizes_are_outputs_of_torchs_default_dtype() -> None:
    program = export(Third(), (X,), dynamic_shapes=({0: "n"},))
    for rows in (1, 2, 7):
        third, _ = program(torch.ones(rows, *X.shape[1:]))
        torch.testing.assert_close(third, torch.tensor(rows / 3))


def test_dynamic_axes_of_a_cache_by_the_names_of_its_tensors() -> None:
    transformers = pytest.importorskip("transformers")

    class Seen(torch.nn.Module):
        def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
            keys, values = cache.update(x, x + 1, 0)
            return keys @ values.transpose(-1, -2)

    pairs = [(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4))]
    program = export(
        Seen(),
        (torch.randn(2, 1, 1, 4), transformers.DynamicCache(pairs)),
        input_names=["x", "past.key", "past.value"],
        dynamic_axes={
            "x": {0: "batch"},
            "past.key": {0: "batch", 2: "past"},
            "past.value": {0: "batch", 2: "past"},
        },
    )
    assert list(program.model.graph.inputs[1].shape) == ["batch", 1, "past", 4]
    x, pairs = torch.randn(3, 1, 1, 4), [(torch.randn(3, 1, 5, 4), torch.randn(3, 1, 5, 4))]
    expected = Seen()(x, transformers.DynamicCache(pairs))
    torch.testing.assert_close(program(x, transformers.DynamicCache(pairs))[0], expected)
