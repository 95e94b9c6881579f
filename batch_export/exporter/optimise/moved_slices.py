"""Moves the axes of what is taken apart into slices once, before the Split, where every slice moves them alike.

Arrives: a graph in which a Split gives slices of one element, each without that axis (`unbind`), and each transposed:
queries, keys and values that one matrix made. Leaves: one Transpose before the Split, which takes slices along the
first axis, one block of memory each. A slice whose last two axes are turned round besides keeps a Transpose for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from batch_export.exporter.optimise.alike_branches import Writing, reader, take_over
from batch_export.exporter.optimise.edits import known
from batch_export.exporter.optimise.merged_norms import integer
from batch_export.legalise.nested import graphs_of

_LEAST_OPSET = 13
"""From here on Split and Squeeze have their sizes and axes as inputs."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """One slice: the nodes that take its axis away and move the others, and the order in which these come."""

    squeeze: ir.Node
    transpose: ir.Node
    order: tuple[int, ...]


def move(model: ir.Model) -> int:
    """Moves axes in place; returns how many nodes went."""
    if model.opset_imports.get("", 0) < _LEAST_OPSET:
        return 0
    return sum(
        _move(model, node)
        for graph in graphs_of(model.graph)
        for node in [one for one in graph if one.op_type == "Split" and not one.domain]
    )


def _move(model: ir.Model, split: ir.Node) -> int:
    data = split.inputs[0]
    if split.graph is None or data is None or data.shape is None or len(split.outputs) < 2:
        return 0
    rank = len(data.shape)
    axis = integer(split, "axis", 0) % rank
    found = [_slice(value, axis, rank, split.graph) for value in split.outputs]
    group = [one for one in found if one is not None]
    plain = [one.order for one in group if one.order[-1] == rank - 2] or [one.order for one in group]
    if len(group) < len(found) or not plain:
        return 0
    order = plain[0]
    turned = (*order[:-2], order[-1], order[-2])
    if any(one.order not in (order, turned) for one in group):
        return 0
    keep = [one for one in group if one.order == turned]
    gone = len(group) - 1 - len(keep)
    if gone < 1:
        return 0
    _write(model, split, axis, order, group)
    return gone


def _slice(value: ir.Value, axis: int, rank: int, graph: ir.Graph | ir.Function) -> _Slice | None:
    """A piece whose axis a Squeeze takes away, so that it has one element, and that is transposed then."""
    squeeze = reader(value, graph)
    if squeeze is None or squeeze.op_type != "Squeeze" or len(squeeze.inputs) < 2:
        return None
    axes = known(squeeze.inputs[1])
    if axes is None or axes.size != 1 or int(axes.reshape(-1)[0]) % rank != axis:
        return None
    transpose = reader(squeeze.outputs[0], graph)
    if transpose is None or transpose.op_type != "Transpose":
        return None
    attribute = transpose.attributes.get("perm")
    order = tuple(range(rank - 1))[::-1] if attribute is None else tuple(attribute.as_ints())
    return _Slice(squeeze, transpose, order) if len(order) > 1 else None


def _write(model: ir.Model, split: ir.Node, axis: int, order: Sequence[int], group: Sequence[_Slice]) -> None:
    """Puts the new nodes before the Split, and takes the old ones out."""
    like = [one.transpose for one in group]
    writing = Writing(model, split, like)
    behind = [one + (one >= axis) for one in order]  # the axes that are left, as those of what is split
    moved = writing.node("Transpose", [split.inputs[0]], {"perm": [axis, *behind]})
    for one, piece in zip(group, writing.pieces(moved, [1] * len(group), 0), strict=True):
        value = writing.node("Squeeze", [piece, writing.numbers([0])], instead=one.squeeze)
        if one.order != tuple(order):
            turned = [*range(len(order) - 2), len(order) - 1, len(order) - 2]
            value = writing.node("Transpose", [value], {"perm": turned}, one.transpose)
        take_over(one.transpose, value)
    for one in group:
        for node in (one.transpose, one.squeeze):
            assert node.graph is not None
            node.graph.remove(node, safe=True)
    assert split.graph is not None
    split.graph.remove(split, safe=True)
