"""How long a whole matrix takes: batch_export cold and warm, and the plain loop with the same number of workers.

Each side is a command of its own, timed from its start to its end, so starting Python, torch and workers counts on all
sides. Cold: an empty store. Warm: the same command once more. The plain loop is `benchmarks/plain_loop.py`: it checks
less (one size instead of all check sizes, no checker, no eager latency) and keeps nothing. Timing inferences costs time
that is no one's merit, and batch_export does it alone on the machine where the plain loop does it beside exports: both
sides have the same budget for it, at least 20 runs and `--min-s` a cell and at most `--budget-s`. The matrix has every
opset that the core writes; `--opsets 18 20 21 23` is half of it. Cold and warm take turns `--repeat` times, and the run
whose wall time is the median is shown; the plain loop, which repeats itself in every cell, runs once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MODELS = ("cnn", "unet", "transformer_encoder", "bert_tiny", "gpt2", "vit", "llama", "swin")
OPSETS = tuple(range(18, 26))
SETTINGS = ("static", "full")
TARGET_COLD = 4.0
TARGET_WARM = 100.0


@dataclass(frozen=True, slots=True)
class Row:
    """One command: what it was, its wall and CPU time in seconds, cells that went wrong, and what it said of itself.

    On a machine that others use, CPU time tells more than wall time; it counts all processes of the command.
    """

    side: str
    n_jobs: int
    wall_s: float
    cpu_s: float
    cells: int
    wrong: int
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Matrix:
    """What both sides work through."""

    models: tuple[str, ...]
    opsets: tuple[int, ...]
    min_s: float
    budget_s: float

    @property
    def cells(self) -> int:
        """Their number."""
        return len(self.models) * len(self.opsets) * len(SETTINGS)


def sweep(matrix: Matrix, n_jobs: int, folder: Path, side: str) -> Row:
    """Runs batch_export on the matrix; the store is in `folder`, so a second call finds it filled."""
    command = [
        *(sys.executable, "-m", "batch_export"),
        f"matrix.models=[{','.join(matrix.models)}]",
        f"matrix.opsets=[{','.join(map(str, matrix.opsets))}]",
        f"matrix.dynamic=[{','.join(SETTINGS)}]",
        f"runner.n_jobs={n_jobs}",
        f"measure.min_s={matrix.min_s}",
        f"measure.budget_s={matrix.budget_s}",
        f"store.path={folder / 'store'}",
        f"output.path={folder / 'outputs'}",
    ]
    wall, cpu, _ = _timed(command, allowed=(0, 1))
    summary = json.loads((folder / "outputs" / "latest" / "summary.json").read_text(encoding="utf-8"))
    wrong = summary["planned"] - summary["pass"] - summary["xfail"]
    kept = {name: summary[name] for name in ("ran", "cached", "pass", "xfail", "fail")}
    kept["seconds"] = _seconds_by_step(folder / "outputs" / "latest" / "records.jsonl")
    return Row(side, n_jobs, wall, cpu, summary["planned"], wrong, kept)


def _seconds_by_step(records: Path) -> dict[str, float]:
    """Seconds of the actions that were executed, each once, by step; those of `Measure` and `Eager` pass alone."""
    executed: dict[str, tuple[str, float]] = {}
    for line in records.read_text(encoding="utf-8").splitlines():
        for action in json.loads(line)["actions"]:
            if action["origin"] == "ran":
                executed[action["key"]] = action["mnemonic"], action["seconds"]
    seconds: dict[str, float] = {}
    for mnemonic, taken in executed.values():
        seconds[mnemonic] = round(seconds.get(mnemonic, 0.0) + taken, 2)
    return seconds


def plain(matrix: Matrix, n_jobs: int) -> Row:
    """Runs the plain loop on the matrix."""
    command = [
        *(sys.executable, "-m", "benchmarks.plain_loop", "--models", *matrix.models),
        *("--opsets", *map(str, matrix.opsets), "--dynamic", *SETTINGS),
        *("--n-jobs", str(n_jobs), "--min-s", str(matrix.min_s), "--budget-s", str(matrix.budget_s)),
    ]
    wall, cpu, output = _timed(command, allowed=(0,))
    outcomes = json.loads(output.splitlines()[-1])
    wrong = {one["cell"]: one.get("error", f"off by {one.get('max_abs')}") for one in outcomes if not one.get("agrees")}
    return Row("plain loop", n_jobs, wall, cpu, len(outcomes), len(wrong), {"wrong": wrong})


def _timed(command: Sequence[str], allowed: Sequence[int]) -> tuple[float, float, str]:
    """Runs a command; returns its wall time, the CPU time of it and its children, and what it printed."""
    begun, before = time.perf_counter(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    wall, after = time.perf_counter() - begun, os.times()
    if done.returncode not in allowed:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, done.stdout


def _environment() -> dict[str, str]:
    """The same for both sides: one thread in torch's pools, since the workers already fill the cores."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def table(rows: Sequence[Row], baseline: Row | None) -> str:
    """The rows as a Markdown table; ratios are the baseline's wall time over the row's."""
    lines = ["| what | workers | wall s | CPU s | s a cell | cells | wrong | faster than the plain loop |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        ratio = f"{baseline.wall_s / row.wall_s:.1f}x" if baseline is not None and row.side != baseline.side else ""
        numbers = f"{row.wall_s:.1f} | {row.cpu_s:.1f} | {row.wall_s / row.cells:.2f} | {row.cells} | {row.wrong}"
        lines.append(f"| {row.side} | {row.n_jobs} | {numbers} | {ratio} |")
    return "\n".join(lines)


def median(rows: Sequence[Row]) -> Row:
    """Returns the row whose wall time is the (lower) median."""
    return sorted(rows, key=lambda row: row.wall_s)[(len(rows) - 1) // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; `python -m benchmarks.sweep --help` has the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="models of the matrix")
    parser.add_argument("--opsets", nargs="+", type=int, default=list(OPSETS))
    parser.add_argument("--n-jobs", type=int, default=2, help="workers on both sides (default 2)")
    parser.add_argument("--min-s", type=float, default=0.05, help="timed inference per cell at least, on both sides")
    parser.add_argument("--budget-s", type=float, default=0.6, help="timed inference per cell at most, on both sides")
    parser.add_argument("--repeat", type=int, default=3, help="how often cold and warm are run (default 3)")
    parser.add_argument("--skip-single", action="store_true", help="leave out the plain loop with one worker")
    parser.add_argument("--skip-plain", action="store_true", help="leave out the plain loop")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    matrix = Matrix(tuple(options.models), tuple(options.opsets), options.min_s, options.budget_s)
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {matrix.cells} cells", flush=True)
    rows: list[Row] = []

    def add(row: Row) -> Row:
        rows.append(row)
        print(
            f"{row.side}, {row.n_jobs} workers: {row.wall_s:.1f} s, {row.cpu_s:.1f} s of CPU, {row.details}", flush=True
        )
        return row

    baseline: Row | None = None
    colds, warms = [], []
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory(prefix="bench-sweep-") as name:
            colds.append(add(sweep(matrix, options.n_jobs, Path(name), "batch_export, cold")))
            warms.append(add(sweep(matrix, options.n_jobs, Path(name), "batch_export, warm")))
    cold, warm = median(colds), median(warms)
    if not options.skip_plain:
        baseline = add(plain(matrix, options.n_jobs))
        if not options.skip_single and options.n_jobs != 1:
            add(plain(matrix, 1))
    bounds = f"20 runs and {matrix.min_s:g} s at least, {matrix.budget_s:g} s at most"
    print(f"\nLatency budget of a cell on both sides: {bounds}.\n")
    print(table([cold, warm, *(row for row in rows if row.side == "plain loop")], baseline))
    if baseline is not None:
        print(f"\ncold {baseline.wall_s / cold.wall_s:.1f}x (target >= {TARGET_COLD:g}x), ", end="")
        print(f"warm {baseline.wall_s / warm.wall_s:.0f}x (target >= {TARGET_WARM:g}x)")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
