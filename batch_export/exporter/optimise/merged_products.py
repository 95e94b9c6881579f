"""Merges small products of one input with several matrices into one: queries, keys and values of attention.

Arrives: a model whose weights have content (the copy that is written to a file). Leaves: the same model, changed in
place: the matrices of several MatMul stand side by side in one, and a Split gives each reader its columns. What follows
every one of them alike is done once before the Split: a bias, putting heads on an axis of their own, and moving that
axis to the front. A number that all elements of one of them are multiplied with becomes part of its columns. Heads of
what is split already (one matrix for all three in the model itself) are moved before the Split, too.

A small product takes about as long as it takes to start one, and so does what follows it; a large one is limited by its
arithmetic, and is left alone, so that no second copy of a large model's weights is made.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir
import torch
from torch import Tensor

from batch_export.exporter.graph import metadata
from batch_export.exporter.optimise.alike_branches import Branch, Writing, common, reader
from batch_export.exporter.optimise.merged_norms import content_of, holds, initializer, integer
from batch_export.legalise.nested import graphs_of

LARGEST = 1 << 20
"""Bytes of a merged matrix at most."""
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SCALED = (torch.float32, torch.float64)
_KINDS = ("matrix", "bias")
_LEAST_OPSET = 13
"""From here on Split has its sizes as an input."""


@dataclass(slots=True)
class _Product:
    """One product, and what is done to it alone.

    Attributes:
        matrix, bias: its weights as they are; no bias is None.
        scales: numbers that it is multiplied with, each with its place among the nodes of the branch.
    """

    node: ir.Node
    matrix: Tensor
    branch: Branch
    bias: Tensor | None = None
    scales: list[tuple[int, float]] = field(default_factory=list)

    def factor(self, form: str) -> float:
        """What its elements are multiplied with before the Split of a form."""
        return math.prod(number for place, number in self.scales if place < self.branch.ends[form])

    def adds(self) -> ir.Value | None:
        """The bias that is added to it."""
        if self.bias is None:
            return None
        adding = self.branch.nodes[1]
        return adding.inputs[1 if adding.inputs[0] is self.node.outputs[0] else 0]


def merge(model: ir.Model) -> int:
    """Merges in place; returns how many products and steps went. What they read is left for `dead_code`."""
    if model.opset_imports.get("", 0) < _LEAST_OPSET:
        return 0
    gone = 0
    graphs = graphs_of(model.graph)
    for graph in graphs:
        gone += sum(_move_heads(model, node) for node in [one for one in graph if one.op_type == "Split"])
    groups = [group for graph in graphs for group in _groups(graph)]
    sharing = Counter(_weights(group) for group in groups)
    made: dict[tuple[object, ...], list[ir.Value]] = {}
    for group in groups:
        weights = _weights(group)
        if all(len(weight.uses()) == sharing[weights] for weight in weights):
            gone += _merge(model, group, made)
            sharing[weights] -= 1
    return gone


def _weights(group: Sequence[_Product]) -> tuple[ir.Value, ...]:
    """The matrices of a group: layers that share theirs share what is made of them."""
    return tuple(weight for product in group if (weight := product.node.inputs[1]) is not None)


def _groups(graph: ir.Graph) -> list[list[_Product]]:
    """Products of one input in one module, or in modules that it has, in the order of the graph."""
    found: dict[tuple[ir.Value, str], list[_Product]] = {}
    for node in graph:
        if node.op_type == "MatMul" and not node.domain and node.inputs[0] is not None:
            product = _product(node)
            if product is not None:
                found.setdefault((node.inputs[0], _owner(node)), []).append(product)
    return [group for group in found.values() if len(group) > 1]


def _owner(node: ir.Node) -> str:
    """The module around the one that a node is of."""
    scopes = node.metadata_props.get(metadata.NAME_SCOPES, "")
    return ",".join(scopes.split(",")[:-2])


def _product(node: ir.Node) -> _Product | None:
    weight = node.inputs[1]
    matrix = content_of(weight)
    if weight is None or matrix is None or matrix.dim() != 2 or matrix.dtype not in _DTYPES:
        return None
    if weight.is_graph_output() or any(user.op_type != "MatMul" or place != 1 for user, place in weight.uses()):
        return None
    if matrix.numel() * matrix.element_size() > LARGEST:
        return None
    branch = Branch(int(matrix.shape[1]), node.outputs[0])
    product = _Product(node, matrix, branch)
    branch.take(node)
    while (next_node := reader(branch.last(), node.graph)) is not None and _takes(product, next_node):
        branch.take(next_node)
    return product


def _takes(product: _Product, node: ir.Node) -> bool:
    """Whether a node can be merged, too; what it does is noted then."""
    branch = product.branch
    place = 0 if node.inputs[0] is branch.last() else 1
    if node.op_type == "Add":
        summand = content_of(node.inputs[1 - place])
        if len(branch.nodes) > 1 or summand is None or tuple(summand.shape) != (branch.columns,):
            return False
        if summand.dtype != product.matrix.dtype:
            return False
        product.bias = summand
        return True
    if node.op_type == "Mul" or (node.op_type == "Div" and place == 0):
        factor = content_of(node.inputs[1 - place])
        if factor is None or factor.numel() != 1 or factor.dim() > 1 or product.matrix.dtype not in _SCALED:
            return False
        number = float(factor.double())
        number = number if node.op_type == "Mul" else 1 / number if number else math.inf
        product.scales.append((len(branch.nodes), number))
        return math.isfinite(number)
    return branch.moves(node)


def _merge(model: ir.Model, group: Sequence[_Product], made: dict[tuple[object, ...], list[ir.Value]]) -> int:
    """Merges one group; `made` has the weights of groups before it."""
    first = group[0]
    if len({product.matrix.dtype for product in group}) > 1:
        return 0
    if sum(product.matrix.numel() * product.matrix.element_size() for product in group) > LARGEST:
        return 0
    branches = [product.branch for product in group]
    has_bias = any(product.bias is not None for product in group)
    form = common(branches, 0, 1 + has_bias)
    weights = None if form is None else _side_by_side(group, form)
    if form is None or weights is None:
        return 0
    writing = Writing(model, first.node, list(itertools.chain.from_iterable(one.nodes for one in branches)))
    name = first.node.outputs[0].name
    key = (
        _weights(group),
        tuple(product.adds() for product in group),
        tuple(product.factor(form) for product in group),
    )
    if key not in made:
        made[key] = [
            initializer(model, tensor, f"{name}.{kind}") for tensor, kind in zip(weights, _KINDS, strict=False)
        ]
    matrix, *bias = made[key]
    value = writing.node("MatMul", [first.node.inputs[0], matrix])
    if bias:
        value = writing.node("Add", [value, *bias])
    writing.split(value, branches, form)
    return len(group) - 1


def _side_by_side(group: Sequence[_Product], form: str) -> list[Tensor] | None:
    """The matrix of all, and the bias if one has any; None where their dtype would not hold them."""
    matrices: list[Tensor] = []
    biases: list[Tensor] = []
    for product in group:
        factor = product.factor(form)
        matrix, bias = (_scaled(tensor, factor) for tensor in (product.matrix, product.bias))
        if matrix is None or (bias is None and product.bias is not None):
            return None
        matrices.append(matrix)
        # Adding -0.0 is nothing, whatever it is added to.
        biases.append(bias if bias is not None else matrix.new_full((matrix.shape[1],), -0.0))
    has_bias = any(product.bias is not None for product in group)
    return [torch.cat(matrices, 1), *([torch.cat(biases)] if has_bias else [])]


def _scaled(tensor: Tensor | None, factor: float) -> Tensor | None:
    """The tensor times a number; None for no tensor, and where its dtype would not hold the products."""
    if tensor is None or factor == 1:
        return tensor
    exact = tensor.double() * factor
    rounded = exact.to(tensor.dtype)
    return rounded if holds(rounded, exact) else None


def _move_heads(model: ir.Model, split: ir.Node) -> int:
    """Puts heads on an axis, and moves it, before a Split of the last axis."""
    data = split.inputs[0]
    if split.domain or split.graph is None or data is None or data.shape is None or len(data.shape) != 3:
        return 0
    if integer(split, "axis", 0) not in (-1, 2):
        return 0
    branches = [_piece(value, split.graph) for value in split.outputs]
    if any(branch is None for branch in branches):
        return 0
    group = [branch for branch in branches if branch is not None]
    form = common(group, 1, 0)
    if form is None:
        return 0
    before = _before_its_axes_were_named(data, split)
    sizes = group[0].shape
    if before is not None and sizes is not None and 0 not in sizes[0]:
        data = before
    Writing(model, split, [*group[0].nodes, split]).split(data, group, form)
    split.graph.remove(split, safe=True)
    return len(group)


def _piece(value: ir.Value, graph: ir.Graph | ir.Function) -> Branch | None:
    columns = value.shape[-1] if value.shape is not None and len(value.shape) else None
    if not isinstance(columns, int):
        return None
    branch = Branch(columns, value)
    while (node := reader(branch.last(), graph)) is not None and branch.moves(node):
        branch.take(node)
    return branch if branch.nodes else None


def _before_its_axes_were_named(data: ir.Value, node: ir.Node) -> ir.Value | None:
    """What a Reshape was given that a node alone reads, where it names other axes than the last."""
    reshape = data.producer()
    if reshape is None or reshape.op_type != "Reshape" or reshape.domain or reader(data, node.graph) is not node:
        return None
    given = reshape.inputs[0]
    if given is None or given.shape is None or not len(given.shape) or data.shape is None:
        return None
    return given if isinstance(given.shape[-1], int) and given.shape[-1] == data.shape[-1] else None
