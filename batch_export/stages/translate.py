"""Translate: the captured program -> one ONNX file at one opset, over weights that all opsets share.

A workbench on which Capture ran arrives; the ONNX file leaves, with the digest of the weights' file that it refers to.

Facts:
    opset, nodes: of the file.
    seconds_by_stage: translate, optimise, opset, save.
    operators: torch operator -> `[count, what translated it]`.
    passes: what each pass of the optimiser did.
    outputs: `[{name, kind, target}]`.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from batch_export import axes
from batch_export.digest import Digest
from batch_export.errors import TranslationError
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture import fingerprint
from batch_export.exporter.graph import weights
from batch_export.exporter.graph.metadata import STACK_TRACE
from batch_export.stages.output import ModelFiles, StageOutput
from batch_export.stages.workbench import Workbench

WEIGHTS_FILE = "weights.bin"


def execute(bench: Workbench, opset: int, weights_digest: Digest | None) -> StageOutput:
    """Translates the captured program.

    Args:
        bench: the workbench that `stages.capture` left a program on.
        opset: the opset of the file.
        weights_digest: digest of the weights' file that Capture stored, None when it made none.

    Raises:
        TranslationError and the other errors of `exporter.api.to_onnx`.
    """
    if bench.captured is None:
        raise TranslationError("nothing was captured before the translation", next_step="run Capture first")
    program = to_onnx(
        bench.captured,
        opset,
        input_names=axes.input_names(bench.model),
        output_names=bench.model.output_names or None,
        **bench.exporter.arguments,
    )
    begun = time.perf_counter()
    for node in program.model.graph.all_nodes():
        node.metadata_props.pop(STACK_TRACE, None)  # absolute paths and line numbers; Capture keeps them apart
    laid_out = weights.layout(fingerprint.program_tensors(bench.captured.program))
    path = bench.scratch / f"opset{opset}.onnx"
    with weights.referring(program.model, laid_out, WEIGHTS_FILE, bench.scratch):
        path.write_bytes(program.model_proto.SerializeToString(deterministic=True))
    seconds = {**program.seconds, "save": time.perf_counter() - begun}
    external = {WEIGHTS_FILE: weights_digest} if weights_digest is not None else {}
    names = [value.name or "" for value in program.model.graph.outputs]
    return StageOutput(
        facts={
            "opset": opset,
            "nodes": sum(1 for _ in program.model.graph.all_nodes()),
            "seconds_by_stage": seconds,
            "operators": {name: list(entry) for name, entry in program.operators.items()},
            "passes": [asdict(one) for one in program.passes],
            "outputs": [
                {"name": name, "kind": kind, "target": target}
                for name, (kind, target) in zip(names, program.output_kinds, strict=True)
            ],
        },
        model=ModelFiles(path, dict(external)),
    )
