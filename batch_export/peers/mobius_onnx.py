"""mobius (the package mobius-onnx) as a plug-in exporter: it writes a graph by a model's config, without tracing it.

A model of transformers and keyword arguments arrive; an ONNX file with external data is written to `path`. mobius reads
a folder as `save_pretrained` writes it and decides itself which inputs and outputs its graph has. What the graph takes
and was not asked for is given here as transformers gives it: masks of ones, positions from 0 on, empty caches, zeros.
"""

from __future__ import annotations

import copy
import importlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import onnx
import onnx_ir
import torch
from onnx_ir.tape import Tape
from torch.utils import _pytree as pytree

from batch_export.errors import LibraryMissingError, TranslationError
from batch_export.plugin import Wanted, options

_IDS = "input_ids"
_OPSET = 24  # conf/exporter/mobius.yaml asks for no other


def export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **wanted: Unpack[Wanted]) -> None:
    """Writes the file, at the one opset that mobius writes; what is given besides goes to `mobius.build` as it is.

    Raises:
        LibraryMissingError: mobius-onnx is not installed.
        TranslationError: the model is none of transformers', mobius makes several files of it, or the graph takes
            other inputs than were asked for.
    """
    try:
        mobius = importlib.import_module("mobius")
    except ModuleNotFoundError as error:
        raise LibraryMissingError("mobius-onnx", "exporter mobius") from error
    if not hasattr(module, "save_pretrained"):
        raise TranslationError(
            f"exporter mobius writes transformers' own models, and this is a {type(module).__name__}. Next step: name "
            "a model of the collection transformers, or leave this exporter out for the model."
        )
    with tempfile.TemporaryDirectory(dir=wanted["path"].parent.parent) as folder:
        _save(module, Path(folder))
        package = mobius.build(folder, **options(wanted))
        if len(package) != 1:
            raise TranslationError(
                f"exporter mobius makes {len(package)} files of a {type(module).__name__} ({', '.join(package)}), and "
                "one was asked for. Next step: leave this exporter out for the model."
            )
        model: onnx_ir.Model = next(iter(package.values()))
        _ask_for(model, kwargs, wanted, _tensors(module, args, kwargs))
        lowest = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", _OPSET)])
        model.ir_version = max(model.ir_version, lowest)  # mobius writes one that is older than its opset
        path = wanted["path"]
        onnx_ir.save(model, str(path), external_data=f"{path.name}.data")


def _save(module: Any, folder: Path) -> None:
    """Writes config and weights; `save_pretrained` notes things in the config, which is the caller's."""
    config, module.config = module.config, copy.deepcopy(module.config)
    try:
        module.save_pretrained(folder)
    finally:
        module.config = config


