"""The external data of a model: which files it names, and whether they are there, beside it, and long enough.

A model loaded without its external data arrives; file names and findings leave. The files are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import onnx

from batch_export.record import Failure


def external_files(model: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the names of the external data files, as the model gives them, sorted."""
    return tuple(sorted({_entries(tensor).get("location", "") for tensor in _external_tensors(model)}))


def external_data_findings(model: onnx.ModelProto, folder: Path) -> list[Failure]:
    """Returns what is wrong with the external data; `folder` is the model's own."""
    findings = []
    ends: dict[str, int] = {}
    for tensor in _external_tensors(model):
        entries = _entries(tensor)
        location = entries.get("location", "")
        ends[location] = max(ends.get(location, 0), int(entries.get("offset", "0")) + int(entries.get("length", "0")))
    for location, end in sorted(ends.items()):
        problem = _problem(location, end, folder)
        if problem:
            findings.append(Failure("check", "ExternalData", f"external data {location!r} {problem}"))
    return findings


def _problem(location: str, end: int, folder: Path) -> str:
    if not location or PurePosixPath(location).is_absolute() or PureWindowsPath(location).is_absolute():
        return "is not a path relative to the model's folder"
    if ".." in PurePosixPath(location).parts or ".." in PureWindowsPath(location).parts:
        return "leaves the model's folder; it must lie beside the model"
    path = folder / location
    if path.is_symlink():
        return "is a symbolic link, which onnx refuses; it must be a real file"
    if not path.is_file():
        return f"is not in the model's folder {folder.name}"
    size = path.stat().st_size
    return f"has {size} bytes, and the model refers to {end}" if size < end else ""


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                yield from ([attribute.t] if attribute.HasField("t") else [])
                yield from attribute.tensors
                waiting.extend([attribute.g] if attribute.HasField("g") else [])
                waiting.extend(attribute.graphs)
