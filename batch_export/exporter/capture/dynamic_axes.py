"""`dynamic_axes`, the older way to ask for dynamic axes (by names of inputs and outputs), in terms of `dynamic_shapes`.

Arrives: the mapping, the example inputs by parameter name, and the names of inputs and outputs. Leaves: a tree of
dynamic shapes by parameter name, and the names that output axes get in the file. Nothing is captured here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from batch_export.calling.axis_words import in_words, mended
from batch_export.calling.users_line import users_level
from batch_export.errors import DynamicShapeError, ExportWarning

DynamicAxes = Mapping[str, Mapping[int, str] | Sequence[int]]


def named(dynamic_axes: DynamicAxes) -> dict[str, dict[int, str]]:
    """Every entry with axis names, which are identifiers; a list of axes gets automatic ones (`x_dynamic_axes_1`, ...).

    Raises:
        DynamicShapeError: if an entry is neither a dict from axis to name nor a list of axes.
    """
    found: dict[str, dict[int, str]] = {}
    for name, axes in dynamic_axes.items():
        if isinstance(axes, Mapping):
            found[name] = {int(axis): str(label) for axis, label in axes.items()}
        elif isinstance(axes, (list, tuple)):
            found[name] = {int(axis): f"{name}_dynamic_axes_{index}" for index, axis in enumerate(axes, start=1)}
        else:
            raise DynamicShapeError(
                f"dynamic_axes has {axes!r} for {name}", next_step="give a dict from axis to name, or a list of axes"
            )
    words = mended(label for axes in found.values() for label in axes.values())
    return {name: {axis: words[label] for axis, label in axes.items()} for name, axes in found.items()}


def _told_names(dynamic_axes: DynamicAxes) -> None:
    labels = [str(label) for axes in dynamic_axes.values() if isinstance(axes, Mapping) for label in axes.values()]
    if told := in_words(mended(labels)):
        warnings.warn(
            f"names of axes that are not identifiers are replaced: {told}", ExportWarning, stacklevel=users_level()
        )


def to_dynamic_shapes(
    dynamic_axes: DynamicAxes,
    by_name: Mapping[str, object],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> dict[str, object]:
    """The same wish as a tree like the inputs.

    Args:
        dynamic_axes: input or output name -> its axes.
        by_name: example inputs by parameter name.
        input_names: names of the tensors among the inputs, in order; parameter names are accepted as well.
        output_names: names that belong to outputs.

    Raises:
        DynamicShapeError: naming an entry that is neither an input nor an output.
    """
    wanted = named(dynamic_axes)
    _told_names(dynamic_axes)
    leaves = pytree.tree_leaves(dict(by_name))
    tensors = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    by_leaf = dict(zip(tensors, input_names or (), strict=False))
    by_parameter = {
        index: name
        for name, index in zip(by_name, _first_leaves(by_name), strict=True)
        if isinstance(by_name[name], torch.Tensor)
    }
    specs: list[object] = [None] * len(leaves)
    used = set(output_names or ())
    for index in tensors:
        for name in (by_leaf.get(index), by_parameter.get(index)):
            if name is not None and name in wanted:
                specs[index] = wanted[name]
                used.add(name)
                break
    unknown = [name for name in wanted if name not in used]
    if unknown:
        raise DynamicShapeError(
            f"dynamic_axes names {', '.join(unknown)}, which is neither an input nor an output",
            next_step="list every name of dynamic_axes in input_names or output_names",
        )
    remaining = iter(specs)
    return {name: _nested(value, remaining) for name, value in by_name.items()}


def _nested(value: object, specs: Iterator[Any]) -> object:
    """The next specs, in plain containers of the structure of an input: a cache is no place for them."""
    children = pytree.tree_leaves(value, is_leaf=lambda item: item is not value)
    if len(children) == 1 and children[0] is value:
        return next(specs)
    if isinstance(value, Mapping):
        return {key: _nested(item, specs) for key, item in value.items()}
    return [_nested(child, specs) for child in children]


def _first_leaves(by_name: Mapping[str, object]) -> Iterator[int]:
    position = 0
    for value in by_name.values():
        yield position
        position += len(pytree.tree_leaves(value))


def name_outputs(model: ir.Model, dynamic_axes: DynamicAxes, output_names: Sequence[str] | None) -> None:
    """Writes the names asked for onto the symbolic axes of the outputs.

    Raises:
        DynamicShapeError: if an axis of an output that was asked for as dynamic is static in the model.
    """
    wanted = named(dynamic_axes)
    for value in model.graph.outputs:
        axes = wanted.get(value.name or "") if value.name in (output_names or ()) else None
        if not axes or value.shape is None:
            continue
        sizes = list(value.shape.dims)
        for axis, label in axes.items():
            if not -len(sizes) <= axis < len(sizes):
                raise DynamicShapeError(f"the output {value.name} has {len(sizes)} axes, not an axis {axis}")
            if isinstance(sizes[axis], int):
                raise DynamicShapeError(
                    f"axis {axis} ({label}) of the output {value.name} was asked for as dynamic, "
                    f"but it is {sizes[axis]}",
                    next_step="make the input's axes dynamic on which it depends, or leave it out of dynamic_axes",
                )
            sizes[axis] = ir.SymbolicDim(label)
        value.shape = ir.Shape(sizes)