def _tensors(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many outputs the model has, which mobius' graphs know nothing of: eager is asked."""
    with torch.no_grad():
        return sum(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(module(*args, **kwargs)))


def _ask_for(model: onnx_ir.Model, kwargs: dict[str, Any], wanted: Wanted, outputs: int) -> None:
    """Gives the graph the inputs, axes and outputs that were asked for, by name and in their order."""
    graph = model.graph
    taken = {value.name: value for value in graph.inputs}
    missing = [name for name in kwargs if name not in taken]
    if missing:
        raise TranslationError(
            f"the graph of exporter mobius has no input {missing[0]!r}; it takes {', '.join(map(str, taken))}. "
            "Next step: leave this exporter out for the model, or that input out of its config."
        )
    with _at_the_beginning(graph) as tape:
        sizes = _sizes(tape, [taken[name] for name in kwargs])
        for name, value in taken.items():
            if name not in kwargs:
                value.replace_all_uses_with(_given(tape, value, taken, sizes), replace_graph_outputs=True)
    axes = _name_axes([taken[name] for name in kwargs], list(kwargs.values()), wanted["dynamic_shapes"])
    graph.inputs[:] = [taken[name] for name in kwargs]
    del graph.outputs[outputs:]
    for values, names in ((graph.inputs, wanted["input_names"]), (graph.outputs, wanted["output_names"])):
        if names and len(names) == len(values):
            for value, name in zip(values, names, strict=True):
                value.name = name
    for value in graph.outputs:
        if value.shape is not None:
            value.shape = onnx_ir.Shape([_renamed(dimension, axes) for dimension in value.shape])
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.shape is not None and not value.is_graph_output() and not value.shape.is_static():
                value.shape = None  # it speaks of axes that have other names now


@contextmanager
def _at_the_beginning(graph: onnx_ir.Graph) -> Iterator[Tape]:
    """A tape whose nodes come to stand before all others."""
    tape, first = Tape(), next(iter(graph))
    yield tape
    graph.insert_before(first, tape.nodes)


def _sizes(tape: Tape, inputs: list[onnx_ir.Value]) -> dict[str, onnx_ir.Value]:
    """The values of the axes that the asked inputs have, int64[1] each, by mobius' names of them."""
    sizes: dict[str, onnx_ir.Value] = {}
    for value in inputs:
        for place, dimension in enumerate(value.shape or ()):
            if isinstance(dimension, onnx_ir.SymbolicDim) and dimension.value and dimension.value not in sizes:
                sizes[dimension.value] = tape.op("Shape", [value], {"start": place, "end": place + 1})
    return sizes


def _given(
    tape: Tape, value: onnx_ir.Value, taken: Mapping[str | None, onnx_ir.Value], sizes: dict[str, onnx_ir.Value]
) -> onnx_ir.Value:
    """What transformers takes for an input that is not given; axes that no given input has are empty."""
    is_cache = (value.name or "").startswith("past_")
    if value.dtype is None or value.shape is None or (value.dtype.is_floating_point() and not is_cache):
        raise TranslationError(
            f"the graph of exporter mobius takes {value.name!r}, which is not among the model's inputs. Next step: "
            "give the model's config that input, or leave this exporter out for it."
        )
    ids = taken.get(_IDS)
    like_ids = ids is not None and len(value.shape) == 2 and not value.dtype.is_floating_point()
    shape = tape.op("Shape", [ids]) if like_ids else _shape(tape, value.shape, sizes)
    if value.name == "position_ids" and like_ids:
        start, step = _number(tape, 0), _number(tape, 1)
        length = tape.op("Gather", [shape, step])
        return tape.op("Expand", [tape.op("Range", [start, length, step]), shape])
    fill = onnx_ir.tensor([1 if value.name == "attention_mask" else 0], dtype=value.dtype)
    return tape.op("ConstantOfShape", [shape], {"value": fill})


def _number(tape: Tape, number: int) -> onnx_ir.Value:
    """A constant int64[]."""
    return tape.op("Constant", [], {"value_int": number})


def _shape(tape: Tape, shape: onnx_ir.Shape, sizes: dict[str, onnx_ir.Value]) -> onnx_ir.Value:
    entries = []
    for dimension in shape:
        known = sizes.get(dimension.value or "") if isinstance(dimension, onnx_ir.SymbolicDim) else None
        number = dimension if isinstance(dimension, int) else 0
        entries.append(known if known is not None else tape.op("Constant", [], {"value_ints": [number]}))
    return tape.op("Concat", entries, {"axis": 0})


def _name_axes(
    inputs: list[onnx_ir.Value], examples: list[Any], dynamic_shapes: dict[str, Any] | None
) -> dict[str, int | str]:
    """Gives inputs the axes that were asked for, and the example's sizes elsewhere; returns both by mobius' names."""
    axes: dict[str, int | str] = {}
    for value, example in zip(inputs, examples, strict=True):
        asked = (dynamic_shapes or {}).get(value.name or "") or {}
        dimensions: list[int | str] = [
            asked[place] if isinstance(asked.get(place), str) else size for place, size in enumerate(example.shape)
        ]
        for old, new in zip(value.shape or (), dimensions, strict=False):
            if isinstance(old, onnx_ir.SymbolicDim) and old.value:
                axes.setdefault(old.value, new)
        value.shape = onnx_ir.Shape(dimensions)
    return axes


def _renamed(dimension: int | onnx_ir.SymbolicDim, axes: Mapping[str, int | str]) -> int | str | None:
    """An axis of an output by its new name; None where it is no plain axis of an input."""
    return dimension if isinstance(dimension, int) else axes.get(dimension.value or "")
