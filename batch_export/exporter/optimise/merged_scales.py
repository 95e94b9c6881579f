"""Merges a factor per channel into the weights of what it follows: layer scale.

Arrives: a model whose weights have content (the copy that is written to a file). Leaves: the same model, changed in
place: a Conv, ConvTranspose, Gemm or MatMul (with or without a bias behind it) followed by a product with a constant
becomes that operator alone, and so does one whose rows go through a BatchNormalization, also with axes put together
between the two. As in `merged_norms.py`, what the dtype of the weights would not hold stays. So does a factor that is
one number for all: a weight is found by its name, and loses it where it is merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch import Tensor

from batch_export.exporter.optimise.edits import insert
from batch_export.exporter.optimise.merged_norms import (
    Affine,
    content_of,
    holds,
    initializer,
    integer,
    is_own_weight,
    new_weights,
    of_norm,
    take_over,
)
from batch_export.legalise.nested import graphs_of

_IMAGES = ("Conv", "ConvTranspose")
_NAMING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


_SCALING = frozenset({"Mul", "Div", "BatchNormalization"})


def merge(model: ir.Model) -> int:
    """Merges in place; returns how many nodes went."""
    return sum(
        _merge(model, node)
        for graph in graphs_of(model.graph)
        for node in [one for one in graph if one.op_type in _SCALING]
    )


def _merge(model: ir.Model, node: ir.Node) -> int:
    if node.domain or node.graph is None:
        return 0
    if node.op_type in ("Mul", "Div"):
        return _scale(model, node)
    return _norm_of_rows(model, node) if node.op_type == "BatchNormalization" else 0


def _scale(model: ir.Model, node: ir.Node) -> int:
    """A product with, or a quotient by, a constant."""
    for place in (1, 0) if node.op_type == "Mul" else (1,):
        factor, data = content_of(node.inputs[place]), node.inputs[1 - place]
        if factor is None or data is None or factor.numel() < 2 or not _is_own(data, node):
            continue
        exact = factor.double() if node.op_type == "Mul" else 1 / factor.double()
        before = data.producer()
        if before is not None and before.op_type in _IMAGES and not before.domain:
            return _into_image(model, node, before, exact)
        rows = _rows(data)
        if rows is None or not _is_along_last(exact, rows.channels, data):
            return 0
        flat = exact.flatten()
        return _into_rows(model, node, rows, Affine(flat, torch.zeros_like(flat)))
    return 0


def _is_own(value: ir.Value, reader: ir.Node) -> bool:
    """Whether one node alone reads a value, which a node of the same graph makes."""
    producer = value.producer()
    return (
        producer is not None
        and producer.graph is reader.graph
        and len(value.uses()) == 1
        and not value.is_graph_output()
    )


def _is_along_last(factor: Tensor, channels: int, data: ir.Value) -> bool:
    """Whether a factor has one number for each element of the last axis, and gives the data no further axis."""
    if factor.dim() > 1 and (data.shape is None or factor.dim() > len(data.shape)):
        return False
    return factor.numel() == factor.shape[-1] == channels


def _into_image(model: ir.Model, node: ir.Node, before: ir.Node, factor: Tensor) -> int:
    weight = content_of(before.inputs[1])
    if weight is None or not is_own_weight(before.inputs[1]) or factor.dim() > weight.dim():
        return 0
    grouped = before.op_type == "ConvTranspose"
    groups = integer(before, "group", 1)
    channels = weight.shape[1] * groups if grouped else weight.shape[0]
    shape = [1] * (weight.dim() - factor.dim()) + list(factor.shape)
    if shape[1] != channels or factor.numel() != channels:
        return 0
    flat = factor.flatten()
    made = new_weights(before, Affine(flat, torch.zeros_like(flat)))
    if made is None:
        return 0
    has_bias = len(before.inputs) > 2 and before.inputs[2] is not None
    for place, tensor in zip((1, 2), made[: 1 + has_bias], strict=False):
        given = before.inputs[place]
        assert given is not None
        before.replace_input_with(place, initializer(model, tensor, f"{given.name}_merged"))
    take_over(node, before)
    return 1


def _norm_of_rows(model: ir.Model, node: ir.Node) -> int:
    """A normalisation of the last axis of a product that has a bias of its own."""
    data = node.inputs[0]
    if data is None or data.shape is None or len(data.shape) != 2 or integer(node, "training_mode", 0):
        return 0
    if len(node.outputs) > 1 or not _is_own(data, node):
        return 0
    rows, affine = _rows(data), of_norm(node)
    if rows is None or affine is None or affine.factor.numel() != rows.channels:
        return 0
    if rows.bias is not None:
        return _into_rows(model, node, rows, affine)
    scale = content_of(node.inputs[1])
    assert scale is not None
    rounded = affine.summand.to(scale.dtype)
    if not holds(rounded, affine.summand) or not _into_matrix(model, rows, affine):
        return 0
    name = "summand" if node.inputs[2] is None else f"{node.inputs[2].name}_merged"
    insert(node, "Add", [data, initializer(model, rounded, name)], {}, [node])
    return 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """A product with a matrix, and where its bias is.

    Attributes:
        product: a MatMul or a Gemm.
        channels: how many columns the matrix gives.
        bias: the node and the place of its input that is added to each row; None where nothing is.
    """

    product: ir.Node
    channels: int
    bias: tuple[ir.Node, int] | None


def _rows(value: ir.Value) -> _Rows | None:
    """The product whose rows are the last axis of a value, with nothing between that others read; None for no such."""
    node, bias, last = value.producer(), None, _last(value)
    data: ir.Value | None
    while node is not None and not node.domain and node.inputs and node.inputs[0] is not None:
        if node.op_type in ("MatMul", "Gemm"):
            return _of_product(node, bias)
        if _keeps_rows(node):
            data = node.inputs[0]
        elif node.op_type == "Add" and bias is None:
            place = next((at for at in (0, 1) if is_own_weight(node.inputs[at])), None)
            summand = None if place is None else content_of(node.inputs[place])
            if place is None or summand is None or summand.dim() != 1 or summand.numel() != last:
                return None
            bias, data = (node, place), node.inputs[1 - place]
        else:
            return None
        if data is None or not _is_own(data, node):
            return None
        node, last = data.producer(), _last(data)
    return None


def _keeps_rows(node: ir.Node) -> bool:
    """Whether a node gives its elements in the same rows."""
    last = _last(node.outputs[0])
    return node.op_type in _NAMING and node.inputs[0] is not None and last is not None and _last(node.inputs[0]) == last


def _last(value: ir.Value) -> int | None:
    """The size of the last axis, where it is a number."""
    size = value.shape[-1] if value.shape is not None and len(value.shape) else None
    return size if isinstance(size, int) else None


def _of_product(node: ir.Node, bias: tuple[ir.Node, int] | None) -> _Rows | None:
    weight = content_of(node.inputs[1])
    if weight is None or weight.dim() != 2 or not is_own_weight(node.inputs[1]):
        return None
    if node.op_type == "MatMul":
        return _Rows(node, weight.shape[1], bias)
    channels = weight.shape[0 if integer(node, "transB", 0) else 1]
    given = node.inputs[2] if len(node.inputs) > 2 else None
    if given is None:
        return _Rows(node, channels, bias)
    own = content_of(given)
    if bias is not None or own is None or own.dim() != 1 or own.numel() != channels:
        return None
    return _Rows(node, channels, (node, 2)) if node.attributes.get_float("beta", 1.0) == 1.0 else None


def _into_rows(model: ir.Model, node: ir.Node, rows: _Rows, affine: Affine) -> int:
    if not _into_matrix(model, rows, affine):
        return 0
    data = next(value for value in node.inputs if value is not None and value.producer() is not None)
    before = data.producer()
    assert before is not None
    take_over(node, before)
    return 1


def _into_matrix(model: ir.Model, rows: _Rows, affine: Affine) -> bool:
    """Gives a product another matrix, and its bias other numbers, where it has one; False where they do not hold it."""
    product, weight = rows.product, content_of(rows.product.inputs[1])
    assert weight is not None
    is_turned = product.op_type == "Gemm" and integer(product, "transB", 0)
    exact = weight.double() * (affine.factor.reshape(-1, 1) if is_turned else affine.factor)
    made = [(product, 1, exact, weight)]
    if rows.bias is not None:
        adding, place = rows.bias
        summand = content_of(adding.inputs[place])
        assert summand is not None
        made.append((adding, place, summand.double() * affine.factor + affine.summand, summand))
    if not all(holds(new.to(old.dtype), new) for _, _, new, old in made):
        return False
    for of, place, new, old in made:
        given = of.inputs[place]
        assert given is not None
        of.replace_input_with(place, initializer(model, new.to(old.dtype), f"{given.name}_merged"))
    return True
