"""transformers' own exporter (`transformers.exporters`), as a plug-in exporter.

A module and keyword arguments arrive; an ONNX file with external data is written to `path`. It is meant for models of
transformers, and says itself what it does not take. It names inputs, outputs and axes in its own way, so the names that
were asked for are put in their places afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import onnx_ir
import torch
from torch.utils import _pytree as pytree

from batch_export.errors import LibraryMissingError
from batch_export.peers.torch_dynamo import TorchCaptureError
from batch_export.plugin import Wanted, options

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **wanted: Unpack[Wanted]) -> None:
    """Writes the file; what is given besides goes to `OnnxConfig` as it is.

    Raises:
        LibraryMissingError: transformers is not installed, or a release without its exporters.
        TorchCaptureError: torch.export refused the model.
    """
    try:
        from transformers.exporters.configs import OnnxConfig  # lazy: an optional dependency
        from transformers.exporters.exporter_onnx import OnnxExporter
    except ModuleNotFoundError as error:
        raise LibraryMissingError("transformers.exporters", "exporter transformers") from error

    shapes = _without_names(wanted["dynamic_shapes"])
    config = OnnxConfig(opset_version=wanted["opset_version"], dynamic_shapes=shapes, **options(wanted))
    try:
        exporter: Any = OnnxExporter  # typed for its own models; others are for it to refuse
        model: onnx_ir.Model = exporter().export(module, kwargs, config=config).program
    except (
        torch._dynamo.exc.TorchDynamoException,
        torch.fx.experimental.symbolic_shapes.ConstraintViolationError,
    ) as error:
        raise TorchCaptureError(f"{type(error).__name__}: {error}") from error
    _name(model, wanted)
    path = wanted["path"]
    onnx_ir.save(model, str(path), external_data=f"{path.name}.data")


def _without_names(dynamic_shapes: dict[str, Any] | None) -> dict[str, Any] | None:
    """The free dimensions, which torch.export takes without names."""
    if dynamic_shapes is None:
        return None
    return {
        name: pytree.tree_map(lambda leaf: torch.export.Dim.DYNAMIC if isinstance(leaf, str) else leaf, shapes)
        for name, shapes in dynamic_shapes.items()
    }


def _name(model: onnx_ir.Model, wanted: Wanted) -> None:
    """Gives inputs, outputs and free axes the names that were asked for, where the graph has as many."""
    graph = model.graph
    axes: dict[str, str] = {}
    for value, dimensions in zip(graph.inputs, _dimensions(wanted["dynamic_shapes"]), strict=False):
        for place, name in dimensions.items():
            dim = value.shape[place] if value.shape is not None else None
            if isinstance(dim, onnx_ir.SymbolicDim) and dim.value and isinstance(name, str) and name.isidentifier():
                axes.setdefault(dim.value, name)
    for values, names in ((graph.inputs, wanted["input_names"]), (graph.outputs, wanted["output_names"])):
        if names and len(names) == len(values):
            for value, name in zip(values, names, strict=True):
                value.name = name
    for value in _values(graph):
        if value.shape is not None:
            value.shape = onnx_ir.Shape([_renamed(dim, axes) for dim in value.shape])


def _dimensions(dynamic_shapes: dict[str, Any] | None) -> list[dict[int, Any]]:
    leaves = pytree.tree_leaves(dynamic_shapes, is_leaf=_is_dimensions)
    return [leaf for leaf in leaves if isinstance(leaf, dict)]


def _is_dimensions(node: Any) -> bool:
    return isinstance(node, dict) and all(isinstance(key, int) for key in node)


def _values(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from graph.inputs
    for node in graph.all_nodes():
        yield from node.outputs


def _renamed(dim: int | onnx_ir.SymbolicDim, axes: Mapping[str, str]) -> int | str | None:
    if isinstance(dim, int) or dim.value is None:
        return dim if isinstance(dim, int) else None
    return _IDENTIFIER.sub(lambda found: axes.get(found.group(), found.group()), dim.value)
