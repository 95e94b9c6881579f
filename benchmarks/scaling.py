"""How the time of an export grows with the model: deep transformers and long chains, our core and `torch.onnx.export`.

A size is exported once untimed at the smallest step, then once per step, in CPU seconds of this process, in one thread.
The exponent is the slope of a straight line through the logarithms of size and seconds, over the larger half of the
steps: what a fixed part costs would otherwise hide how the rest grows.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from batch_export.exporter.api import export, warm
from benchmarks.export import OPSET, machine, quiet

LAYERS = (12, 24, 48, 96)
NODES = (1_000, 2_000, 5_000, 10_000, 20_000)
TARGET = 1.1


class Chain(torch.nn.Module):
    """Elementwise operators one after the other, no two neighbours alike: nothing of it repeats as a block.

    Args:
        nodes: how many operators.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes = nodes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at in range(self.nodes):
            x = (torch.sin, torch.tanh, torch.cos, torch.sigmoid)[at % 4](x)
        return x


def transformer(layers: int) -> torch.nn.Module:
    """A small encoder of torch.nn with so many layers."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


@dataclass(frozen=True, slots=True)
class Family:
    """Models of growing size: how one is made, its input, the names of the input's free axes, and the sizes."""

    make: Callable[[int], torch.nn.Module]
    example: torch.Tensor
    axes: dict[int, str]
    sizes: Sequence[int]


FAMILIES = {
    "transformer": Family(transformer, torch.ones(2, 8, 32), {0: "batch", 1: "seq"}, LAYERS),
    "chain": Family(Chain, torch.ones(2, 8), {0: "batch"}, NODES),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds by size, of one side at one setting."""

    family: str
    setting: str
    side: str
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def exponent(self) -> float | None:
        """By which power of the size the time grows, over the larger half of the sizes."""
        sizes = sorted(self.seconds)
        points = [(math.log(size), math.log(self.seconds[size])) for size in sizes[len(sizes) // 2 - 1 :]]
        if len(points) < 2:
            return None
        middle = sum(x for x, _ in points) / len(points)
        height = sum(y for _, y in points) / len(points)
        return sum((x - middle) * (y - height) for x, y in points) / sum((x - middle) ** 2 for x, _ in points)


def _ours(family: Family, module: torch.nn.Module, folder: Path, *, free: bool) -> None:
    shapes = (family.axes,) if free else None
    export(module, (family.example,), folder / "ours.onnx", dynamic_shapes=shapes, opset_version=OPSET)


def _torch(family: Family, module: torch.nn.Module, folder: Path, *, free: bool) -> None:
    shapes = ({axis: torch.export.Dim.DYNAMIC for axis in family.axes},) if free else None
    torch.onnx.export(
        module,
        (family.example,),
        folder / "torch.onnx",
        dynamo=True,
        dynamic_shapes=shapes,
        opset_version=OPSET,
        external_data=True,
    )


SIDES: dict[str, Callable[..., None]] = {"batch_export": _ours, "torch.onnx": _torch}


def measure(name: str, setting: str, side: str, sizes: Sequence[int], limit_s: float) -> Curve:
    """Measures one side; sizes after one that took longer than `limit_s` are left out."""
    family, run = FAMILIES[name], SIDES[side]
    curve = Curve(name, setting, side)
    for at, size in enumerate((sizes[0], *sizes)):
        module = family.make(size)
        gc.collect()
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, quiet():
            begun = time.process_time()
            run(family, module, Path(folder), free=setting == "free")
            taken = time.process_time() - begun
        if at:
            curve.seconds[size] = taken
        if taken > limit_s:
            break
    return curve


def table(curves: Sequence[Curve]) -> str:
    """A Markdown table, a row for each curve."""
    lines = ["| models | setting | exporter | CPU s by size | exponent |", "|---|---|---|---|---:|"]
    for curve in curves:
        seconds = ", ".join(f"{size}: {taken:.2f}" for size, taken in curve.seconds.items())
        exponent = "-" if curve.exponent is None else f"{curve.exponent:.2f}"
        lines.append(f"| {curve.family} | {curve.setting} | {curve.side} | {seconds} | {exponent} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where our exponent is above the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--settings", nargs="+", choices=("static", "free"), default=["static", "free"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--sizes", nargs="+", type=int, help="other sizes than the families' own")
    parser.add_argument("--limit-s", type=float, default=120.0, help="the curve ends after a size that takes longer")
    parser.add_argument("--json", type=Path, help="write the curves there as well")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warm()
    curves = []
    for name in given.families:
        for setting in given.settings:
            for side in given.sides:
                sizes = given.sizes or FAMILIES[name].sizes
                curves.append(measure(name, setting, side, sizes, given.limit_s))
                print(table(curves[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(f"Measured on {machine()}.\n\n{table(curves)}")
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(curves)))
    ours = [curve.exponent for curve in curves if curve.side == "batch_export" and curve.exponent is not None]
    return int(any(one > TARGET for one in ours))


if __name__ == "__main__":
    sys.exit(main())
