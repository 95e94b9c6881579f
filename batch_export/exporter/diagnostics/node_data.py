"""Files for Model Explorer that colour a graph's nodes by how much they differ from PyTorch.

Verification infos and the ONNX model arrive; `<name>_max_abs_diff.json` and `<name>_max_rel_diff.json` leave, in the
form that Model Explorer's ONNX adaptor reads: `{graph name: {results: {node name or output name: {value}},
thresholds}}`. An infinite difference (NaN on one side, another shape) is written as 1e308, since the viewer's JSON has
no infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

import onnx_ir as ir

from batch_export.exporter.diagnostics.verify import VerificationInfo

MEASURES = ("max_abs_diff", "max_rel_diff")
_LARGEST = 1e308
_THRESHOLDS = (
    (1e-5, "#388e3c"),
    (1e-4, "#8bc34a"),
    (1e-3, "#c8e6c9"),
    (1e-2, "#ffa000"),
    (1.0, "#ff5722"),
    (_LARGEST, "#d32f2f"),
)
"""Up to which value a node gets which colour: greens for rounding, orange to red for errors."""


def save_node_data(
    infos: Iterable[VerificationInfo], model: ir.Model, folder: Path, model_name: str = "model"
) -> list[Path]:
    """Writes both files; returns their paths.

    Args:
        infos: what `verify_onnx_program(..., compare_intermediates=True)` returned.
        model: the program's model; values are looked up in its main graph.
        folder: where the files go; made if missing.
        model_name: start of the files' names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    infos = list(infos)
    paths = []
    for measure in MEASURES:
        path = folder / f"{model_name}_{measure}.json"
        path.write_text(json.dumps(node_data(infos, model, measure), indent=2), encoding="utf-8")
        paths.append(path)
    return paths


def node_data(infos: Iterable[VerificationInfo], model: ir.Model, measure: str) -> dict[str, object]:
    """Returns one file's content; `measure` is one of `MEASURES`."""
    producers = {value.name: node for node in model.graph for value in node.outputs if value.name}
    outputs = {value.name for value in model.graph.outputs}
    results: dict[str, dict[str, float]] = {}
    for info in infos:
        difference = getattr(info, measure)
        entry = {"value": difference if math.isfinite(difference) else _LARGEST}
        if info.name in outputs:
            results[f"[value] {info.name}"] = entry
        node = producers.get(info.name)
        name = (node.name if node is not None else None) or info.name
        # A node with several outputs shows its worst.
        if name not in results or entry["value"] >= results[name]["value"]:
            results[name] = entry
    thresholds = [{"value": value, "bgColor": colour} for value, colour in _THRESHOLDS]
    return {model.graph.name or "main_graph": {"results": results, "thresholds": thresholds}}
