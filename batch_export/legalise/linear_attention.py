"""Causal linear attention, found where a graph spells it out, as LinearAttention of opset 27.

Arrives: a model at opset 27 or later. Leaves: the same model, with LinearAttention where outer products of keys and
values are summed up along the sequence, and each sum is multiplied with a query. The operator has the heads in the last
axis; where they have an axis of their own, they are moved there and back.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.replacing import replace
from batch_export.legalise.rules import attribute, given, known
from batch_export.legalise.writing import Writer

FIRST_OPSET = 27
_ROW, _COLUMN = 4, 3
"""Where a vector has an axis of 1 beside its own: `[batch, heads, steps, size, 1]` or `[..., steps, 1, size]`."""
_LETTERS = "abcde"
_SPELT = frozenset({"CumSum", "Mul", "Unsqueeze", "Reshape", "MatMul", "Einsum"})


def recognise(model: ir.Model) -> int:
    """Puts LinearAttention in, in place; returns how many there are now."""
    nodes = [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type == "CumSum"]
    return sum(map(_rewritten, nodes))


def _rewritten(node: ir.Node) -> bool:
    along = known(given(node, 1))
    if along is None or along.reshape(-1).tolist() not in ([2], [-3]):
        return False
    if attribute(node, "exclusive", 0) or attribute(node, "reverse", 0):
        return False
    vectors, found = _outer(given(node, 0)), _queried(node.outputs[0])
    if vectors is None or found is None:
        return False
    (key, value), (query, last) = vectors, found
    heads, sizes = _heads(query, key, value)
    if not heads or last.graph is not node.graph:
        return False
    op = Writer()
    flat = [
        op.Reshape(op.Transpose(one, perm=[0, 2, 1, 3]), op.number([0, 0, heads * size]))
        for one, size in zip((query, key, value), sizes, strict=True)
    ]
    options = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "linear", "scale": 1.0}
    made, state = op.several("LinearAttention", flat, 2, **options)
    made.type, state.type = value.type, value.type
    assert value.shape is not None
    state.shape = ir.Shape([value.shape[0], heads, *sizes[1:]])
    result = op.Transpose(op.Reshape(made, op.number([0, 0, heads, sizes[2]])), perm=[0, 2, 1, 3])
    before = [None if one is None else one.producer() for one in last.inputs]
    replace(last, op.nodes, [result])
    for one in before:
        _drop(one)
    return True


def _drop(node: ir.Node | None) -> None:
    """Removes a node of those that spelt it out, and what then nothing reads."""
    if node is None or node.graph is None or node.op_type not in _SPELT:
        return
    if any(one.uses() or one.is_graph_output() for one in node.outputs):
        return
    before = [None if value is None else value.producer() for value in node.inputs]
    node.graph.remove(node, safe=True)
    for maker in before:
        _drop(maker)


def _outer(value: ir.Value | None) -> tuple[ir.Value, ir.Value] | None:
    """The keys and values of which a value is the outer products."""
    node = _maker(value, "Mul", "Einsum")
    if node is None or _user(node.outputs[0], "CumSum") is None or len(node.inputs) != 2:
        return None
    for at in (0, 1):
        one, other = node.inputs[at], node.inputs[1 - at]
        if node.op_type == "Mul":
            one, other = _spread(one, _ROW), _spread(other, _COLUMN)
        elif not _is_einsum(node, at, "abcd", "abce", "abcde"):
            continue
        if one is not None and other is not None:
            return one, other
    return None


def _is_einsum(node: ir.Node, at: int, first: str, second: str, result: str) -> bool:
    """Whether a node with the first term at one of its places is that Einsum, whatever its letters are."""
    terms, arrow, made = str(attribute(node, "equation", "")).replace(" ", "").partition("->")
    given_terms = terms.split(",")
    if not arrow or len(given_terms) != 2:
        return False
    names = made if len(made) == len(_LETTERS) else given_terms[1 - at]
    if len(names) != len(_LETTERS) or len(set(names)) != len(names):
        return False
    table = str.maketrans(_LETTERS, names)
    wanted = [one.translate(table) for one in (first, second, result)]
    return [given_terms[at], given_terms[1 - at], made] == wanted


def _maker(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    return node if node is not None and not node.domain and node.op_type in op_types else None


def _user(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The node that alone reads a value."""
    uses = [use.node for use in value.uses()]
    if len(uses) != 1 or value.is_graph_output() or uses[0].domain or uses[0].op_type not in op_types:
        return None
    return uses[0]


