"""What a further opset costs: one capture turned into a file at one opset, then at another.

Per model and dynamic-shape setting, in CPU seconds of this process in one thread: everything after the capture
(translation, optimisation, bringing to the opset) at the first opset, and the same at the next. Each pair begins with
a capture of its own; a first translation is not timed. The ratio's target is for pairs that translate alike.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from batch_export import axes
from batch_export.exporter.api import to_onnx, warm
from batch_export.exporter.capture.capture import capture
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room
from benchmarks import zoo
from benchmarks.export import SETTINGS, machine, quiet

TARGET = 0.25


@dataclass(frozen=True, slots=True)
class Row:
    """One model at one setting: CPU seconds at the first opset and at the second, and whether both translate alike."""

    model: str
    setting: str
    first: float
    second: float
    is_alike: bool

    @property
    def ratio(self) -> float:
        """The second opset's seconds over the first's."""
        return self.second / self.first


def measure(spec: ModelSpec, settings: Sequence[str], opsets: Sequence[int]) -> Iterator[Row]:
    """Measures one model; a row for each setting."""
    module = model_room.build(spec)
    inputs = model_room.example_inputs(spec, axes.example_sizes(spec))
    for setting in settings:
        asked = model_room.dynamic_shapes(spec, setting)
        with quiet():
            captured = capture(module, (), inputs, dynamic_shapes=asked, guards="allow")
            to_onnx(captured, opsets[0], reusable=False)
            seconds: list[float] = []
            for opset in opsets:
                gc.collect()
                begun = time.process_time()
                to_onnx(captured, opset)
                seconds.append(time.process_time() - begun)
        kept = sum(map(len, captured.prepared.values()))
        yield Row(spec.name, setting, seconds[0], seconds[1], kept == 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per row; returns 1 where the median of pairs that translate alike is above the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["*"], help="names or globs; the whole zoo when left out")
    parser.add_argument("--opsets", nargs=2, type=int, default=[20, 21])
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warm()
    rows: list[Row] = []
    for spec in zoo.models(given.models):
        for row in measure(spec, SETTINGS, given.opsets):
            rows.append(row)
            how = "alike" if row.is_alike else "translated again"
            print(
                f"{row.model:24} {row.setting:8} {row.first:7.3f} {row.second:7.3f} {row.ratio:5.2f}  {how}", flush=True
            )
    ratios = [row.ratio for row in rows if row.is_alike]
    if not ratios:
        print("no row translates alike at both opsets")
        return 0
    median = statistics.median(ratios)
    print(f"Measured on {machine()}.")
    print(f"{len(ratios)} of {len(rows)} rows translate alike: median {median:.2f}, {max(ratios):.2f} at most")
    return int(median > TARGET)


if __name__ == "__main__":
    sys.exit(main())
