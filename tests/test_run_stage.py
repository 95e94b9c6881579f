"""stages/run.py and stages/measure.py, on files written as ONNX text and reference values written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx.parser
import pytest

from batch_export.contract import Contract, TensorContract
from batch_export.numbers.values import RawTensor, Value
from batch_export.record import RunFacts
from batch_export.runtime import tensor_file
from batch_export.runtime.measuring import LatencyFacts, MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.stages import measure, run
from batch_export.stages.output import StageOutput

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
REFERENCE = ProviderSpec("reference", "reference")
REQUESTED = Contract(20, (TensorContract("x", "float32", ("batch", 2)),), (TensorContract("y", "float32", None),))
DOUBLE = "g (float[batch, 2] x) => (float[batch, 2] y) {y = Add(x, x)}"


def saved(folder: Path, graph: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]>{graph}'), path)
    return path


def case(batch: int, **changes: Any) -> dict[str, Any]:
    return {"sizes": {"batch": batch}, "example": False, "rejected": "", "noise": [0.0], **changes}


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Doubling, at batch 2 (the example), 5 and 1; the model rejects batch 7."""
    x = {batch: np.arange(2 * batch, dtype=np.float32).reshape(batch, 2) for batch in (2, 5, 1)}
    tensors: dict[str, Value] = {}
    for index, batch in enumerate((2, 5, 1)):
        tensors[f"case{index}/in/x"] = x[batch]
        tensors[f"case{index}/out/0"] = 2 * x[batch]
    cases = [case(2, example=True), case(5), case(1, noise=[0.25]), case(7, rejected="ValueError: no sevens")]
    path = tmp_path / "reference.tensors"
    tensor_file.write(path, tensors, {"cases": cases})
    return path


def ran(output: StageOutput) -> list[RunFacts]:
    return [msgspec.convert(plain, RunFacts) for plain in output.facts["runs"]]


def execute(folder: Path, graph: str, reference: Path, cases: list[int], provider: ProviderSpec = CPU) -> StageOutput:
    return run.execute(saved(folder, graph), reference, cases, REQUESTED, provider, 1)


@pytest.mark.parametrize("provider", [CPU, REFERENCE], ids=lambda provider: provider.name)
def test_listed_cases_are_run_and_compared(tmp_path: Path, reference: Path, provider: ProviderSpec) -> None:
    output = execute(tmp_path, DOUBLE, reference, [0, 1], provider)
    runs = ran(output)
    assert output.failure is None
    assert [facts.sizes for facts in runs] == [{"batch": 2}, {"batch": 5}]
    assert [(facts.outputs[0].name, facts.outputs[0].max_abs, facts.outputs[0].count) for facts in runs] == [
        ("y", 0.0, 4),
        ("y", 0.0, 10),
    ]
    assert sum(output.facts["placement"].values()) == 1
    assert output.facts["load_s"] > 0


def test_wrong_numbers_are_facts_not_failures(tmp_path: Path, reference: Path) -> None:
    output = execute(tmp_path, DOUBLE.replace("Add(x, x)", "Mul(x, x)"), reference, [0])
    (facts,) = ran(output)[0].outputs
    assert output.failure is None
    assert (facts.max_abs, facts.unequal, facts.worst_index) == (3.0, 2, (1, 1))


@pytest.mark.parametrize(("exact", "has_oracle"), [([0.0, 2.0, 4.0, 5.5], True), ([0.0, 2.0, 4.0, np.nan], False)])
def test_float64_stands_beside_the_file_unless_it_knows_no_number(
    tmp_path: Path, reference: Path, exact: list[float], has_oracle: bool
) -> None:
    path = tmp_path / "oracle"
    tensor_file.write(path, {"out/0": np.array(exact).reshape(2, 2)}, {"rounding": [[[6.0, 0.5]]]})
    output = run.execute(saved(tmp_path, DOUBLE), reference, [0, 1], REQUESTED, CPU, 1, [(0, path)])
    first, second = (one.outputs[0] for one in ran(output))
    assert first.has_oracle is has_oracle
    assert first.rounding_hull == (((6.0, 0.5),) if has_oracle else ())
    assert first.oracle_hull == (((5.5, 0.5),) if has_oracle else ())
    assert not second.has_oracle


def test_noise_and_rejection_come_from_the_reference(tmp_path: Path, reference: Path) -> None:
    runs = ran(execute(tmp_path, DOUBLE, reference, [0, 2, 3]))
    assert runs[1].outputs[0].noise == 0.25
    assert (runs[2].sizes, runs[2].rejected, runs[2].outputs) == ({"batch": 7}, "ValueError: no sevens", ())


def test_other_names_are_fed_by_position(tmp_path: Path, reference: Path) -> None:
    graph = "g (float[batch, 2] input_1) => (float[batch, 2] y) {y = Add(input_1, input_1)}"
    assert ran(execute(tmp_path, graph, reference, [0]))[0].outputs[0].max_abs == 0.0


def test_an_input_without_a_value_is_a_failure_that_names_it(tmp_path: Path, reference: Path) -> None:
    graph = "g (float[batch, 2] x, float[1] scale) => (float[batch, 2] y) {y = Mul(x, scale)}"
    failure = execute(tmp_path, graph, reference, [0]).failure
    assert failure is not None
    assert (failure.stage, failure.error_class) == ("run", "FeedError")
    assert "input 1 ('scale') is not one of the model's inputs (x)" in failure.message


