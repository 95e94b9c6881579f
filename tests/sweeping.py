"""Small matrices over the fake stages, for the tests of the runner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_export.numbers.tolerances import Tolerance
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Record
from batch_export.runner.reporter import Lane
from batch_export.runner.sweep import RunResult, run_sweep
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import (
    CORE_EXPORTER_TARGET,
    AxisSpec,
    ExporterSpec,
    InputSpec,
    MatrixSpec,
    ModelSpec,
    RunnerSpec,
    RunSpec,
    StoreSpec,
)
from batch_export.steps import STEPS, WORKBENCH

STAGES = {name: f"fake_stages.{name.lower()}" for name in STEPS} | {WORKBENCH: "fake_stages.bench"}
CORE = ExporterSpec("core", CORE_EXPORTER_TARGET)
PLUGIN = ExporterSpec("plugged", "fake_stages.plugin.execute")
CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")


def model(name: str, **arguments: Any) -> ModelSpec:
    """A model whose builder is never called."""
    return ModelSpec(
        name,
        "fake_stages.acting.act",
        {"named": name, **arguments},
        inputs=(InputSpec(("x",), "float32", ("batch", 4)),),
        axes=(AxisSpec("batch", 2, (1, 5)),),
    )


def cells(
    models: Iterable[ModelSpec],
    opsets: Sequence[int] = (18, 20),
    dynamic: Sequence[str] = ("static",),
    exporter: ExporterSpec = CORE,
    provider: ProviderSpec = CPU,
) -> list[PlannedCell]:
    """The product."""
    return [
        PlannedCell(Cell(item.name, setting, opset, provider.name, exporter.name), item, provider, exporter)
        for item in models
        for setting in dynamic
        for opset in opsets
    ]


@dataclass
class Listener:
    """A reporter that remembers."""

    lanes: list[tuple[Lane, ...]] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    ended_units: list[str] = field(default_factory=list)
    places: list[tuple[str, str, str]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    verified_cells: list[Cell] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    ended: bool = False
    remembers: bool = True
    """Whether records are kept."""

    def started(self, cells: Sequence[Cell]) -> None:
        self.planned = tuple(cells)

    def scheduled(self, lanes: Sequence[Lane]) -> None:
        self.lanes.append(tuple(lanes))

    def group_started(self, name: str) -> None:
        self.units.append(name)

    def working(self, name: str, cell: Cell, mnemonic: str) -> None:
        self.places.append((name, cell.name, mnemonic))

    def group_finished(self, name: str) -> None:
        self.ended_units.append(name)

    def verified(self, cell: Cell) -> None:
        self.verified_cells.append(cell)

    def record(self, record: Record) -> None:
        if self.remembers:
            self.records.append(record)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def finished(self) -> None:
        self.ended = True


def sweep(
    folder: Path,
    planned: Sequence[PlannedCell],
    *,
    listener: Listener | None = None,
    n_jobs: int = 2,
    timeout_s: float = 300.0,
    memory_gb: float = 2.0,
    measure: MeasureSpec | None = None,
    tolerance: Tolerance | None = None,
    preload: Sequence[str] = (),
    store: StoreSpec | None = None,
    retries: int = 0,
    run: str = "",
    stages: Mapping[str, str] = STAGES,
    **runner: Any,
) -> RunResult:
    """Runs the cells over the fake stages, with the store and the runs in `folder`; `run` names a run to go on with."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = RunSpec(
        matrix=MatrixSpec((), (), (), (), ()),
        runner=RunnerSpec(n_jobs, timeout_s, memory_gb, retries=retries, **runner),
        measure=measure or MeasureSpec(enabled=False),
        tolerances={"float32": tolerance or Tolerance(0.01, 0.0)},
        store_path=str(folder / "store"),
        output_path=str(folder),
        store=store or StoreSpec(),
    )
    run_folder = folder / (run or f"run{len(list(folder.glob('run*')))}")
    return run_sweep(
        spec,
        planned,
        reporter=listener or Listener(),
        run_folder=run_folder,
        command="batch-export +sweep=fake",
        stages=stages,
        preload=preload,
    )


def by_name(result: RunResult) -> dict[str, Record]:
    """Records by cell name."""
    return {record.cell.name: record for record in result.records}
