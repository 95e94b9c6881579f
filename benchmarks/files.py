"""The files themselves: ours beside `torch.onnx.export`'s, for the zoo and for `architectures.py`, in one run.

    python -m benchmarks.files                              every row
    python -m benchmarks.files --models resnet50 'beit' --dynamic static
    python -m benchmarks.files --skip-timing                nodes and bytes alone

Both exporters write each model at the same opset from the same inputs, for the same outputs. Per row: nodes (those of
bodies too), bytes of all files, seconds until onnxruntime has loaded the file, and the latency at the example inputs,
with one thread. Loads and inferences of the two files alternate (A B B A); what is shown is the median of ours over
torch's, with its 95 % interval for the latency, over up to eight pairs of sessions. Times are of the processor, so that
what else runs on the machine counts little. Both files' outputs are held against eager's: a file that is wrong has no
figures.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import torch
from torch.utils import _pytree as pytree

from batch_export import axes
from batch_export.errors import UsageError
from batch_export.exporter.api import to_onnx, warm
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.graph.tensor_values import to_tensor, to_value
from batch_export.exporter.program import adapters
from batch_export.peers import torch_dynamo
from batch_export.runtime.ort import OrtSession
from batch_export.runtime.paired import Clock, PairedFacts, interval, paired
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.structures import tensors
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room
from batch_export.stages.state import ModuleState
from benchmarks import architectures, zoo
from benchmarks.export import machine, quiet

OPSET = 20
SETTINGS = (axes.STATIC, axes.FULL)
CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
TARGETS = {"nodes": 0.9, "bytes": 1.02, "load": 1.0, "latency": 0.97}
"""Medians over all rows; beside them no row has more nodes, more than these bytes, or is significantly slower."""
_PROCESSOR = Clock(wall=time.process_time_ns, cpu=time.process_time_ns)
_FEWEST_LOADS = 5
_PAIRS, _FEWEST_PAIRS = 8, 3
_PATIENCE = 4
"""Times the budget until no further pair of sessions is made."""


@dataclass(frozen=True, slots=True)
class File:
    """One exporter's file: nodes, and bytes with its external data."""

    nodes: int
    size: int


@dataclass(frozen=True, slots=True)
class Row:
    """Both files of one model at one setting.

    Attributes:
        load: processor time of loading, ours over torch's.
        latency: of one inference, ours over torch's.
        failures: side -> the first line of its error; `ours`, `torch` or `model`.
    """

    model: str
    setting: str
    ours: File | None = None
    torch: File | None = None
    load: PairedFacts | None = None
    latency: PairedFacts | None = None
    failures: dict[str, str] = field(default_factory=dict)

    def ratio(self, figure: str) -> float | None:
        """Ours over torch's of `nodes`, `bytes`, `load` or `latency`; None where a side has no figure."""
        if figure in ("load", "latency"):
            facts: PairedFacts | None = getattr(self, figure)
            return None if facts is None else facts.ratio
        if self.ours is None or self.torch is None:
            return None
        if figure == "nodes":
            return self.ours.nodes / max(self.torch.nodes, 1)
        return self.ours.size / max(self.torch.size, 1)


def write_ours(spec: ModelSpec, module: torch.nn.Module, inputs: dict[str, Any], asked: Any, path: Path) -> None:
    """Exports with our core, as a sweep does, but for the new content of buffers, which torch's file does not give."""
    captured = capture(module, (), inputs, dynamic_shapes=asked, guards="allow")
    program = to_onnx(captured, OPSET, input_names=axes.input_names(spec), mutations="drop")
    program.save(path, external_data=True)


def write_torch(spec: ModelSpec, module: torch.nn.Module, inputs: dict[str, Any], asked: Any, path: Path) -> None:
    """Exports with `torch.onnx.export`."""
    torch_dynamo.export(
        module,
        (),
        inputs,
        path=path,
        opset_version=OPSET,
        dynamic_shapes=asked,
        input_names=axes.input_names(spec),
        output_names=None,
    )


SIDES: dict[str, Callable[..., None]] = {"ours": write_ours, "torch": write_torch}


def rows(spec: ModelSpec, settings: Sequence[str], budget_s: float) -> Iterator[Row]:
    """Exports and measures one model; a row for each setting, also where a side fails."""
    try:
        module = model_room.build(spec)
        inputs = model_room.example_inputs(spec, axes.example_sizes(spec))
        state = ModuleState(module)
        with torch.no_grad():
            expected = adapters.flat_outputs(module(**inputs))
        state.restore()
    except Exception as error:  # a library that is not installed, or of a version without this model
        yield from (Row(spec.name, setting, failures={"model": _first_line(error)}) for setting in settings)
        return
    for setting in settings:
        if axes.supports(spec, setting) is None:
            yield _row(spec, setting, module, state, inputs, expected, budget_s)


