"""The loop that one would write without batch_export: per cell `torch.onnx.export`, a session, a comparison, a timing.

A process of its own, like the sweep that it is compared with: `python -m benchmarks.plain_loop --n-jobs 2 --models cnn
...`. The cells' outcomes leave on standard output as one JSON line. It takes care where care costs nothing: one thread
in torch and in ONNX Runtime (their default pools slow each other down), joblib's loky workers for more than one job.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnxruntime
import torch
from torch.utils import _pytree as pytree

from batch_export import axes
from batch_export.peers import torch_dynamo
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room
from benchmarks import zoo

MIN_RUNS = 20
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the inferences of a cell are timed: `MIN_RUNS` and `min_s` seconds at least, `budget_s` at most."""

    min_s: float
    budget_s: float


def cell(spec: ModelSpec, setting: str, opset: int, timing: Timing) -> dict[str, Any]:
    """Exports, runs, compares with eager and times one cell; what fails is told under `error`."""
    torch.set_num_threads(1)
    outcome: dict[str, Any] = {"cell": f"{spec.name}/{setting}/opset{opset}"}
    try:
        with tempfile.TemporaryDirectory(prefix="plain-") as folder, _quiet():
            outcome |= _measured(spec, setting, opset, timing, Path(folder) / "model.onnx")
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        outcome["error"] = f"{type(error).__name__}: {lines[0][-200:]}"
    return outcome


def _measured(spec: ModelSpec, setting: str, opset: int, timing: Timing, path: Path) -> dict[str, Any]:
    module = model_room.build(spec)
    inputs = model_room.example_inputs(spec, axes.example_sizes(spec))
    with torch.no_grad():
        expected = [leaf.numpy() for leaf in pytree.tree_leaves(module(**inputs)) if isinstance(leaf, torch.Tensor)]
    torch_dynamo.export(
        module,
        (),
        inputs,
        path=path,
        opset_version=opset,
        dynamic_shapes=model_room.dynamic_shapes(spec, setting),
        input_names=axes.input_names(spec),
        output_names=None,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    values = dict(zip(axes.input_names(spec), model_room.flat_tensors(inputs), strict=True))
    feeds = {value.name: values[value.name].numpy() for value in session.get_inputs()}
    actual = session.run(None, feeds)
    worst = max(float(np.max(np.abs(a - b))) for a, b in zip(expected, actual, strict=False) if a.size)
    durations: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < timing.budget_s:
        before = time.perf_counter()
        session.run(None, feeds)
        durations.append(time.perf_counter() - before)
        if len(durations) >= MIN_RUNS and time.perf_counter() - begun >= timing.min_s:
            break
    return {"max_abs": worst, "agrees": worst <= TOLERANCE, "median_ms": statistics.median(durations) * 1e3}


@contextlib.contextmanager
def _quiet() -> Any:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the matrix; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain_loop", description=__doc__)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--opsets", nargs="+", type=int, required=True)
    parser.add_argument("--dynamic", nargs="+", default=["static", "full"])
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=0.6, help="seconds of timed inference per cell at most")
    parser.add_argument("--min-s", type=float, default=0.2, help="seconds of timed inference per cell at least")
    options = parser.parse_args(arguments)
    timing = Timing(options.min_s, options.budget_s)
    cells = list(itertools.product(zoo.models(options.models), options.dynamic, options.opsets))
    if options.n_jobs == 1:
        outcomes = [cell(*one, timing) for one in cells]
    else:
        pool = joblib.Parallel(n_jobs=options.n_jobs, backend="loky")
        outcomes = pool(joblib.delayed(cell)(*one, timing) for one in cells)
    print(json.dumps(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
