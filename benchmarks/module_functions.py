"""Whether files with functions compute what files without them do: written out again both must be one graph.

Per model and dynamic-shape setting one capture is turned into two files, with `modules_as_functions=True` and without.
onnx's own inliner writes the functions out; then every output must be the same expression (operators, attributes,
bodies, constants and weights by their content) of the same inputs as in the other file, and both must run to the same
numbers. The table says how many functions stand for how many calls, and the sizes of both graphs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx import inliner

from batch_export import axes
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.program.program import ONNXProgram
from batch_export.spec import ModelSpec
from batch_export.stages import model as model_room
from benchmarks import zoo
from benchmarks.export import OPSET, SETTINGS, quiet

_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Row:
    """One model at one setting.

    Attributes:
        functions, calls: how many there are.
        nodes: of the file without functions; with them, those of its graph and functions.
        left: calls that are none, and why.
        difference: empty where there is none.
    """

    model: str
    setting: str
    functions: int
    calls: int
    nodes: tuple[int, int]
    left: Mapping[str, str]
    difference: str


def expressions(model: onnx.ModelProto) -> dict[str, str]:
    """Output -> a digest of what it is computed by; values in between have no names there."""
    known = {value.name: _digest("input", value.name) for value in model.graph.input}
    _read(model.graph, known)
    return {value.name: known[value.name] for value in model.graph.output}


def _read(graph: onnx.GraphProto, known: dict[str, str]) -> None:
    for tensor in graph.initializer:
        known[tensor.name] = _tensor(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            known[node.output[0]] = _tensor(node.attribute[0].t)
            continue
        read = [known[name] if name else "" for name in node.input]
        attributes = sorted(_attribute(one, known) for one in node.attribute)
        made = _digest(node.domain, node.op_type, *read, *attributes)
        known.update((name, _digest(made, str(at))) for at, name in enumerate(node.output))


def _attribute(attribute: onnx.AttributeProto, known: Mapping[str, str]) -> str:
    bodies = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
    if not bodies:
        content = onnx.AttributeProto()
        content.CopyFrom(attribute)
        content.doc_string = ""
        if content.HasField("t"):
            return _digest(content.name, _tensor(content.t))
        return _digest(content.name, content.SerializeToString(deterministic=True).hex())
    parts = [attribute.name]
    for body in bodies:
        inner = dict(known)
        inner.update((value.name, _digest("body", str(at))) for at, value in enumerate(body.input))
        _read(body, inner)
        parts += [inner[value.name] for value in body.output]
    return _digest(*parts)


def _tensor(tensor: onnx.TensorProto) -> str:
    content = onnx.numpy_helper.to_array(tensor)
    text = repr(content.tolist()) if content.dtype == object else content.tobytes().hex()
    return _digest(str(tensor.data_type), str(content.shape), text)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def saved(program: ONNXProgram, folder: Path) -> onnx.ModelProto:
    """A program's file, weights within."""
    path = folder / "model.onnx"
    program.save(path, external_data=False)
    return onnx.load(path)


def difference(plain: onnx.ModelProto, with_functions: onnx.ModelProto) -> str:
    """What two files do not have in common once functions are written out; empty where there is nothing."""
    onnx.checker.check_model(with_functions, full_check=True)
    flat = inliner.inline_local_functions(with_functions)
    if flat.functions:
        return f"onnx's inliner leaves {len(flat.functions)} functions"
    one, other = expressions(plain), expressions(flat)
    if list(one) != list(other):
        return f"outputs: {', '.join(one)} / {', '.join(other)}"
    return ", ".join(name for name in one if one[name] != other[name])


def compare(spec: ModelSpec, settings: Sequence[str]) -> Iterator[Row]:
    """Compares both files of one model; a row for each setting."""
    module = model_room.build(spec)
    inputs = model_room.example_inputs(spec, axes.example_sizes(spec))
    for setting in settings:
        asked = model_room.dynamic_shapes(spec, setting)
        with quiet(), tempfile.TemporaryDirectory(prefix="bench-") as folder:
            captured = capture(module, (), inputs, dynamic_shapes=asked, guards="allow")
            plain = to_onnx(captured, OPSET)
            program = to_onnx(captured, OPSET, modules_as_functions=True)
            files = [saved(one, Path(folder)) for one in (plain, program)]
            found = difference(*files)
            if not found:
                outputs = [one(**inputs) for one in (plain, program)]
                equal = (_close(one, other) for one, other in zip(*outputs, strict=True))
                found = "" if all(equal) else "numbers"
        made = program.functions.made
        inner = sum(len(function.node) for function in files[1].functions)
        yield Row(
            spec.name,
            setting,
            len(made),
            sum(len(one.calls) for one in made),
            (len(files[0].graph.node), len(files[1].graph.node) + inner),
            program.functions.left,
            found,
        )


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two outputs agree: ONNX Runtime fuses less where it knows less of sizes, as it does in functions."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per row; returns 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["*"], help="names or globs; the whole zoo when left out")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    for spec in zoo.models(given.models):
        for row in compare(spec, SETTINGS):
            rows.append(row)
            nodes = f"{row.nodes[0]:5} nodes, {row.nodes[1]:5} with {row.functions:3} functions of {row.calls:3} calls"
            none = f", {len(row.left)} calls are none" if row.left else ""
            print(f"{row.model:24} {row.setting:8} {nodes}{none}  {row.difference or 'equal'}", flush=True)
    same = sum(not row.difference for row in rows)
    left = sum(len(row.left) for row in rows)
    functions, calls = sum(row.functions for row in rows), sum(row.calls for row in rows)
    print(f"{same} of {len(rows)} rows equal; {calls} calls are {functions} functions, {left} none")
    return int(same < len(rows))


if __name__ == "__main__":
    sys.exit(main())
