"""How long one export takes: our core, `torch.onnx.export`, and `torch.export.export` alone, per model of the zoo.

All three run in this process, single-threaded, on the same module and example inputs; the two exporters write a file
with external data at the same opset. Every side runs once untimed for each model (so nobody pays for imports), then in
rounds whose order alternates (A B C, C B A, ...), and none more once `--row-s` seconds are spent on the row: large
models get one or two. The table has medians. Nothing is cached between two exports but what each side
itself keeps within a process. Whether the files are right is the sweeps' business, not looked at here.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import logging
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from batch_export import axes
from batch_export.errors import BatchExportError, LibraryMissingError
from batch_export.exporter.api import to_onnx, warm
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.capture import capture
from batch_export.peers import torch_dynamo
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room
from batch_export.stages.state import ModuleState
from benchmarks import zoo

OPSET = 20
SETTINGS = (axes.STATIC, axes.FULL)
TARGET_TO_TORCH = 0.4
TARGET_TO_CAPTURE = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """One model at one dynamic-shape setting, ready to be exported any number of times.

    Attributes:
        asked: the dynamic shapes as our core takes them: a tree with axis names, or None.
        torch_form: the same as `torch.export.export` takes them.
    """

    spec: ModelSpec
    setting: str
    module: torch.nn.Module
    inputs: dict[str, Any]
    asked: dict[str, Any] | None
    torch_form: Any


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured for one model at one setting; seconds, medians, None where that side failed.

    Attributes:
        torch_export_s: `torch.export.export` alone.
        capture_s, after_s: our core's capture, and all that follows it up to the closed file.
        torch_onnx_s: `torch.onnx.export`.
        rounds: how many times each side was timed.
        failures: side -> the first line of its error.
    """

    model: str
    setting: str
    rounds: int = 0
    torch_export_s: float | None = None
    capture_s: float | None = None
    after_s: float | None = None
    torch_onnx_s: float | None = None
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ours_s(self) -> float | None:
        """Our core's whole export."""
        return None if self.capture_s is None or self.after_s is None else self.capture_s + self.after_s

    @property
    def to_torch(self) -> float | None:
        """Our time over torch.onnx.export's."""
        return _quotient(self.ours_s, self.torch_onnx_s)

    @property
    def after_to_capture(self) -> float | None:
        """What follows the capture, over the capture."""
        return _quotient(self.after_s, self.capture_s)


def run_torch_export(job: Job, folder: Path) -> tuple[float, ...]:
    """Seconds of `torch.export.export`."""
    with torch.no_grad():
        begun = time.perf_counter()
        torch.export.export(job.module, (), kwargs=job.inputs, dynamic_shapes=job.torch_form, strict=False)
        return (time.perf_counter() - begun,)


def run_ours(job: Job, folder: Path) -> tuple[float, ...]:
    """Seconds of our capture, and of the rest up to the closed file."""
    begun = time.perf_counter()
    captured = capture(job.module, (), job.inputs, dynamic_shapes=job.asked, guards="allow")  # as in a sweep
    between = time.perf_counter()
    to_onnx(captured, OPSET, input_names=axes.input_names(job.spec)).save(folder / "ours.onnx", external_data=True)
    return between - begun, time.perf_counter() - between


def run_torch_onnx(job: Job, folder: Path) -> tuple[float, ...]:
    """Seconds of `torch.onnx.export`."""
    begun = time.perf_counter()
    torch_dynamo.export(
        job.module,
        (),
        job.inputs,
        path=folder / "torch.onnx",
        opset_version=OPSET,
        dynamic_shapes=job.asked,
        input_names=axes.input_names(job.spec),
        output_names=None,
    )
    return (time.perf_counter() - begun,)


Side = Callable[[Job, Path], tuple[float, ...]]
SIDES: dict[str, Side] = {"torch.export": run_torch_export, "batch_export": run_ours, "torch.onnx": run_torch_onnx}


def measure(spec: ModelSpec, settings: Sequence[str], repeats: int, row_s: float) -> Iterator[Row]:
    """Measures one model; a row for each setting, also where a side, or the model itself, fails."""
    try:
        module = model_room.build(spec)
        jobs = [_job(spec, module, setting) for setting in settings]
    except (LibraryMissingError, BatchExportError) as error:
        yield from (Row(spec.name, setting, failures={"model": _first_line(error)}) for setting in settings)
        return
    state = ModuleState(module)
    for name in SIDES:
        _once(name, jobs[0], state)  # untimed: what a side does only the first time it meets this model
    gc.collect()
    gc.freeze()  # what lives on is not looked through again before every export
    try:
        yield from (_row(job, state, repeats, row_s) for job in jobs)
    finally:
        gc.unfreeze()


