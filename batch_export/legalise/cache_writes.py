"""Writes into a cache of fixed length, found where a graph spells them out, as TensorScatter of opset 24.

Arrives: a model at opset 24 or later. Leaves: the same model, with TensorScatter where a slice of consecutive places of
one axis is overwritten, as static caches are at each step: the places are counted from a number on, whatever it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.replacing import replace
from batch_export.legalise.rules import attribute, given, known
from batch_export.legalise.writing import Writer

FIRST_OPSET = 24


def recognise(model: ir.Model) -> int:
    """Puts TensorScatter in, in place; returns how many there are now."""
    nodes = [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type == "ScatterND"]
    return sum(map(_rewritten, nodes))


def _rewritten(node: ir.Node) -> bool:
    if node.graph is None or attribute(node, "reduction", "none") != "none":
        return False
    before, after = _made_by(given(node, 0), "Transpose"), _only_user(node, "Transpose")
    spread = _made_by(given(node, 2), "Expand")
    moved = _made_by(spread.inputs[0] if spread is not None else given(node, 2), "Transpose")
    if before is None or after is None or moved is None:
        return False
    cache, update, found = given(before, 0), given(moved, 0), _consecutive(given(node, 1))
    axis = _axis_in_front(before, moved, after)
    if cache is None or update is None or found is None or not axis:
        return False
    length, start = found
    if not _fits(cache, update, length, axis):
        return False
    number, counted = start
    op = Writer()
    first = op.number([number])
    if counted is not None:
        counted = op.Reshape(counted, op.number([1]))
        first = op.Add(counted, first) if number else counted
    assert cache.shape is not None
    batch = cache.shape[0]
    each = op.number([batch]) if isinstance(batch, int) else op.Shape(cache, start=0, end=1)
    made = op.TensorScatter(cache, update, op.Expand(first, each), axis=axis)
    replace(after, op.nodes, [made])
    _drop(node)
    return True


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    maker = None if value is None else value.producer()
    return maker if maker is not None and maker.op_type == op_type and maker.domain == "" else None


def _only_user(node: ir.Node, op_type: str) -> ir.Node | None:
    output = node.outputs[0]
    users = [use.node for use in output.uses()]
    if len(users) != 1 or output.is_graph_output() or users[0].op_type != op_type or users[0].graph is not node.graph:
        return None
    return users[0]


def _axis_in_front(before: ir.Node, moved: ir.Node, after: ir.Node) -> int:
    """The axis that is moved to the front, on both sides, and back again; 0 where it is another order."""
    there, also, back = (list(attribute(node, "perm", [])) for node in (before, moved, after))
    if not there or there != also or [there[place] for place in back] != list(range(len(there))):
        return 0
    return int(there[0]) if there[1:] == sorted(there[1:]) else 0


def _fits(cache: ir.Value, update: ir.Value, length: int | ir.SymbolicDim, axis: int) -> bool:
    """Whether the update is as the cache but along the axis, where it has as many as there are places."""
    if cache.shape is None or update.shape is None or len(cache.shape) != len(update.shape):
        return False
    wanted = [length if at == axis else size for at, size in enumerate(cache.shape)]
    return all(
        one == other and (isinstance(one, int) or one.value is not None)
        for one, other in zip(wanted, update.shape, strict=True)
    )


def _consecutive(column: ir.Value | None) -> tuple[int | ir.SymbolicDim, tuple[int, ir.Value | None]] | None:
    """How many places a column of them has, and where they start."""
    content = known(column)
    if content is not None:
        start = _first(content.reshape(-1)) if content.ndim == 2 and content.shape[1] == 1 else None
        return None if start is None else (int(content.size), (start, None))
    maker = _made_by(column, "Unsqueeze")
    places = None if maker is None else given(maker, 0)
    found = None if places is None else _start(places)
    if places is None or found is None or places.shape is None or len(places.shape) != 1:
        return None
    return places.shape[0], found


def _first(content: np.ndarray[Any, Any]) -> int | None:
    """The first of consecutive numbers from 0 on; None of others."""
    if not content.size or content[0] < 0 or (content != content[0] + np.arange(content.size)).any():
        return None
    return int(content[0])


def _start(places: ir.Value) -> tuple[int, ir.Value | None] | None:
    """The first of consecutive places: a number, and a value that is added to it; None where they need not be that."""
    content = known(places)
    if content is not None:
        number = _first(content.reshape(-1))
        return None if number is None else (number, None)
    counted = _made_by(places, "Range")
    if counted is not None:
        first, step = given(counted, 0), known(given(counted, 2))
        if step is None or step != 1 or first is None or first.dtype != ir.DataType.INT64:
            return None
        begin = known(first)
        return (0, first) if begin is None else (int(begin.reshape(())), None)
    shifted = _made_by(places, "Add")
    if shifted is None:
        return None
    for at in (0, 1):
        run, by = shifted.inputs[at], shifted.inputs[1 - at]
        if run is None or by is None or by.shape is None or by.dtype != ir.DataType.INT64:
            continue
        if any(size != 1 for size in by.shape) or len(by.shape) > 1:
            continue
        inner = _start(run)
        if inner is not None and inner[1] is None:
            return inner[0], by
    return None


def _drop(node: ir.Node) -> None:
    """Removes a node that nothing reads any more, and what then nothing reads."""
    if node.graph is None or any(output.uses() or output.is_graph_output() for output in node.outputs):
        return
    makers = [value.producer() for value in node.inputs if value is not None]
    node.graph.remove(node, safe=True)
    for maker in makers:
        if maker is not None and maker.domain == "":
            _drop(maker)
