"""How much memory the parent of a sweep takes per cell: cold and warm, while cells run and while reports are written.

Stand-in stages (those of the tests) take the place of exports, with facts as long as real ones (about 6 kB a record),
so that only the parent's own books are measured. Each size is measured in a process of its own that has finished a
tiny sweep before, so imports do not count; peaks are the kernel's own figure (`VmHWM`), reset before the plan is made.
Linux only. `python -m benchmarks.parent [--cells 500 2000 10000]`; exit code 1 when a cell costs more than the target.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

TESTS = Path(__file__).parents[1] / "tests"
SIZES = (500, 2_000, 10_000)
TARGET_KB_PER_CELL = 8.0
"""Between the smallest and the largest size, planned cells and reports included."""
OPSETS = tuple(range(1, 21))
DYNAMIC = ("static", "batch", "full", "auto")


@dataclass(frozen=True, slots=True)
class Peak:
    """One sweep: megabytes above the process before it, how long it took, and the parent's share of CPU time."""

    cells: int
    kind: str
    running_mb: float
    reports_mb: float
    wall_s: float
    cpu_s: float
    record_kb: float


def measure(cells: int, folder: Path, kind: str) -> Peak:
    """Runs `cells` cells in this process, after a tiny sweep of another store."""
    _sweep(20, folder / f"before_{kind}", kind)
    return _sweep(cells, folder, kind)


def _sweep(count: int, folder: Path, kind: str) -> Peak:
    from sweeping import CPU, STAGES, Listener, cells, model  # the tests' folder is on the path of the child only

    from batch_export.report import run_folder as files
    from batch_export.runner.sweep import run_sweep
    from batch_export.runtime.measuring import MeasureSpec
    from batch_export.spec import MatrixSpec, RunnerSpec, RunSpec
    from batch_export.sweeps.course import finish
    from batch_export.sweeps.job import Job

    run = folder / kind
    run.mkdir(parents=True)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before, began, cpu = _status("VmRSS"), time.monotonic(), time.process_time()
    models = [model(f"model_number_{index}") for index in range(-(-count // len(OPSETS) // len(DYNAMIC)))]
    planned = cells(models, OPSETS, DYNAMIC, provider=replace(CPU, name="long_facts"))[:count]
    spec = RunSpec(
        matrix=MatrixSpec((), (), (), (), ()), runner=RunnerSpec(os.cpu_count() or 1, 60.0, 4.0),
        measure=MeasureSpec(enabled=False), tolerances={}, store_path=str(folder / "store"), output_path=str(folder),
    )  # fmt: skip
    command = "batch-export +sweep=stand_ins"
    files.write_run(run, spec, planned, command)
    result = run_sweep(
        spec, planned, reporter=Listener(remembers=False), run_folder=run, command=command, stages=STAGES, preload=()
    )
    running = _status("VmHWM")
    bad = next((record for record in result.records if record.verdict != "pass"), None)
    if bad is not None:
        raise RuntimeError(f"{bad.cell.name}: {bad.stage} {bad.error_class}: {bad.message}")
    finish(Job(run, folder, spec, tuple(planned), command, quiet=True), result, began)
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    size = (run / "records.jsonl").stat().st_size / count
    return Peak(count, kind, (running - before) / 1e6, (_status("VmHWM") - before) / 1e6, wall, cpu, size / 1e3)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


def in_children(cells: int) -> Iterator[Peak]:
    """`measure` in fresh processes: with an empty store, and with the one that the first has filled."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    with tempfile.TemporaryDirectory(prefix="bench-parent-") as folder:
        for kind in ("cold", "warm"):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.parent", "--child", str(cells), folder, kind],
                check=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
            yield msgspec.json.decode(done.stdout.splitlines()[-1], type=Peak)


def main() -> int:
    """Prints a row per size and kind."""
    parser = argparse.ArgumentParser(description="How much memory the parent of a sweep takes per cell.")
    parser.add_argument("--cells", type=int, nargs="+", default=SIZES)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        cells, folder, kind = asked.child
        print(msgspec.json.encode(measure(int(cells), Path(folder), kind)).decode())
        return 0
    found: list[Peak] = []
    print("| cells | run | peak while cells run, MB | peak with reports, MB | wall, s | CPU, s | record, kB |")
    print("|---|---|---|---|---|---|---|")
    for cells in asked.cells:
        for peak in in_children(cells):
            found.append(peak)
            megabytes = f"{peak.running_mb:.1f} | {peak.reports_mb:.1f}"
            rest = f"{peak.wall_s:.1f} | {peak.cpu_s:.1f} | {peak.record_kb:.1f}"
            print(f"| {peak.cells} | {peak.kind} | {megabytes} | {rest} |", flush=True)
    if len(asked.cells) < 2:
        return 0
    worst = 0.0
    for kind in ("cold", "warm"):
        rows = [peak for peak in found if peak.kind == kind]
        first, last = rows[0], rows[-1]
        more = last.cells - first.cells
        running = (last.running_mb - first.running_mb) / more * 1e3
        reports = (last.reports_mb - first.reports_mb) / more * 1e3
        worst = max(worst, running, reports)
        print(
            f"{kind}: {running:.1f} kB a cell while cells run, {reports:.1f} with reports (target {TARGET_KB_PER_CELL})"
        )
    return 1 if worst > TARGET_KB_PER_CELL else 0


if __name__ == "__main__":
    sys.exit(main())