def _job(spec: ModelSpec, module: torch.nn.Module, setting: str) -> Job:
    inputs = model_room.example_inputs(spec, axes.example_sizes(spec))
    asked = model_room.dynamic_shapes(spec, setting)
    return Job(spec, setting, module, inputs, asked, shapes.canonical(asked, module, (), inputs).torch_form)


def _row(job: Job, state: ModuleState, repeats: int, row_s: float) -> Row:
    seconds: dict[str, list[tuple[float, ...]]] = {name: [] for name in SIDES}
    failures: dict[str, str] = {}
    rounds, begun = 0, time.monotonic()
    while rounds < repeats and (rounds == 0 or time.monotonic() - begun < row_s):
        for name in SIDES if rounds % 2 == 0 else reversed(SIDES):
            if name in failures:
                continue
            taken = _once(name, job, state)
            if isinstance(taken, str):
                failures[name] = taken
            else:
                seconds[name].append(taken)
        rounds += 1

    def median(name: str, part: int = 0) -> float | None:
        return None if name in failures else statistics.median(taken[part] for taken in seconds[name])

    return Row(
        model=job.spec.name,
        setting=job.setting,
        rounds=rounds,
        torch_export_s=median("torch.export"),
        capture_s=median("batch_export", 0),
        after_s=median("batch_export", 1),
        torch_onnx_s=median("torch.onnx"),
        failures=failures,
    )


def _once(name: str, job: Job, state: ModuleState) -> tuple[float, ...] | str:
    """Runs one side once; returns its seconds, or the first line of its error."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, quiet():
        torch.manual_seed(job.spec.seed)
        gc.collect()  # so that nobody pays for another's garbage
        try:
            return SIDES[name](job, Path(folder))
        except Exception as error:
            return f"{type(error).__name__}: {_first_line(error)}"
        finally:
            state.restore()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps warnings and progress lines of the exporters out of a table."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


_HEADER = (
    *("model", "setting", "torch.export s", "capture s", "after capture s", "ours s", "torch.onnx s"),
    *("ours/torch.onnx", "after/capture", "rounds"),
)


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; `-` where a side failed."""
    lines = [f"| {' | '.join(_HEADER)} |", "|---|---" + "|---:" * (len(_HEADER) - 2) + "|"]
    lines += [_line(row) for row in rows]
    return "\n".join(lines)


def _line(row: Row) -> str:
    numbers = (
        *(row.torch_export_s, row.capture_s, row.after_s, row.ours_s, row.torch_onnx_s),
        *(row.to_torch, row.after_to_capture),
    )
    cells = ("-" if number is None else f"{number:.2f}" for number in numbers)
    return f"| {' | '.join((row.model, row.setting, *cells, str(row.rounds)))} |"


def conclusions(rows: Sequence[Row]) -> list[str]:
    """What the rows come to: failures by side, and the medians, with their targets, by setting and in all."""
    lines = [f"failed: {row.model}/{row.setting}, {side}: {why}" for row in rows for side, why in row.failures.items()]
    settings = list(dict.fromkeys(row.setting for row in rows))
    for name in (*settings, "all") if len(settings) > 1 else settings:
        chosen = [row for row in rows if name in (row.setting, "all")]
        failed = ", ".join(f"{side} {sum(side in row.failures for row in chosen)}" for side in SIDES)
        ratios = [row.to_torch for row in chosen if row.to_torch is not None]
        parts = [row.after_to_capture for row in chosen if row.after_to_capture is not None]
        lines.append(
            f"{name}: median ours/torch.onnx {_median(ratios)} over {len(ratios)} (target <= {TARGET_TO_TORCH}), "
            f"median after/capture {_median(parts)} over {len(parts)} (target <= {TARGET_TO_CAPTURE}), failed: {failed}"
        )
    return lines


def machine() -> str:
    """What the figures were measured on."""
    system = f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} thread"
    return f"{system}, Python {platform.python_version()}, torch {torch.__version__}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; `python -m benchmarks.export --help` has the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export", description=__doc__)
    parser.add_argument("--models", nargs="+", default=["*"], help="names, globs or tags (tag:smoke); all by default")
    parser.add_argument("--dynamic", nargs="+", default=list(SETTINGS), choices=SETTINGS, help="settings")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds (default 3)")
    parser.add_argument("--row-s", type=float, default=5.0, help="no further round once a row took this long (5)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    try:
        specs = zoo.models(options.models)
    except BatchExportError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    begun = time.monotonic()
    with quiet():
        warm()
    print(machine(), flush=True)
    print(table([]), flush=True)
    rows: list[Row] = []
    for spec in specs:
        for row in measure(spec, options.dynamic, options.repeats, options.row_s):
            rows.append(row)
            print(_line(row), flush=True)
    print(f"\n{len(rows)} rows, opset {OPSET}, at most {options.repeats} rounds, {time.monotonic() - begun:.0f} s")
    print("\n".join(conclusions(rows)))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return 0


def _quotient(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "-"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "no message"


if __name__ == "__main__":
    sys.exit(main())
