"""Axes that are split and moved: each element is moved once, however many steps torch takes.

Arrives: an `onnx_ir.Model` whose values know their shapes. Leaves: the same model, changed in place. A Reshape behind a
Transpose that only splits axes is done before it, where another Reshape is already; two Transposes become one; and what
is done alike with each slice of a tensor (queries, keys and values of one product) is done once with the tensor. No
element gets another place, and no size is computed that was not: what cannot be copied or counted stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise import dead_code
from batch_export.exporter.optimise.edits import constant, insert, known, only_use, same_sizes
from batch_export.legalise.nested import graphs_of

Factors = tuple[int, tuple[str, ...]]
"""A size as a number times names (or sums of names) in order."""


def move(model: ir.Model) -> int:
    """Rewrites in place; returns how many chains became shorter."""
    dead_code.remove_unused_nodes(model)  # what nothing reads counts as a reader
    changes = 0
    for graph in graphs_of(model.graph):
        found = _of_roots(graph)
        for root, form in _FORMS:
            made = sum(form(model, node) for node in found[root] if node.graph is graph)
            changes += made
            if made:
                found = _of_roots(graph)
    return changes


def _of_roots(graph: ir.Graph) -> dict[str, list[ir.Node]]:
    """The nodes of a graph that forms end or begin with, by their operators."""
    found: dict[str, list[ir.Node]] = {root: [] for root, _ in _FORMS}
    for node in graph:
        same = found.get(node.op_type)
        if same is not None and node.domain == "":
            same.append(node)
    return found


def _order(node: ir.Node | None) -> list[int] | None:
    """The perm of a Transpose."""
    if node is None or node.op_type != "Transpose" or node.domain or "perm" not in node.attributes:
        return None
    return list(node.attributes["perm"].as_ints())


# Sizes that are products of others -----------------------------------------------------------------------------------


def _factors(size: Any) -> Factors | None:
    """A size as a product; None for one that is unknown or 0."""
    if isinstance(size, int):
        return (size, ()) if size > 0 else None
    if size.value is None:
        return None
    number, names = 1, []
    for part in _parts(size.value):
        if part.isdigit():
            number *= int(part)
        else:
            names.append(part)
    return (number, tuple(sorted(names))) if number else None


def _parts(text: str) -> list[str]:
    """What an expression multiplies: itself where it is no product."""
    depth, places = 0, []
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and sign in "+-/%":
            return [text.strip()]
        if depth == 0 and sign == "*":
            if text[place - 1 : place] == "*" or text[place + 1 : place + 2] == "*":
                return [text.strip()]
            places.append(place)
    parts = [text[start + 1 : end] for start, end in zip([-1, *places], [*places, len(text)], strict=True)]
    return [_bare(part.strip()) for part in parts]


def _bare(part: str) -> str:
    """A sum without the parentheses that it has as a factor."""
    if not (part.startswith("(") and part.endswith(")")):
        return part
    depth = 0
    for place, sign in enumerate(part):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and place < len(part) - 1:
            return part
    return part[1:-1].strip()


def _times(one: Factors, other: Factors) -> Factors:
    return one[0] * other[0], tuple(sorted(one[1] + other[1]))


def _split(whole: Sequence[Any], parts: Sequence[Any]) -> list[list[Any]] | None:
    """For each size the sizes that it is split into, in order; None where the parts are not that."""
    groups: list[list[Any]] = []
    rest = list(parts)
    for size in whole:
        wanted = _factors(size)
        made: Factors = (1, ())
        group: list[Any] = []
        if wanted is None:
            return None
        while made != wanted:
            factors = _factors(rest[0]) if rest else None
            if factors is None:
                return None
            made = _times(made, factors)
            group.append(rest.pop(0))
            if len(made[1]) > len(wanted[1]) or made[0] > wanted[0]:
                return None
        groups.append(group)
    if any(size != 1 for size in rest) or (rest and not groups):
        return None
    if rest:
        groups[-1] += rest
    return groups


def _target(have: Sequence[Any], wanted: Sequence[Any]) -> list[int] | None:
    """What a Reshape is told to give a shape: numbers, and 0 for sizes that stay in their place."""
    told: list[int] = []
    for place, size in enumerate(wanted):
        if isinstance(size, int):
            told.append(size)
        elif place < len(have) and same_sizes([have[place]], [size]):
            told.append(0)
        else:
            return None
    return None if any(size == 0 for size in wanted) else told


# Rewrites -------------------------------------------------------------------------------------------------------------


def _split_first(model: ir.Model, node: ir.Node) -> int:
    """Reshape, Transpose and a Reshape that splits axes: a Reshape and a Transpose."""
    transpose = only_use(node.inputs[0], "Transpose")
    order = _order(transpose)
    before = None if transpose is None else only_use(transpose.inputs[0], "Reshape")
    if transpose is None or before is None or order is None or before.inputs[0] is None:
        return 0
    data, between, after = before.inputs[0], before.outputs[0].shape, node.outputs[0].shape
    if data.shape is None or between is None or after is None or len(between) != len(order):
        return 0
    groups = _split([between[axis] for axis in order], list(after))
    if groups is None:
        return 0
    by_axis = [groups[order.index(axis)] for axis in range(len(order))]
    told = _target(list(data.shape), [size for group in by_axis for size in group])
    if told is None:
        return 0
    starts = [sum(map(len, by_axis[:axis])) for axis in range(len(order))]
    perm = [starts[axis] + place for axis in order for place in range(len(by_axis[axis]))]
    shape = [size for group in by_axis for size in group]
    made = _reshaped(model, transpose, data, told, shape, f"{transpose.outputs[0].name}_split")
    insert(node, "Transpose", [made], {"perm": perm}, [node])
    _drop(transpose, before)
    return 1


def _reshaped(
    model: ir.Model, before: ir.Node, data: ir.Value, told: Sequence[int], shape: Sequence[Any], name: str
) -> ir.Value:
    """The data in another shape, before a node; itself where it has that shape."""
    if same_sizes(data.shape, shape):
        return data
    output = ir.Value(name=name, type=data.type, shape=ir.Shape(shape))
    target = constant(model, np.asarray(told, dtype=np.int64), "split")
    _put(before, ir.node("Reshape", [data, target], outputs=[output], name=name))
    return output


def _put(before: ir.Node, made: ir.Node) -> None:
    for key, text in before.metadata_props.items():
        made.metadata_props.setdefault(key, text)
    assert before.graph is not None
    before.graph.insert_before(before, made)


def _moved_at_once(model: ir.Model, node: ir.Node) -> int:
    """Two Transposes: one, or none."""
    second, first = _order(node), only_use(node.inputs[0], "Transpose")
    order = _order(first)
    if first is None or order is None or second is None or first.inputs[0] is None:
        return 0
    perm = [order[axis] for axis in second]
    if perm != sorted(perm) or node.outputs[0].is_graph_output():
        insert(node, "Transpose", [first.inputs[0]], {"perm": perm}, [node])
    else:
        ir.convenience.replace_all_uses_with(node.outputs[0], first.inputs[0])
    _drop(node, first)
    return 1


def _slices_at_once(model: ir.Model, node: ir.Node) -> int:
    """Slices of a first axis that are all split and moved alike: the tensor is, then they are taken."""
    data = node.outputs[0]
    shape = data.shape
    chains = [chain for user, index in data.uses() if (chain := _chain(user, index)) is not None]
    if shape is None or len(chains) < 2 or len(chains) != len(data.uses()) or data.is_graph_output():
        return 0
    sizes = chains[0][1].outputs[0].shape
    orders = [_order(chain[2]) or [] for chain in chains]
    order = max(orders, key=orders.count)
    apart = sum(one != order for one in orders)
    if sizes is None or len(order) != len(sizes) or 2 * len(chains) - apart < 3:
        return 0
    if not all(
        same_sizes(chain[1].outputs[0].shape, sizes) and sorted(_order(chain[2]) or ()) == sorted(order)
        for chain in chains
    ):
        return 0
    if any(one.graph is not node.graph for chain in chains for one in chain):
        return 0
    whole = [shape[0], *sizes]
    told = _target(list(shape), whole)
    if told is None or _split(list(shape)[1:], list(sizes)) is None:
        return 0
    assert node.graph is not None
    places = {id(one): place for place, one in enumerate(node.graph)}
    earliest = min((chain[0] for chain in chains), key=lambda one: places[id(one)])
    made = _reshaped(model, earliest, data, told, whole, f"{data.name}_split")
    moved = ir.Value(
        name=f"{data.name}_moved", type=data.type, shape=ir.Shape([shape[0], *(list(sizes)[axis] for axis in order)])
    )
    perm = [0, *(axis + 1 for axis in order)]
    _put(earliest, ir.node("Transpose", [made], {"perm": perm}, outputs=[moved], name=f"{data.name}_moved"))
    for (gather, reshape, transpose), own in zip(chains, orders, strict=True):
        place = _given(gather.inputs[1])
        if own == order:
            insert(transpose, "Gather", [moved, place], {"axis": 0}, [transpose])
            _drop(reshape, gather)
            continue
        slice_ = ir.Value(
            name=f"{gather.outputs[0].name}_moved", type=data.type, shape=ir.Shape(list(moved.shape or ())[1:])
        )
        _put(transpose, ir.node("Gather", [moved, place], {"axis": 0}, outputs=[slice_], name=slice_.name))
        insert(transpose, "Transpose", [slice_], {"perm": [order.index(axis) for axis in own]}, [transpose])
        _drop(reshape, gather)
    return 1


def _drop(*nodes: ir.Node) -> None:
    """Removes what nothing reads any more, from the last to the first: others ask who is the only reader."""
    for node in nodes:
        if node.graph is not None and not any(value.uses() or value.is_graph_output() for value in node.outputs):
            node.graph.remove(node, safe=True)


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value


def _chain(node: ir.Node, index: int) -> tuple[ir.Node, ir.Node, ir.Node] | None:
    """A slice of a first axis, split and moved, of which nothing else is used: Gather, Reshape, Transpose."""
    if index or node.domain or node.op_type != "Gather" or node.attributes.get_int("axis", 0):
        return None
    place = known(node.inputs[1])
    reshape = None if place is None or place.ndim else _only_reader(node)
    if reshape is None or reshape.op_type != "Reshape" or reshape.inputs[0] is not node.outputs[0]:
        return None
    transpose = _only_reader(reshape)
    return None if transpose is None or transpose.op_type != "Transpose" else (node, reshape, transpose)


def _only_reader(node: ir.Node) -> ir.Node | None:
    """The one node that reads what a node gives."""
    uses = list(node.outputs[0].uses())
    if len(uses) != 1 or node.outputs[0].is_graph_output() or uses[0][0].domain:
        return None
    return uses[0][0]


_FORMS = (
    ("Reshape", _split_first),
    ("Transpose", _slices_at_once),
    ("Reshape", _split_first),
    ("Transpose", _moved_at_once),
)
"""What is rewritten, in order, and the operator that each form ends or begins with."""