def _row(
    spec: ModelSpec,
    setting: str,
    module: torch.nn.Module,
    state: ModuleState,
    inputs: dict[str, Any],
    expected: Sequence[torch.Tensor],
    budget_s: float,
) -> Row:
    failures: dict[str, str] = {}
    files: dict[str, File] = {}
    asked = _from_one(spec, model_room.dynamic_shapes(spec, setting))
    feeds = [to_value(tensor) for tensor in model_room.flat_tensors(inputs)]
    with tempfile.TemporaryDirectory(prefix="files-") as folder:
        paths = {side: Path(folder) / side / "model.onnx" for side in SIDES}
        for side, write in SIDES.items():
            paths[side].parent.mkdir()
            try:
                with quiet():
                    torch.manual_seed(spec.seed)
                    write(spec, module, inputs, asked, paths[side])
                files[side] = _file(paths[side])
                _agree(paths[side], feeds, expected)
            except Exception as error:
                failures[side] = f"{type(error).__name__}: {_first_line(error)}"
                files.pop(side, None)
            finally:
                state.restore()
        load = latency = None
        if budget_s and not failures:
            gc.collect()
            load, latency = _loads(paths, budget_s), _latency(paths, feeds, budget_s)
    return Row(spec.name, setting, files.get("ours"), files.get("torch"), load, latency, failures)


def _from_one(spec: ModelSpec, dynamic_shapes: dict[str, Any] | None) -> dict[str, Any] | None:
    """The named axes from 1 up, for both sides, but for those that the model's config checks at 0.

    Some of onnxruntime's kernels end the process on an empty axis; ours goes round them unless it is told so.
    """
    named: dict[str, torch.export.Dim] = {}
    empty = {axis.name for axis in spec.axes if 0 in axis.check}

    def declared(leaf: Any) -> Any:
        if not isinstance(leaf, str) or not leaf.isidentifier() or leaf in empty:
            return leaf
        return named.setdefault(leaf, torch.export.Dim(leaf, min=1))

    return None if dynamic_shapes is None else pytree.tree_map(declared, dynamic_shapes)


def _file(path: Path) -> File:
    model = onnx.load(path, load_external_data=False)
    size = sum(one.stat().st_size for one in path.parent.iterdir())
    return File(_count(model.graph) + sum(len(one.node) for one in model.functions), size)


def _count(graph: onnx.GraphProto) -> int:
    bodies = [attribute for node in graph.node for attribute in node.attribute]
    inner = sum(_count(one.g) for one in bodies if one.HasField("g")) + sum(
        _count(body) for one in bodies for body in one.graphs
    )
    return len(graph.node) + inner


def _feed(session: OrtSession, feeds: Sequence[Any]) -> Callable[[], Sequence[Any]]:
    return session.prepare(dict(zip(session.input_names, feeds, strict=False)))


def _agree(path: Path, feeds: Sequence[Any], expected: Sequence[torch.Tensor]) -> None:
    """Holds the first outputs against eager's: files differ in how they list changed buffers after them."""
    session = OrtSession(path, CPU, 1)
    got = tensors(session.output_names, session.run(dict(zip(session.input_names, feeds, strict=False))))
    for index, (one, other) in enumerate(zip(got, expected, strict=False)):
        tensor = to_tensor(one)
        wanted = torch.view_as_real(other) if other.is_complex() else other
        if tensor.shape != wanted.shape or not np.allclose(
            tensor.double().numpy(), wanted.detach().double().numpy(), rtol=2e-3, atol=2e-3, equal_nan=True
        ):
            raise ValueError(f"output {index} is not eager's")


def _loads(paths: dict[str, Path], budget_s: float) -> PairedFacts:
    ratios: list[float] = []
    spent = 0.0
    while spent < budget_s or len(ratios) < _FEWEST_LOADS:
        seconds = {side: 0.0 for side in paths}
        for side in (*paths, *reversed(paths)):
            begun = time.process_time()
            session = OrtSession(paths[side], CPU, 1)
            seconds[side] += time.process_time() - begun
            session.close()
        ratios.append(seconds["ours"] / max(seconds["torch"], 1e-9))
        spent += sum(seconds.values())
    return interval(ratios)