def _spread(value: ir.Value | None, place: int) -> ir.Value | None:
    """The `[batch, heads, steps, size]` that a value of five axes is, with an axis of 1 at the place."""
    node = _maker(value, "Unsqueeze", "Reshape")
    before = None if node is None else node.inputs[0]
    if node is None or before is None or before.shape is None or len(before.shape) != 4:
        return None
    if node.op_type == "Unsqueeze":
        at = known(given(node, 1))
        return before if at is not None and at.reshape(-1).tolist() in ([place], [place - 5]) else None
    wanted: list[object] = [*before.shape]
    wanted.insert(place, 1)
    shape = node.outputs[0].shape
    return before if shape is not None and [*shape] == wanted and _one_free(before) else None


def _one_free(value: ir.Value) -> bool:
    """Whether a Reshape to the same sizes and one more of 1 keeps the elements where they are, which names tell."""
    return value.shape is not None and all(isinstance(one, int) or one.value is not None for one in value.shape)


def _queried(sums: ir.Value) -> tuple[ir.Value, ir.Node] | None:
    """The query that the sums are multiplied with, and the node that gives `[batch, heads, steps, size]`."""
    product = _user(sums, "MatMul", "Mul", "Einsum")
    if product is None:
        return None
    if product.op_type == "Einsum":
        at = 1 if product.inputs[0] is sums else 0
        query = product.inputs[at]
        fits = query is not None and _is_einsum(product, at, "abcd", "abcde", "abce")
        return (query, product) if fits and query is not None else None
    if product.op_type == "MatMul":
        query = _spread(product.inputs[0], _COLUMN) if product.inputs[1] is sums else None
        last = _user(product.outputs[0], "Squeeze", "Reshape")
        if query is None or last is None or not _drops(last, _COLUMN):
            return None
        return query, last
    other = product.inputs[0] if product.inputs[1] is sums else product.inputs[1]
    query, last = _spread(other, _ROW), _user(product.outputs[0], "ReduceSum")
    if query is None or last is None or attribute(last, "keepdims", 1):
        return None
    axes = known(given(last, 1))
    return (query, last) if axes is not None and axes.reshape(-1).tolist() in ([3], [-2]) else None


def _drops(node: ir.Node, place: int) -> bool:
    """Whether a node takes an axis of 1 away, and nothing else."""
    if node.op_type == "Squeeze":
        at = known(given(node, 1))
        return at is not None and at.reshape(-1).tolist() in ([place], [place - 5])
    before, after = node.inputs[0], node.outputs[0]
    if before is None or before.shape is None or after.shape is None or len(before.shape) != 5:
        return False
    wanted = [*before.shape]
    return wanted.pop(place) == 1 and wanted == [*after.shape] and _one_free(after)


def _heads(query: ir.Value, key: ir.Value, value: ir.Value) -> tuple[int, list[int]]:
    """How many heads there are and the sizes of query, key and value; no heads where the operator does not fit."""
    shapes = [list(one.shape or ()) for one in (query, key, value)]
    if any(len(shape) != 4 or shape[:3] != shapes[0][:3] for shape in shapes):
        return 0, []
    if any(one.dtype != ir.DataType.FLOAT for one in (query, key, value)):
        return 0, []
    heads, sizes = shapes[0][1], [shape[3] for shape in shapes]
    named = all(isinstance(one, int) or one.value is not None for one in shapes[0][:3])
    if not named or not isinstance(heads, int) or sizes[0] != sizes[1]:
        return 0, []
    numbers = [size for size in sizes if isinstance(size, int)]
    return (heads, numbers) if heads and len(numbers) == len(sizes) and all(numbers) else (0, [])
