"""Faults planted into files of our own exporter: verification has to see every one of them, and say which it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import faulty_exporters
import msgspec
import pytest
import torch
from torch import nn

from batch_export.contract import Contract, TensorContract
from batch_export.judge import oracle_need
from batch_export.judge.verdict import judge
from batch_export.record import Cell, Record, RunFacts
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.tensor_file import TensorFile
from batch_export.spec import AxisSpec, InputSpec, ModelSpec
from batch_export.stages import model as model_room
from batch_export.stages import oracle, reference, run
from batch_export.stages.built import built

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
VARIANTS = ("seed1", "zeros", "large")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.linear(x))
        return hidden, hidden * 2 + x


class Sized(nn.Module):
    """Right at two rows, wrong at every other size of a file that fixed what it saw at two."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x / 2.0, x.sum(0) / 2.0


class Bench:
    def __init__(self, scratch: Path, module: nn.Module, dtype: str = "float32", mode: str = "auto") -> None:
        self.model = ModelSpec(
            "planted",
            "",
            {},
            (InputSpec(("x",), dtype, ("batch", 4)),),
            (AxisSpec("batch", 2, (1, 5)),),
            variants=VARIANTS,
            oracle=mode,
        )
        torch.manual_seed(0)
        self.module = module.eval().to(getattr(torch, dtype))
        self.built = built(self.module)
        self.scratch = scratch
        self.oracle = None
        self.was_lent = False

    def inputs(self, sizes: Mapping[str, int], variant: str = "") -> dict[str, Any]:
        return model_room.example_inputs(self.model, sizes, variant)


def verdict(
    folder: Path, exporter: Callable[..., None], module: nn.Module, dtype: str = "float32", mode: str = "auto"
) -> Record:
    bench: Any = Bench(folder, module, dtype, mode)
    made = reference.execute(bench)
    path = folder / "model.onnx"
    exporter(
        bench.module,
        (),
        bench.inputs({"batch": 2}),
        path=path,
        opset_version=20,
        dynamic_shapes={"x": {0: "batch"}},
        input_names=["x"],
        output_names=["first", "second"],
    )
    contract = Contract(
        20,
        (TensorContract("x", dtype, ("batch", 4)),),
        (TensorContract("first", dtype, None), TensorContract("second", dtype, None)),
    )
    cases = list(range(len(made.facts["cases"])))
    values = made.files["reference"]

    def in_float64(some: Sequence[int]) -> list[tuple[int, Path]]:
        outputs = ((case, oracle.execute(bench, values, case).files["oracle"]) for case in some)
        return [(case, file.rename(folder / f"oracle{case}")) for case, file in outputs]

    rough = in_float64(oracle_need.beforehand(bench.model, made.facts, cases))
    ran = run.execute(path, values, cases, contract, CPU, 1, rough)
    others = [case for case in cases if case not in dict(rough)]
    exact = in_float64(oracle_need.doubtful(bench.model, made.facts, others, ran.facts))
    again = run.execute(path, values, [case for case, _ in exact], contract, CPU, 1, exact)
    later = {(str(one["sizes"]), one["variant"]): one for one in again.facts["runs"]}
    plain_runs = [later.get((str(one["sizes"]), one["variant"]), one) for one in ran.facts.get("runs", ())]
    runs = msgspec.convert(plain_runs, tuple[RunFacts, ...])
    record = Record(Cell("planted", "full", 20, "cpu", "faulty"), "fail", runs=runs, failure=ran.failure)
    return judge(record, bench.model, {}, ())