def test_a_refusal_at_other_sizes_is_a_fact(tmp_path: Path, reference: Path) -> None:
    graph = "g (float[batch, 2] x) => (float[batch, 2] y) <int64[2] size = {2, 2}> {z = Reshape(x, size) y = Add(z, z)}"
    output = execute(tmp_path, graph, reference, [0, 1])
    assert output.failure is None
    assert ran(output)[0].outputs[0].max_abs == 0.0
    assert "Reshape" in ran(output)[1].error


def test_a_refusal_at_the_example_sizes_is_a_failure(tmp_path: Path, reference: Path) -> None:
    graph = "g (float[batch, 2] x) => (float[batch, 2] y) <int64[2] size = {3, 2}> {y = Reshape(x, size)}"
    output = execute(tmp_path, graph, reference, [0, 1])
    assert output.failure is not None
    assert output.failure.stage == "run"
    assert len(output.facts["runs"]) == 1


def test_a_file_that_does_not_load_is_a_failure(tmp_path: Path, reference: Path) -> None:
    failure = execute(tmp_path, DOUBLE.replace("Add(x, x)", "NoSuchOperator(x)"), reference, [0]).failure
    assert failure is not None
    assert failure.stage == "load"
    assert failure.error_class != "LoadError"
    assert "NoSuchOperator" in failure.message + failure.details


def test_a_provider_that_is_not_here_is_a_failure_of_the_environment(tmp_path: Path, reference: Path) -> None:
    failure = execute(tmp_path, DOUBLE, reference, [0], ProviderSpec("npu", "onnxruntime", "NpuProvider")).failure
    assert failure is not None
    assert (failure.stage, failure.error_class) == ("environment", "ProviderUnavailableError")


def test_nodes_that_all_fell_back_are_a_failure() -> None:
    class Placed:
        placement = {"CPUExecutionProvider": 12}

    session: Any = Placed()
    failure = run.fallen_back(session, ProviderSpec("cuda", "onnxruntime", "CUDAExecutionProvider"))
    assert failure is not None
    assert (failure.stage, failure.error_class) == ("run", "Placement")
    assert "no node ran on CUDAExecutionProvider: onnxruntime placed 12 on CPUExecutionProvider" in failure.message
    assert run.fallen_back(session, CPU) is None
    assert run.fallen_back(session, REFERENCE) is None


def test_missing_outputs_and_mutations_are_named(tmp_path: Path) -> None:
    x = np.ones((2, 2), np.float32)
    tensors: dict[str, Value] = {
        "case0/in/x": x,
        "case0/out/0": 2 * x,
        "case0/mutation/count": np.array(3, np.int64),
        "case0/mutation/norm.mean": x,
    }
    path = tmp_path / "reference.tensors"
    tensor_file.write(path, tensors, {"cases": [case(2, example=True)]})
    graph = DOUBLE.replace("y) {", "y, float[batch, 2] norm_mean_new) {norm_mean_new = Abs(x) ")
    y, count, mean = ran(execute(tmp_path, graph, path, [0]))[0].outputs
    assert (y.name, y.max_abs) == ("y", 0.0)
    assert (count.name, count.expected_dtype, count.actual_dtype) == ("count", "int64", "missing")
    assert (mean.name, mean.max_abs) == ("norm_mean_new", 0.0)
    tensor_file.write(
        path, tensors | {"case0/out/1": x, "case0/out/2": x}, {"cases": [case(2, example=True, noise=[0.0] * 3)]}
    )
    outputs = ran(execute(tmp_path, DOUBLE, path, [0]))[0].outputs
    assert [(facts.name, facts.actual_dtype) for facts in outputs] == [
        ("y", "float32"),
        ("output 1", "missing"),
        ("output 2", "missing"),
        ("count", "missing"),
        ("norm.mean", "missing"),
    ]


def test_bfloat16_is_run_and_compared(tmp_path: Path) -> None:
    x = RawTensor("bfloat16", np.array([0x3F80, 0x4000], np.uint16))
    path = tmp_path / "reference.tensors"
    tensor_file.write(path, {"case0/in/x": x, "case0/out/0": x}, {"cases": [case(2, example=True)]})
    (facts,) = ran(execute(tmp_path, "g (bfloat16[n] x) => (bfloat16[n] y) {y = Identity(x)}", path, [0]))[0].outputs
    assert (facts.actual_dtype, facts.max_abs, facts.count) == ("bfloat16", 0.0, 2)


def test_latency_is_measured_at_the_example_sizes(tmp_path: Path, reference: Path) -> None:
    spec = MeasureSpec(budget_s=0.1, min_s=0.01)
    output = measure.execute(saved(tmp_path, DOUBLE), reference, CPU, spec)
    facts = msgspec.convert(output.facts["latency_ms"], LatencyFacts)
    assert facts.runs >= 20
    assert 0 < facts.median < 50
    failed = measure.execute(saved(tmp_path, DOUBLE.replace("Add(x, x)", "NoSuch(x)")), reference, CPU, spec)
    assert failed.failure is not None
    assert failed.failure.stage == "load"
