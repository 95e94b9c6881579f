"""Records for the tests of reports: one that passes, one that fails, and a run folder that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from batch_export.numbers.facts import OutputFacts
from batch_export.plan.matrix import PlannedCell
from batch_export.record import ActionFacts, Cell, Failure, OnnxFacts, Record, RunFacts
from batch_export.report import run_folder
from batch_export.report.formats import SUMMARIES, Subject, write
from batch_export.report.summary import Counts, summarise
from batch_export.runner.surroundings import Surroundings, write_surroundings
from batch_export.runtime.measuring import LatencyFacts, MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import AxisSpec, Expectation, ExporterSpec, InputSpec, MatrixSpec, ModelSpec, RunnerSpec, RunSpec

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
CORE = ExporterSpec("core", "batch_export.exporter")
FACTS = OutputFacts(
    "y", "float32", "float32", (2, 4), (2, 4), hull=((0.1, 1e-8), (2.0, 1e-7)), max_abs=1e-7, max_rel=1e-7, count=8
)


def cell(
    model: str = "bert", dynamic: str = "static", opset: int = 20, provider: str = "cpu", exporter: str = "core"
) -> Cell:
    return Cell(model, dynamic, opset, provider, exporter)


def latency(median: float, contended: bool = False) -> LatencyFacts:
    return LatencyFacts(median, median * 1.1, median * 0.99, median * 1.01, 100, contended)


def passed(where: Cell, *, ms: float = 1.0, contended: bool = False, sha: str = "a", **changes: Any) -> Record:
    """Facts of a cell that passes when it is judged."""
    return replace(
        Record(
            where,
            "pass",
            max_abs=1e-7,
            max_rel=1e-7,
            latency_ms=latency(ms, contended),
            eager_ms=3.0,
            onnx=OnnxFacts("models/aa/bb.onnx", sha * 64, 10_000, where.opset, 50),
            actions=(
                ActionFacts("Reference", "r" * 64, "cached", 0.1),
                ActionFacts("Capture", "c" * 64, "ran", 0.5),
                ActionFacts("Translate", "t" * 64, "ran", 0.5),
            ),
            runs=(RunFacts({"batch": 2}, (FACTS,)),),
        ),
        **changes,
    )


def failed(
    where: Cell, stage: Any = "translate", error_class: str = "MissingOperator", text: str = "no such op"
) -> Record:
    """Facts of a cell that fails when it is judged."""
    return Record(where, "fail", stage, error_class, text, failure=Failure(stage, error_class, text))


def model(name: str) -> ModelSpec:
    return ModelSpec(
        name, "models.x.y", {}, inputs=(InputSpec(("x",), "float32", ("batch", 4)),), axes=(AxisSpec("batch", 2, (1,)),)
    )


def circumstances(started: str, commit: str = "", host: str = "") -> Surroundings:
    """When, of what and where a made-up run was."""
    toolchain = Toolchain({"torch": "2.13"}, {}, {}, {"name": host} if host else {})
    return Surroundings("a run", toolchain, started=started, commit=commit)


def write_run(
    folder: Path,
    records: Sequence[Record],
    *,
    planned: Iterable[Cell] | None = None,
    expectations: Sequence[Expectation] = (),
    made: Surroundings | None = None,
    baseline: str = "",
    shard: str = "",
) -> RunSpec:
    """Writes a finished run's folder."""
    cells = list(planned) if planned is not None else [record.cell for record in records]
    models = {where.model: model(where.model) for where in cells}
    matrix = MatrixSpec(
        tuple(models.values()),
        tuple(sorted({where.opset for where in cells})),
        tuple(sorted({where.dynamic for where in cells})),
        (CPU,),
        (CORE,),
    )
    spec = RunSpec(
        matrix,
        RunnerSpec(shard=shard),
        MeasureSpec(),
        {},
        str(folder.parent.parent / "store"),
        str(folder),
        tuple(expectations),
        baseline=baseline,
    )
    folder.mkdir(parents=True)
    run_folder.write_run(folder, spec, [PlannedCell(c, models[c.model], CPU, CORE) for c in cells], "batch-export")
    write_surroundings(folder, made or circumstances(f"2026-11-{folder.parent.name[-2:]}T01:00:00"))
    run_folder.write_records(folder, records)
    write(Subject(folder, records, summarise(records, Counts(1.0, 1))), SUMMARIES)
    return spec
