"""Merges small products of one input with several matrices into one: queries, keys and values of attention.

Arrives: a model whose weights have content (the copy that is written to a file). Leaves: the same model, changed in
place: the matrices of several MatMul stand side by side in one, and a Split gives each reader its columns. What follows
every one of them alike is done once before the Split: a bias, putting heads on an axis of their own, and moving that
axis to the front. A number that all elements of one of them are multiplied with becomes part of its columns.

A small product takes about as long as it takes to start one, and so does what follows it; a large one is limited by its
arithmetic, and is left alone, so that no second copy of a large model's weights is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from batch_export.exporter.graph import metadata
from batch_export.exporter.optimise.edits import constant, known
from batch_export.exporter.optimise.merged_norms import content_of, holds, initializer, is_own_weight
from batch_export.legalise.nested import graphs_of

LARGEST = 1 << 20
"""Bytes of a merged matrix at most."""
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SCALED = (torch.float32, torch.float64)
_LEAST_OPSET = 13
"""From here on Split has its sizes as an input."""
_LEAST_GAIN = 2
"""How many nodes have to go: one less costs as much as the Split."""
_HEADS_FIRST = (0, 2, 1, 3)
_HEADS_FIRST_ROWS_LAST = (0, 2, 3, 1)
_SPLIT_AT = {"heads": 1, "parts": 2, "rows": -1}
"""Form -> the axis of the Split: heads are moved to the front before it, rows are in parts, or are as they were."""


@dataclass(slots=True)
class _Branch:
    """One product and what is done to it alone.

    Attributes:
        matrix, bias: its weights as they are; no bias is None.
        nodes: the product and what follows it, as far as it can be merged.
        ends: form -> how many of the nodes that form merges.
        parts: into how many parts of which size its rows are put; None where they are not.
        shape: the first two sizes that its Reshape asks for, and `allowzero`.
        is_turned: whether its rows go to the last axis when its heads are moved.
        scales: numbers that it is multiplied with, each with its place among the nodes.
    """

    product: ir.Node
    matrix: Tensor
    bias: Tensor | None = None
    nodes: list[ir.Node] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    parts: tuple[int, int] | None = None
    shape: tuple[tuple[int, ...], int] | None = None
    is_turned: bool = False
    scales: list[tuple[int, float]] = field(default_factory=list)

    def has_bias(self) -> bool:
        return self.bias is not None


def merge(model: ir.Model) -> int:
    """Merges in place; returns how many products went. What they read is left for `dead_code`."""
    if model.opset_imports.get("", 0) < _LEAST_OPSET:
        return 0
    gone = 0
    for graph in graphs_of(model.graph):
        for group in _groups(graph):
            gone += _merge(model, group)
    return gone


def _groups(graph: ir.Graph) -> list[list[_Branch]]:
    """Products of one input in one module, or in modules that it has, in the order of the graph."""
    found: dict[tuple[ir.Value, str], list[_Branch]] = {}
    for node in graph:
        if node.op_type == "MatMul" and not node.domain and node.inputs[0] is not None:
            branch = _branch(node)
            if branch is not None:
                found.setdefault((node.inputs[0], _owner(node)), []).append(branch)
    return [group for group in found.values() if len(group) > 1]


def _owner(node: ir.Node) -> str:
    """The module around the one that a node is of."""
    scopes = node.metadata_props.get(metadata.NAME_SCOPES, "")
    return ",".join(scopes.split(",")[:-2])


def _branch(product: ir.Node) -> _Branch | None:
    weight = product.inputs[1]
    matrix = content_of(weight)
    if matrix is None or matrix.dim() != 2 or matrix.dtype not in _DTYPES or not is_own_weight(weight):
        return None
    if matrix.numel() * matrix.element_size() > LARGEST:
        return None
    branch = _Branch(product, matrix, nodes=[product], ends={"rows": 1})
    while (node := _reader(branch.nodes[-1])) is not None and _takes(branch, node):
        branch.nodes.append(node)
        branch.ends[_form(branch)] = len(branch.nodes)
    return branch


def _reader(node: ir.Node) -> ir.Node | None:
    """The one node that reads what a node makes, in the same graph."""
    (value,) = node.outputs
    uses = tuple(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.graph is not node.graph or uses[0].node.domain:
        return None
    return uses[0].node


def _form(branch: _Branch) -> str:
    kinds = {node.op_type for node in branch.nodes}
    return "heads" if "Transpose" in kinds else "parts" if "Reshape" in kinds else "rows"


def _takes(branch: _Branch, node: ir.Node) -> bool:
    """Whether a node can be merged, too; what it does is noted then."""
    place = 0 if node.inputs[0] is branch.nodes[-1].outputs[0] else 1
    if node.op_type == "Add":
        summand = content_of(node.inputs[1 - place])
        if len(branch.nodes) > 1 or summand is None or tuple(summand.shape) != (branch.matrix.shape[1],):
            return False
        if summand.dtype != branch.matrix.dtype:
            return False
        branch.bias = summand
        return True
    if node.op_type == "Mul" or (node.op_type == "Div" and place == 0):
        factor = content_of(node.inputs[1 - place])
        if factor is None or factor.numel() != 1 or factor.dim() > 1 or branch.matrix.dtype not in _SCALED:
            return False
        number = float(factor.double())
        branch.scales.append((len(branch.nodes), number if node.op_type == "Mul" else 1 / number if number else np.inf))
        return bool(np.isfinite(branch.scales[-1][1]))
    if node.op_type == "Reshape" and place == 0 and branch.parts is None:
        return _puts_in_parts(branch, node)
    if node.op_type == "Transpose" and branch.parts is not None and "heads" not in branch.ends:
        attribute = node.attributes.get("perm")
        order = () if attribute is None else tuple(attribute.as_ints())
        branch.is_turned = order == _HEADS_FIRST_ROWS_LAST
        return branch.is_turned or order == _HEADS_FIRST
    return False


def _puts_in_parts(branch: _Branch, node: ir.Node) -> bool:
    asked, result = known(node.inputs[1]), node.outputs[0].shape
    if asked is None or result is None or len(result) != 4 or asked.shape != (4,):
        return False
    count, size = result[2], result[3]
    if not isinstance(count, int) or not isinstance(size, int) or count * size != branch.matrix.shape[1] or not size:
        return False
    attribute = node.attributes.get("allowzero")
    branch.parts = (count, size)
    branch.shape = ((int(asked[0]), int(asked[1])), 0 if attribute is None else attribute.as_int())
    return True


def _merge(model: ir.Model, group: Sequence[_Branch]) -> int:
    form = _common(group)
    weights = None if form is None else _side_by_side(group, form)
    if form is None or weights is None:
        return 0
    matrix, bias = weights
    _Writing(model, group, form).write(matrix, bias)
    return len(group) - 1


def _common(group: Sequence[_Branch]) -> str | None:
    """The form in which all of a group can be merged, and enough nodes go."""
    first = group[0]
    if len({branch.matrix.dtype for branch in group}) > 1:
        return None
    if sum(branch.matrix.numel() * branch.matrix.element_size() for branch in group) > LARGEST:
        return None
    alike = all(branch.shape == first.shape and _size(branch) == _size(first) for branch in group)
    for form in _SPLIT_AT if alike and first.parts is not None else ("rows",):
        if not all(form in branch.ends for branch in group):
            continue
        before = sum(branch.ends[form] for branch in group)
        after = {"heads": 4, "parts": 3, "rows": 2}[form] + any(map(_Branch.has_bias, group))
        after += sum(branch.is_turned for branch in group) if form == "heads" else 0
        if before - after >= _LEAST_GAIN:
            return form
    return None


def _size(branch: _Branch) -> int | None:
    return None if branch.parts is None else branch.parts[1]


def _side_by_side(group: Sequence[_Branch], form: str) -> tuple[Tensor, Tensor | None] | None:
    """The matrix and the bias of all; None where their dtype would not hold them."""
    has_bias = any(map(_Branch.has_bias, group))
    matrices: list[Tensor] = []
    biases: list[Tensor] = []
    for branch in group:
        factor = float(np.prod([number for place, number in branch.scales if place < branch.ends[form]]))
        # Adding -0.0 is nothing, whatever it is added to.
        bias = branch.bias if branch.bias is not None else branch.matrix.new_full((branch.matrix.shape[1],), -0.0)
        for tensor, found in ((branch.matrix, matrices), (bias, biases)):
            if factor != 1 and (tensor is branch.matrix or branch.bias is not None):
                exact = tensor.double() * factor
                if not holds(exact.to(tensor.dtype), exact):
                    return None
                tensor = exact.to(tensor.dtype)
            found.append(tensor)
    return torch.cat(matrices, 1), torch.cat(biases) if has_bias else None


@dataclass(slots=True)
class _Writing:
    """Puts one product in the place of several."""

    model: ir.Model
    group: Sequence[_Branch]
    form: str

    def write(self, matrix: Tensor, bias: Tensor | None) -> None:
        """Writes it before the first of them, where the input of all is there."""
        first = self.group[0]
        name = first.product.outputs[0].name
        value = self._node("MatMul", [first.product.inputs[0], initializer(self.model, matrix, f"{name}.matrix")])
        if bias is not None:
            value = self._node("Add", [value, initializer(self.model, bias, f"{name}.bias")])
        if self.form != "rows":
            assert first.shape is not None
            assert first.parts is not None
            heads = sum(branch.parts[0] for branch in self.group if branch.parts is not None)
            asked = np.array([*first.shape[0], heads, first.parts[1]], dtype=np.int64)
            value = self._node("Reshape", [value, self._numbers(asked)], {"allowzero": 1} if first.shape[1] else {})
        if self.form == "heads":
            value = self._node("Transpose", [value], {"perm": list(_HEADS_FIRST)})
        sizes = np.array([self._share(branch) for branch in self.group], dtype=np.int64)
        pieces = [ir.Value(name=self._free(f"{name}.{number}"), type=value.type) for number in range(len(self.group))]
        self._insert(ir.node("Split", [value, self._numbers(sizes)], {"axis": _SPLIT_AT[self.form]}, outputs=pieces))
        for branch, piece in zip(self.group, pieces, strict=True):
            last = branch.nodes[branch.ends[self.form] - 1]
            if self.form == "heads" and branch.is_turned:
                piece = self._node("Transpose", [piece], {"perm": [0, 1, 3, 2]}, like=last)
            _take_over(last, piece)
        for branch in self.group:
            for node in reversed(branch.nodes[: branch.ends[self.form]]):
                assert node.graph is not None
                node.graph.remove(node, safe=True)

    def _share(self, branch: _Branch) -> int:
        """How much of the axis that is split is a branch's."""
        if self.form == "rows":
            return int(branch.matrix.shape[1])
        assert branch.parts is not None
        return branch.parts[0]

    def _free(self, name: str) -> str:
        """The name, or one like it: inputs, outputs and weights may be called anything; nodes' values have no point."""
        graph = self.model.graph
        taken = {value.name for value in (*graph.inputs, *graph.outputs)} | set(graph.initializers)
        return (
            name
            if name not in taken
            else next(one for number in itertools.count(1) if (one := f"{name}.{number}") not in taken)
        )

    def _numbers(self, numbers: np.ndarray[Any, Any]) -> ir.Value:
        """A constant with these numbers; one that an earlier group made serves again."""
        for count in itertools.count():
            value = self.model.graph.initializers.get(f"merged.{count}")
            if value is None:
                return constant(self.model, numbers, "merged")
            content = known(value)
            if content is not None and np.array_equal(content, numbers) and content.dtype == numbers.dtype:
                return value
        raise AssertionError("unreachable")

    def _node(
        self,
        name: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any] | None = None,
        like: ir.Node | None = None,
    ) -> ir.Value:
        kind = self.group[0].product.outputs[0].type
        stem = self.group[0].product.outputs[0].name if like is None else like.outputs[0].name
        output = ir.Value(name=self._free(f"{stem}.{name.lower()}"), type=kind)
        self._insert(ir.node(name, inputs, attributes or {}, outputs=[output]), like)
        return output

    def _insert(self, node: ir.Node, like: ir.Node | None = None) -> None:
        first = self.group[0].product
        for one in [like] if like is not None else _nodes(self.group):
            for key, text in one.metadata_props.items():
                node.metadata_props.setdefault(key, text)
        node.name = f"{first.name}.{node.op_type.lower()}" if like is None else like.name
        assert first.graph is not None
        first.graph.insert_before(first, node)


def _nodes(group: Sequence[_Branch]) -> Iterator[ir.Node]:
    return itertools.chain.from_iterable(branch.nodes for branch in group)


def _take_over(last: ir.Node, piece: ir.Value) -> None:
    """A piece is from now on what a node made, under its name."""
    (replaced,) = last.outputs
    name, properties = replaced.name, dict(replaced.metadata_props)
    piece.type, piece.shape = replaced.type, replaced.shape
    ir.convenience.replace_all_uses_with(replaced, piece, replace_graph_outputs=True)
    replaced.name = None
    piece.name = name
    piece.metadata_props.update(properties)
