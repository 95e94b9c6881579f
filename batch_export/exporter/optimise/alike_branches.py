"""Branches of a graph that do alike with parts of one tensor: how far they do, and doing it once before a Split.

Arrives: values that are the columns of one tensor, or are to be. Leaves: that tensor put into parts (heads), with these
moved to the front where every branch moves them, and one Split whose pieces are what the branches had made.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise.edits import constant, known

_HEADS_FIRST = (0, 2, 1, 3)
_HEADS_FIRST_ROWS_LAST = (0, 2, 3, 1)
_SPLIT_AT = {"heads": 1, "parts": 2, "rows": -1}
"""Form -> the axis of the Split: heads are moved to the front before it, rows are in parts, or are as they were."""
_ONCE = {"heads": 3, "parts": 2, "rows": 1}
"""Form -> the nodes that do it for all, the Split included."""
_LEAST_GAIN = 2
"""How many nodes have to go: one less costs as much as the Split."""


@dataclass(slots=True)
class Branch:
    """What is done to some columns alone.

    Attributes:
        columns: how many there are.
        start: the value that has them.
        nodes: what follows it, as far as it can be done once for all.
        ends: form -> how many of the nodes that form does once.
        parts: into how many parts of which size its rows are put; None where they are not.
        shape: the first two sizes that its Reshape asks for, and `allowzero`.
        is_turned: whether its rows go to the last axis when its heads are moved.
    """

    columns: int
    start: ir.Value
    nodes: list[ir.Node] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    parts: tuple[int, int] | None = None
    shape: tuple[tuple[int, int], int] | None = None
    is_turned: bool = False

    def last(self) -> ir.Value:
        """What it has made so far."""
        return self.nodes[-1].outputs[0] if self.nodes else self.start

    def take(self, node: ir.Node) -> None:
        """One more node is done once for all."""
        self.nodes.append(node)
        kinds = {one.op_type for one in self.nodes}
        self.ends["heads" if "Transpose" in kinds else "parts" if "Reshape" in kinds else "rows"] = len(self.nodes)

    def moves(self, node: ir.Node) -> bool:
        """Whether a node puts rows into parts, or moves these to the front; how is noted then."""
        if node.op_type == "Reshape" and node.inputs[0] is self.last() and self.parts is None:
            return self._puts_in_parts(node)
        if node.op_type != "Transpose" or self.parts is None or "heads" in self.ends:
            return False
        attribute = node.attributes.get("perm")
        order = () if attribute is None else tuple(attribute.as_ints())
        self.is_turned = order == _HEADS_FIRST_ROWS_LAST
        return self.is_turned or order == _HEADS_FIRST

    def _puts_in_parts(self, node: ir.Node) -> bool:
        asked, result = known(node.inputs[1]), node.outputs[0].shape
        if asked is None or result is None or len(result) != 4 or asked.shape != (4,):
            return False
        count, size = result[2], result[3]
        if not isinstance(count, int) or not isinstance(size, int) or count * size != self.columns or not size:
            return False
        attribute = node.attributes.get("allowzero")
        self.parts = (count, size)
        self.shape = ((int(asked[0]), int(asked[1])), 0 if attribute is None else attribute.as_int())
        return True


def reader(value: ir.Value, graph: ir.Graph | ir.Function | None) -> ir.Node | None:
    """The one node of this graph that reads a value, once; None where others do, or nobody."""
    uses = tuple(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.graph is not graph or uses[0].node.domain:
        return None
    return uses[0].node


def common(group: Sequence[Branch], before: int, after: int) -> str | None:
    """The form in which all branches are alike, and by which enough nodes go.

    Args:
        group: the branches.
        before: nodes that go in any form, beside those of the branches.
        after: nodes that come in any form, beside those of the form.
    """
    first = group[0]
    alike = first.parts is not None and all(
        branch.parts is not None and branch.shape == first.shape and branch.parts[1] == first.parts[1]
        for branch in group
    )
    for form in _SPLIT_AT if alike else ("rows",):
        if not all(form in branch.ends for branch in group):
            continue
        gone = before + sum(branch.ends[form] for branch in group)
        come = after + _ONCE[form] + (sum(branch.is_turned for branch in group) if form == "heads" else 0)
        if gone - come >= _LEAST_GAIN:
            return form
    return None


@dataclass(slots=True)
class Writing:
    """Writes what is done once, before a node at which all of it can be computed.

    Attributes:
        model: for constants and names.
        before: the node; names are made of its output's.
        like: nodes whose place in the model is that of the new ones.
    """

    model: ir.Model
    before: ir.Node
    like: Sequence[ir.Node]

    def split(self, value: ir.Value, group: Sequence[Branch], form: str) -> None:
        """Puts a tensor of all columns in the place of the branches, and takes these out."""
        first = group[0]
        if form != "rows":
            assert first.shape is not None
            assert first.parts is not None
            heads = sum(branch.parts[0] for branch in group if branch.parts is not None)
            asked = [*first.shape[0], heads, first.parts[1]]
            attributes = {"allowzero": 1} if first.shape[1] else {}
            value = self.node("Reshape", [value, self.numbers(asked)], attributes)
        if form == "heads":
            value = self.node("Transpose", [value], {"perm": list(_HEADS_FIRST)})
        shares = [branch.columns if form == "rows" or branch.parts is None else branch.parts[0] for branch in group]
        for branch, piece in zip(group, self.pieces(value, shares, _SPLIT_AT[form]), strict=True):
            end = branch.nodes[branch.ends[form] - 1]
            if form == "heads" and branch.is_turned:
                piece = self.node("Transpose", [piece], {"perm": [0, 1, 3, 2]}, end)
            take_over(end, piece)
        for branch in group:
            for node in reversed(branch.nodes[: branch.ends[form]]):
                assert node.graph is not None
                node.graph.remove(node, safe=True)

    def pieces(self, value: ir.Value, sizes: Sequence[int], axis: int) -> list[ir.Value]:
        """Inserts a Split; returns its pieces."""
        name = self.before.outputs[0].name
        pieces = [ir.Value(name=self._free(f"{name}.{number}"), type=value.type) for number in range(len(sizes))]
        self._insert(ir.node("Split", [value, self.numbers(sizes)], {"axis": axis}, outputs=pieces))
        return pieces

    def node(
        self,
        name: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any] | None = None,
        instead: ir.Node | None = None,
    ) -> ir.Value:
        """Inserts a node of one output, described as the node that it is there for; returns what it makes."""
        stem = (self.before if instead is None else instead).outputs[0]
        output = ir.Value(name=self._free(f"{stem.name}.{name.lower()}"), type=stem.type)
        self._insert(ir.node(name, inputs, attributes or {}, outputs=[output]), instead)
        return output

    def _insert(self, node: ir.Node, instead: ir.Node | None = None) -> None:
        for one in self.like if instead is None else [instead]:
            for key, text in one.metadata_props.items():
                node.metadata_props.setdefault(key, text)
        node.name = f"{self.before.name}.{node.op_type.lower()}" if instead is None else instead.name
        assert self.before.graph is not None
        self.before.graph.insert_before(self.before, node)

    def _free(self, name: str) -> str:
        """The name, or one like it: inputs, outputs and weights may be called anything; nodes' values have no point."""
        graph = self.model.graph
        taken = {value.name for value in (*graph.inputs, *graph.outputs)} | set(graph.initializers)
        names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
        return next(one for one in names if one not in taken)

    def numbers(self, content: Sequence[int]) -> ir.Value:
        """A constant, `int64[n]`, with these numbers; one that was made before serves again."""
        numbers = np.array(content, dtype=np.int64)
        for count in itertools.count():
            value = self.model.graph.initializers.get(f"merged.{count}")
            if value is None:
                break
            before = known(value)
            if before is not None and np.array_equal(before, numbers) and before.dtype == numbers.dtype:
                return value
        return constant(self.model, numbers, "merged")


def take_over(end: ir.Node, piece: ir.Value) -> None:
    """A piece is from now on what a node made, under its name."""
    (replaced,) = end.outputs
    name, properties = replaced.name, dict(replaced.metadata_props)
    piece.type, piece.shape = replaced.type, replaced.shape
    ir.convenience.replace_all_uses_with(replaced, piece, replace_graph_outputs=True)
    replaced.name = None
    piece.name = name
    piece.metadata_props.update(properties)