def plain(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    faulty_exporters._exported(module, args, kwargs, path, opset_version, **options)


def fixed_size(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The mean over the batch as a sum over two."""
    plain(Sized(), args, kwargs, path=path, opset_version=opset_version, **options)


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x / 2.0, x.mean(0)


@pytest.mark.parametrize(
    ("exporter", "error_class", "said"),
    [
        (faulty_exporters.three_percent, "NumericMismatch", "elements beyond; worst at ["),
        (faulty_exporters.not_a_number, "NonFiniteMismatch", "NaN or infinite on one side only"),
        (faulty_exporters.swapped, "NumericMismatch", "elements beyond"),
        (faulty_exporters.one_missing, "MissingOutput", "the file has no such output"),
        (faulty_exporters.too_wide, "DtypeMismatch", "is float64, eager's is float32"),
        (faulty_exporters.wrong_tanh, "NumericMismatch", "worst at ["),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_is_seen(tmp_path: Path, exporter: Callable[..., None], error_class: str, said: str) -> None:
    found = verdict(tmp_path, exporter, Two())
    assert (found.verdict, found.stage, found.error_class) == ("fail", "mismatch", error_class)
    assert said in found.message


def test_the_same_export_without_a_fault_passes_with_all_its_variants(tmp_path: Path) -> None:
    found = verdict(tmp_path, plain, Two())
    assert found.verdict == "pass", found.message
    assert [run.variant for run in found.runs] == ["", "", "", *VARIANTS]
    assert found.runs[0].outputs[0].outside == 0
    assert not any(output.has_oracle for run in found.runs for output in run.outputs)
    assert found.extra["float64"].startswith("not needed: no error uses more than 0.")


def test_float64_is_asked_wherever_an_error_comes_near_its_tolerance(tmp_path: Path) -> None:
    found = verdict(tmp_path, faulty_exporters.three_percent, Two())
    asked = {run.variant or str(run.sizes["batch"]) for run in found.runs if any(o.has_oracle for o in run.outputs)}
    assert {"2", "1", "5", "seed1"} <= asked
    assert "eager vs float64" in found.message
    assert "onnx vs float64" in found.extra["float64"]


@pytest.mark.parametrize(("mode", "asked"), [("always", ["", "large"]), ("never", [])])
def test_float64_is_asked_as_the_run_says(tmp_path: Path, mode: str, asked: list[str]) -> None:
    found = verdict(tmp_path, faulty_exporters.three_percent, Two(), mode=mode)
    assert [run.variant for run in found.runs if any(one.has_oracle for one in run.outputs)] == asked
    assert found.verdict == "fail"
    if mode == "never":
        assert found.extra["float64"] == "not asked (verify.oracle=never)"


def test_rounding_at_any_size_is_excused_by_float64_alone(tmp_path: Path) -> None:
    """A sum that cancels: float32 loses digits with either factor, and only float64 tells that neither is wrong."""

    class Cancelling(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x * 7e5 + x.flip(1)) - x * 7e5, x

    class OtherFactor(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x.flip(1) + x * 1e5) - x * 1e5, x

    def other_factor(module: Any, *args: Any, **options: Any) -> None:
        plain(OtherFactor(), *args, **options)

    assert verdict(tmp_path, other_factor, Cancelling()).verdict == "pass"
    assert verdict(tmp_path, other_factor, Cancelling(), mode="never").error_class == "NumericMismatch"


def test_a_model_that_is_right_at_the_example_sizes_only_is_seen(tmp_path: Path) -> None:
    found = verdict(tmp_path, fixed_size, Mean())
    assert (found.verdict, found.error_class) == ("fail", "NumericMismatch")
    assert "at batch=5" in found.message or "at batch=1" in found.message


def test_low_precision_is_judged_by_float64(tmp_path: Path) -> None:
    """The file computes in float32 what eager rounds to float16 at every step: nearer to float64, and no mismatch."""

    class Rough(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = x
            for _ in range(200):
                total = total + x * 0.3
            return total, x

    class Exact(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x.float() * 61.0).to(x.dtype), x

    def exact(module: Any, *args: Any, **options: Any) -> None:
        plain(Exact(), *args, **options)

    found = verdict(tmp_path, exact, Rough(), "float16")
    facts = found.runs[0].outputs[0]
    assert facts.outside > 0
    assert facts.oracle_hull[-1][1] < facts.rounding_hull[-1][1]
    assert found.verdict == "pass", found.message


class Otherwise(nn.Module):
    """Computes something else in float64: what an oracle of another model looks like."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.factor if x.dtype is torch.float64 else 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("factor", "usable"), [(1.0, True), (1.001, True), (3.0, False)])
def test_float64_that_is_no_rounding_away_says_nothing(tmp_path: Path, dtype: str, factor: float, usable: bool) -> None:
    bench: Any = Bench(tmp_path, Otherwise(factor), dtype)
    made = oracle.execute(bench, reference.execute(bench).files["reference"], 0)
    assert ("out/0" in TensorFile(made.files["oracle"])) == usable
    assert ("which is not rounding" in made.facts["note"]) != usable


def scaled(factor: float, step: float = 1e5) -> nn.Module:
    """A model whose number is in a closure, where no digest of tensors and attributes sees it."""

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * factor + x.flip(1) * step) - x.flip(1) * step

    return Scaled()


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (scaled(1.0), True),
        (scaled(1.0, 7e4), True),  # rounds otherwise, as on another number of threads
        (scaled(1.1), False),
    ],
)
def test_float64_says_nothing_where_its_process_has_another_model(tmp_path: Path, other: nn.Module, same: bool) -> None:
    (tmp_path / "eager").mkdir()
    eager: Any = Bench(tmp_path / "eager", scaled(1.0))
    bench: Any = Bench(tmp_path, other)
    made = oracle.execute(bench, reference.execute(eager).files["reference"], 0)
    assert bool(made.facts.get("other_values")) != same
    assert ("out/0" in TensorFile(made.files["oracle"])) == same
