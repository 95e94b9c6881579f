"""Whether capturing by blocks gives what tracing every block gives: graphs and files, per model of the zoo.

Per model and dynamic-shape setting the model is captured twice, with `capture_blocks` and without. Both graphs must be
one (operators, arguments, sizes, dtypes, strides, modules around each node), and so must the files made of them
(operators and how often; outputs bit by bit at the example inputs). The table says how many blocks were shared.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from batch_export import axes
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.captured import Captured
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room
from benchmarks import zoo
from benchmarks.export import OPSET, SETTINGS, quiet

_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Row:
    """One model at one setting: how many blocks were shared, and what differs (empty where nothing does)."""

    model: str
    setting: str
    shared: int
    difference: str


def written(program: torch.export.ExportedProgram) -> list[str]:
    """A graph as text, one line for each node, in which names stand for nothing but the kind of a node."""
    numbers: dict[torch.fx.Node, int] = {}
    lines = []
    for node in program.graph.nodes:
        numbers[node] = len(numbers)
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: numbers[one])
        made = [
            (tuple(map(str, one.shape)), one.dtype, tuple(map(str, one.stride())))
            if isinstance(one, torch.Tensor) and one.layout == torch.strided
            else str(one)
            for one in torch.utils._pytree.tree_leaves(node.meta.get("val"))
        ]
        modules = [*(node.meta.get("nn_module_stack") or {}).values()]
        target = "" if node.op == "placeholder" else str(node.target)
        lines.append(f"{node.op} {_NUMBER.sub('', node.name)} {target} {arguments} {made} {modules}")
    return lines


def compare(spec: ModelSpec, settings: Sequence[str]) -> Iterator[Row]:
    """Compares both ways of capturing one model; a row for each setting."""
    module = model_room.build(spec)
    inputs = model_room.example_inputs(spec, axes.example_sizes(spec))
    for setting in settings:
        asked = model_room.dynamic_shapes(spec, setting)
        found: list[Captured] = []
        for blocks in (True, False):
            with quiet():
                found.append(capture(module, (), inputs, dynamic_shapes=asked, guards="allow", capture_blocks=blocks))
        shared, plain = found
        stamped = sum(len(block.stamped) for block in shared.blocks)
        yield Row(spec.name, setting, stamped, _difference(shared, plain, inputs) if stamped else "")


def _difference(shared: Captured, plain: Captured, inputs: dict[str, Any]) -> str:
    with quiet():
        programs = [to_onnx(one, OPSET) for one in (shared, plain)]
    counts = [Counter(node.op_type for node in _nodes(one.model)) for one in programs]
    if counts[0] != counts[1]:
        return f"nodes: {dict(counts[0] - counts[1])} more, {dict(counts[1] - counts[0])} fewer"
    outputs = [one(**inputs) for one in programs]
    if not all(torch.equal(one, other) or _both_nan(one, other) for one, other in zip(*outputs, strict=True)):
        return "outputs"
    lines = [written(one.program) for one in (shared, plain)]
    if len(lines[0]) != len(lines[1]):
        return f"graph: {len(lines[0])} nodes and {len(lines[1])}"
    return next((f"graph: {one} / {other}" for one, other in zip(*lines, strict=True) if one != other), "")


def _both_nan(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(one.isnan(), other.isnan()))


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    return model.graph.all_nodes()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per row; returns 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["*"], help="names or globs of models; the whole zoo when left out"
    )
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    for spec in zoo.models(given.models):
        for row in compare(spec, SETTINGS):
            rows.append(row)
            print(f"{row.model:24} {row.setting:8} {row.shared:4} shared  {row.difference or 'equal'}", flush=True)
    shared = [row for row in rows if row.shared]
    print(f"{len(shared)} of {len(rows)} rows share blocks, {sum(not row.difference for row in shared)} of them equal")
    return int(any(row.difference for row in rows))


if __name__ == "__main__":
    sys.exit(main())
