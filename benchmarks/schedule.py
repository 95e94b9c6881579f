"""How well the runner's order keeps workers busy: makespan against a lower bound, simulated from recorded durations.

`durations.json` holds what the units of `+sweep=all` took when they were recorded. Each model is repeated until the
number of cells is reached; the runner's own `group` and `in_order` make the units and their order, and the first
free worker takes the next unit. With unknown durations the order is that of an empty store: guessed from the models'
configs (`runner/estimates.py`, whose weights were fitted to these very durations). What a unit takes differs from what
was recorded (lognormal, 20 %), as it does from night to night. No schedule ends before the lower bound: all the work
shared evenly, or the longest single cell.

`python -m benchmarks.schedule [--workers 1000] [--cells 100000]`; exit code 1 when a ratio exceeds the target.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import yaml

from batch_export.config.model import model_spec
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell
from batch_export.runner.estimates import estimated
from batch_export.runner.units import Unit, group, in_order
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.sources.places import conf_dir
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, ModelSpec

TARGET = 1.1
SIZES = ((300, 2), (2_000, 16), (10_000, 100), (100_000, 1_000))
OPSETS = (18, 20, 21, 23)
CAPTURE_SHARE = 0.4
"""Of a recorded unit of four opsets: what every part of it would have to do again."""
NOISE = 0.2
CORE = ExporterSpec("core", CORE_EXPORTER_TARGET)
CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")


def matrix(recorded: dict[str, float], cells: int) -> tuple[list[PlannedCell], dict[str, float]]:
    """Returns as many cells as asked for, and what their groups took."""
    specs = {name: _spec(name) for name in {model.partition("/")[0] for model in recorded}}
    planned: list[PlannedCell] = []
    seconds: dict[str, float] = {}
    names = [name.rsplit("/", 2)[:2] for name in recorded]
    copy = 0
    while len(planned) < cells:
        for model, dynamic in names:
            name = f"{model}_{copy}"
            spec = replace(specs[model], name=name)
            seconds[f"{name}/{dynamic}/core"] = recorded[f"{model}/{dynamic}/core"]
            planned += [
                PlannedCell(Cell(name, dynamic, opset, CPU.name, CORE.name), spec, CPU, CORE) for opset in OPSETS
            ]
        copy += 1
    return planned[:cells], seconds


def _spec(name: str) -> ModelSpec:
    text = (conf_dir() / "model" / f"{name}.yaml").read_text(encoding="utf-8")
    return model_spec(name, yaml.safe_load(text))


def cost(unit: Unit, seconds: dict[str, float], factor: dict[str, float]) -> float:
    """What a unit takes tonight: its group's capture, and its share of the rest."""
    cell = unit.cells[0].cell
    name = f"{cell.model}/{cell.dynamic}/core"
    share = CAPTURE_SHARE + (1 - CAPTURE_SHARE) * len(unit.cells) / len(OPSETS)
    return seconds[name] * share * factor[name]


def makespan(costs: list[float], workers: int) -> float:
    """When the last worker is done, if the first free one always takes the next."""
    free = [0.0] * workers
    for taken in costs:
        heapq.heapreplace(free, free[0] + taken)
    return max(free)


def simulate(recorded: dict[str, float], cells: int, workers: int, known: bool) -> tuple[float, float, float]:
    """Returns makespan, lower bound and the seconds that planning the order took."""
    chance = random.Random(0)
    planned, seconds = matrix(recorded, cells)
    factor = {name: chance.lognormvariate(0, NOISE) for name in seconds}
    began = time.perf_counter()
    told = seconds if known else {}
    units = group(planned, workers, told)
    units = in_order(units, estimated(units, told))
    ordering_s = time.perf_counter() - began
    costs = [cost(unit, seconds, factor) for unit in units]
    whole = [cost(unit, seconds, factor) for unit in group(planned, 1, split=())]
    longest = max(
        seconds[name] * factor[name] * (CAPTURE_SHARE + (1 - CAPTURE_SHARE) / len(OPSETS)) for name in seconds
    )
    return makespan(costs, workers), max(sum(whole) / workers, longest), ordering_s


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="How well the runner's order keeps workers busy.")
    parser.add_argument("--durations", type=Path, default=Path(__file__).with_name("durations.json"))
    parser.add_argument("--cells", type=int)
    parser.add_argument("--workers", type=int)
    asked = parser.parse_args()
    recorded = {name: taken for name, taken in json.loads(asked.durations.read_text()).items() if name.count("/") == 2}
    sizes = ((asked.cells, asked.workers),) if asked.cells and asked.workers else SIZES
    print("cells   workers  durations  makespan  lower bound  ratio  ordering")
    failed = False
    for cells, workers in sizes:
        for known in (True, False):
            taken, bound, ordering_s = simulate(recorded, cells, workers, known)
            failed |= taken / bound > TARGET
            word = "recorded" if known else "unknown"
            print(f"{cells:<7} {workers:<8} {word:<10} {taken:8.1f}s {bound:10.1f}s", end=" ")
            print(f"{taken / bound:7.3f} {ordering_s:8.2f}s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