def _latency(paths: dict[str, Path], feeds: Sequence[Any], budget_s: float) -> PairedFacts:
    """Of sessions made anew several times, each side first in turn; of models that take long less often.

    Where a session's memory lies makes one of two sessions of the same file up to 2 % slower for as long as it lives.
    """
    ratios: list[float] = []
    begun = time.process_time()
    while len(ratios) < _FEWEST_PAIRS or (len(ratios) < _PAIRS and time.process_time() - begun < _PATIENCE * budget_s):
        order = ("ours", "torch") if len(ratios) % 2 else ("torch", "ours")
        sessions = {side: OrtSession(paths[side], CPU, 1) for side in order}
        runs = [_feed(sessions[side], feeds) for side in order]
        facts = paired(*runs, budget_s=budget_s / _PAIRS, watch_cpu=False, clock=_PROCESSOR)
        ratios.append(facts.ratio if order[0] == "torch" else 1 / facts.ratio)
        for session in sessions.values():
            session.close()
    return interval(ratios)


_HEADER = (
    *("model", "setting", "nodes ours", "torch", "ratio", "kB ours", "torch", "ratio", "load", "latency"),
    "95 % interval",
)


def table(found: Sequence[Row]) -> str:
    """The rows as a Markdown table; `-` where there is no figure."""
    lines = [f"| {' | '.join(_HEADER)} |", "|---|---" + "|---:" * (len(_HEADER) - 2) + "|"]
    return "\n".join([*lines, *map(line, found)])


def line(row: Row) -> str:
    """One row of the table."""

    def shown(number: float | None) -> str:
        return "-" if number is None else f"{number:.2f}"

    def whole(file: File | None, figure: str) -> str:
        return "-" if file is None else str(file.nodes if figure == "nodes" else round(file.size / 1000))

    cells = [row.model, row.setting]
    for figure in ("nodes", "bytes"):
        cells += [whole(row.ours, figure), whole(row.torch, figure), shown(row.ratio(figure))]
    cells += [shown(row.ratio("load")), shown(row.ratio("latency"))]
    cells.append("-" if row.latency is None else f"{row.latency.low:.2f} to {row.latency.high:.2f}")
    return f"| {' | '.join(cells)} |"


def conclusions(found: Sequence[Row]) -> tuple[list[str], bool]:
    """Medians with their targets and the rows that miss one; and whether all targets are met."""
    lines, met = [], True
    for figure, target in TARGETS.items():
        ratios = [ratio for row in found if (ratio := row.ratio(figure)) is not None]
        if not ratios:
            continue
        middle = statistics.median(ratios)
        met &= middle <= target
        lines.append(
            f"{figure}: median {middle:.3f} over {len(ratios)} rows ({min(ratios):.2f} to {max(ratios):.2f}; "
            f"target {target})"
        )
    misses = {
        "more nodes": [row for row in found if (row.ratio("nodes") or 0) > 1],
        f"more than {TARGETS['bytes']} of the bytes": [
            row for row in found if (row.ratio("bytes") or 0) > TARGETS["bytes"]
        ],
        "significantly slower": [row for row in found if row.latency is not None and row.latency.slower_than(1.0)],
    }
    for words, missing in misses.items():
        met &= not missing
        lines.append(
            f"{words}: " + (", ".join(f"{row.model}/{row.setting}" for row in missing) if missing else "no row")
        )
    met &= not any("ours" in row.failures and "torch" not in row.failures for row in found)
    lines += [
        f"failed: {row.model}/{row.setting}, {side}: {why}" for row in found for side, why in row.failures.items()
    ]
    return lines, met


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 where a target is missed. `python -m benchmarks.files --help` has the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files", description=__doc__)
    parser.add_argument("--models", nargs="+", default=["*"], help="names or globs, of the zoo and of architectures.py")
    parser.add_argument("--dynamic", nargs="+", default=list(SETTINGS), choices=SETTINGS, help="settings")
    parser.add_argument("--budget-s", type=float, default=0.6, help="seconds for loads and for inferences, a row (0.6)")
    parser.add_argument("--skip-timing", action="store_true", help="nodes and bytes alone")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    chosen = _chosen(options.models)
    if not chosen:
        parser.error(f"no model is called {', '.join(options.models)}")
    torch.set_num_threads(1)
    with quiet():
        warm()
    print(machine(), flush=True)
    print(table([]), flush=True)
    found: list[Row] = []
    for spec in chosen:
        for row in rows(spec, options.dynamic, 0.0 if options.skip_timing else options.budget_s):
            found.append(row)
            print(line(row), flush=True)
    lines, met = conclusions(found)
    print("\n".join(["", *lines]))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return 0 if met else 1


def _chosen(patterns: Sequence[str]) -> list[ModelSpec]:
    known: list[ModelSpec] = []
    for pattern in patterns:
        try:
            known += zoo.models([pattern])
        except UsageError:
            continue
    unique = {spec.name: spec for spec in known}
    return [*unique.values(), *architectures.specs(patterns)]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "no message"


if __name__ == "__main__":
    sys.exit(main())
