"""Translate: the captured program -> one ONNX file at one opset, over tensors that all opsets share.

A workbench on which Capture ran arrives; the ONNX file leaves, with a file for each large tensor that it refers to,
named by its content. What is folded of weights is folded here: the key holds their digest.

Facts:
    opset, nodes: of the file.
    seconds_by_stage: translate, optimise, opset, save.
    operators: torch operator -> `[count, what translated it]`.
    passes: what each pass of the optimiser did.
    outputs: `[{name, kind, target}]`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import onnx_ir as ir

from batch_export import axes
from batch_export.digest import Digest, content_name
from batch_export.errors import TranslationError
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture import fingerprint
from batch_export.exporter.graph import weights
from batch_export.exporter.graph.metadata import STACK_TRACE
from batch_export.stages.exporter_arguments import require_known
from batch_export.stages.output import ModelFiles, StageOutput
from batch_export.stages.tensor_files import TensorFiles
from batch_export.stages.workbench import Workbench

_OURS = ("captured", "opset_version", "input_names", "output_names", "registry", "journal", "reusable")
"""Parameters that no config says."""
EXTERNAL_BYTES = 16 * 1024
"""Tensors up to this size stay inside the ONNX file."""


def execute(bench: Workbench, opset: int) -> StageOutput:
    """Translates the captured program.

    Args:
        bench: the workbench that `stages.capture` left a program on.
        opset: the opset of the file.

    Raises:
        TranslationError and the other errors of `exporter.api.to_onnx`.
    """
    if bench.captured is None:
        raise TranslationError("nothing was captured before the translation", next_step="run Capture first")
    require_known(bench.exporter.name, to_onnx, bench.exporter.arguments, _OURS)
    program = to_onnx(
        bench.captured,
        opset,
        input_names=axes.input_names(bench.model),
        output_names=bench.model.output_names or None,
        **bench.exporter.arguments,
    )
    begun = time.perf_counter()
    for node in _nodes(program.model):
        node.metadata_props.pop(STACK_TRACE, None)  # absolute paths and line numbers; Capture keeps them apart
    model, folding = program.written()
    path = bench.scratch / f"opset{opset}.onnx"
    large = {
        name: tensor for name, tensor in weights.model_tensors(model).items() if weights.size(tensor) > EXTERNAL_BYTES
    }
    files = bench.tensor_files = bench.tensor_files or TensorFiles(bench.scratch)
    files.remember(fingerprint.program_tensors(bench.captured.program).values())
    digests = {name: files.digest(tensor) for name, tensor in large.items()}
    external: dict[str, Path | Digest] = {}
    for name, digest in digests.items():
        if content_name(digest) not in external:
            external[content_name(digest)] = files.file(large[name], digest)
    places = {name: (content_name(digest), 0, weights.size(large[name])) for name, digest in digests.items()}
    with weights.referring(model, places, bench.scratch):
        path.write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))
    seconds = {**program.seconds, "save": time.perf_counter() - begun}
    names = [value.name or "" for value in model.graph.outputs]
    return StageOutput(
        facts={
            "opset": opset,
            "nodes": sum(1 for _ in _nodes(model)),
            "seconds_by_stage": seconds,
            "operators": {name: list(entry) for name, entry in program.operators.items()},
            "passes": [asdict(one) for one in (*program.passes, *folding)],
            "outputs": [
                {"name": name, "kind": kind, "target": target}
                for name, (kind, target) in zip(names, program.output_kinds, strict=True)
            ],
        },
        model=ModelFiles(path, external),
    )


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    return itertools.chain(model.graph.all_nodes(), *(one.all_nodes() for one in model.functions.values()))
