"""Sizes that are known by name: the same sizes are computed once, and what keeps a size copies it.

Arrives: an `onnx_ir.Model` whose values know the names of their axes. Leaves: the same model, changed in place. Values
that hold the same sizes become one; a Reshape that keeps axes in their places copies them (a 0 in a constant shape)
instead of being told them; an Expand that keeps axes asks for 1 there, or goes where what reads it repeats by itself; a
Slice of whole axes goes; and of several steps that only name other axes the last remains. Axes of one name are taken
for equally large: whoever knows of axes that only may be gives them names of their own first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise.edits import constant, known
from batch_export.exporter.optimise.needless_sizes import (
    BROADCASTING,
    Content,
    Shape,
    Size,
    negated,
    repeats_for_nothing,
    takes_all,
)
from batch_export.legalise.nested import graphs_of

_MOST = 64
_HOLDING = frozenset({"Shape", "Size", "Concat", "Squeeze", "Unsqueeze", "Reshape", "Gather", "Neg"})
"""Operators whose results may be sizes."""


def simplify(model: ir.Model) -> int:
    """Rewrites in place; returns how many nodes became shorter or went."""
    return sum(_Sizes(model, graph).run() for graph in graphs_of(model.graph))


def _named(shape: Sequence[Any] | ir.Shape | None) -> Shape | None:
    """The sizes of a shape: numbers, names, None for one that is unknown."""
    return None if shape is None else tuple(size if isinstance(size, int) else size.value for size in shape)


class _Sizes:
    """One graph, or one body: a body's names may mean another size at each turn, so nothing is shared with others."""

    def __init__(self, model: ir.Model, graph: ir.Graph) -> None:
        self._model = model
        self._graph = graph
        self._contents: dict[ir.Value, Content] = {}
        self._first: dict[Content, ir.Value] = {}
        self._shapes: dict[ir.Value, Shape] = {}

    def run(self) -> int:
        changes = 0
        for node in list(self._graph):
            if node.domain:
                continue
            kind = node.op_type
            if kind in BROADCASTING:
                self._join(node)
                continue
            if kind in ("Unsqueeze", "Squeeze"):
                self._follow(node)
            elif kind == "Reshape":
                changes += self._reshape(node)
            elif kind == "Expand":
                changes += self._expand(node) or self._repeat(node)
            elif kind == "Slice":
                changes += self._slice(node)
            content = self._computed(node) if kind in _HOLDING else None
            if content is not None:
                changes += self._shared(node.outputs[0], content)
        return changes

    # What a value's shape is.

    def _shape(self, value: ir.Value | None) -> Shape | None:
        """The shape of a value, by what it says of itself or by what made it."""
        if value is None:
            return None
        sizes = _named(value.shape)
        return self._shapes.get(value) if sizes is None else sizes

    def _follow(self, node: ir.Node) -> None:
        """Remembers the shape of an output that says nothing of itself."""
        sizes, axes = self._shape(node.inputs[0]), known(node.inputs[1]) if len(node.inputs) > 1 else None
        if sizes is None or axes is None or self._shape(node.outputs[0]) is not None:
            return
        left = list(sizes)
        count = len(left) + (axes.size if node.op_type == "Unsqueeze" else 0)
        places = sorted(int(axis) % count for axis in axes.reshape(-1).tolist())
        if node.op_type == "Unsqueeze":
            for place in places:
                left.insert(place, 1)
        else:
            left = [size for place, size in enumerate(left) if place not in places]
        self._shapes[node.outputs[0]] = tuple(left)

    def _join(self, node: ir.Node) -> None:
        """Remembers the shape to which the inputs are repeated, of an output that says nothing of itself."""
        if self._shape(node.outputs[0]) is not None:
            return
        shapes = [shape for value in node.inputs if (shape := self._shape(value)) is not None]
        if len(shapes) != len(node.inputs):
            return
        joined: Shape | None = ()
        for shape in sorted(shapes, key=len):
            joined = None if joined is None else _expanded(joined, shape)
        if joined is not None:
            self._shapes[node.outputs[0]] = joined

    # What a value holds.

    def _content(self, value: ir.Value | None) -> Content | None:
        if value is None:
            return None
        if value in self._contents:
            return self._contents[value]
        array = known(value)
        if array is None or array.dtype != np.int64 or array.ndim > 1 or array.size > _MOST:
            return None
        return array.ndim == 0, tuple(array.reshape(-1).tolist())

    def _computed(self, node: ir.Node) -> Content | None:
        """The sizes that a node's output holds."""
        if node.op_type == "Shape":
            sizes = self._shape(node.inputs[0])
            if sizes is None:
                return None
            first, last = (node.attributes.get_int(name, default) for name, default in (("start", 0), ("end", None)))
            taken = _whole(sizes[first:last])
            return None if taken is None else (False, taken)
        if node.op_type == "Size":
            sizes = self._shape(node.inputs[0])
            whole = None if sizes is None else _whole(sizes)
            return None if whole is None else (True, (f"elements of {whole}",))
        if node.op_type == "Concat":
            parts = [self._content(value) for value in node.inputs]
            if any(part is None or part[0] for part in parts):
                return None
            joined = tuple(size for part in parts if part is not None for size in part[1])
            return (False, joined) if len(joined) <= _MOST else None
        if node.op_type not in ("Squeeze", "Unsqueeze", "Reshape", "Gather", "Neg") or not node.inputs:
            return None
        content = self._content(node.inputs[0])
        if content is None:
            return None
        if node.op_type == "Neg":
            return content[0], tuple(map(negated, content[1]))
        if node.op_type == "Gather":
            return self._gathered(node, content)
        if len(content[1]) != 1:
            return None
        asked = known(node.inputs[1]) if len(node.inputs) > 1 else None
        if node.op_type == "Squeeze":
            return None if content[0] else (True, content[1])
        if asked is None:
            return None
        if node.op_type == "Unsqueeze":
            return (False, content[1]) if content[0] and asked.size == 1 else None
        return (asked.size == 0, content[1]) if asked.tolist() in ([], [1], [-1]) else None

    @staticmethod
    def _gathered(node: ir.Node, content: Content) -> Content | None:
        places = known(node.inputs[1])
        is_scalar, sizes = content
        if is_scalar or places is None or places.ndim > 1 or node.attributes.get_int("axis", 0) not in (0, -1):
            return None
        if not all(-len(sizes) <= place < len(sizes) for place in places.reshape(-1).tolist()):
            return None
        return places.ndim == 0, tuple(sizes[place] for place in places.reshape(-1).tolist())

    def _shared(self, value: ir.Value, content: Content) -> int:
        """Puts an earlier value of the same sizes, or a constant, in a value's place."""
        self._contents[value] = content
        if value.is_graph_output() or value.dtype not in (None, ir.DataType.INT64):
            return 0
        producer = value.producer()
        of_input = producer is not None and producer.op_type in ("Shape", "Size") and _is_input(producer.inputs[0])
        if all(isinstance(size, int) for size in content[1]):
            array = np.asarray(content[1], dtype=np.int64)
            other = constant(self._model, array.reshape(()) if content[0] else array, "sizes")
        else:
            other = self._first.setdefault(content, value)
        if other is value or of_input:
            return 0
        ir.convenience.replace_all_uses_with(value, other)
        return 1

    # Who is told them.

    def _wanted(self, node: ir.Node) -> tuple[Size, ...] | None:
        """The shape of a node's output, as far as it is known: by its own shape, or by the sizes that it is given."""
        sizes = self._shape(node.outputs[0])
        whole = None if sizes is None else _whole(sizes)
        if whole is not None:
            return whole
        content = self._content(node.inputs[1])
        if content is None or content[0] or any(isinstance(size, int) and size < 0 for size in content[1]):
            return None
        if node.op_type == "Reshape" and 0 in content[1] and not node.attributes.get_int("allowzero", 0):
            return None
        return content[1]

    def _reshape(self, node: ir.Node) -> int:
        """Axes that stay in their places are copied; no size is left to be found out where a copied one may be 0."""
        wanted, told = self._wanted(node), known(node.inputs[1])
        if wanted is None:
            return 0
        self._shapes[node.outputs[0]] = wanted
        for given in (_before(node.inputs[0]), node.inputs[0]):
            have = self._shape(given)
            if given is None or have is None:
                continue
            if have == wanted and not node.outputs[0].is_graph_output():
                ir.convenience.replace_all_uses_with(node.outputs[0], given)
                return 1
            if told is not None and given is node.inputs[0]:
                continue
            shape = _copying(have, wanted)
            if shape is not None:
                node.replace_input_with(0, given)
                node.attributes.pop("allowzero", None)
                return self._told(node, shape)
        return 0

    def _expand(self, node: ir.Node) -> int:
        """Axes that are not repeated are asked for as 1."""
        given, wanted = node.inputs[0], self._wanted(node)
        have = self._shape(given)
        if given is None or have is None or wanted is None or len(wanted) < len(have):
            return 0
        made = _expanded(have, wanted)
        if made is not None:
            self._shapes[node.outputs[0]] = made
        if have == made and not node.outputs[0].is_graph_output():
            ir.convenience.replace_all_uses_with(node.outputs[0], given)
            return 1
        behind = len(wanted) - len(have)
        shape = [1 if place >= behind and have[place - behind] == size else size for place, size in enumerate(wanted)]
        numbers = [size for size in shape if isinstance(size, int)]
        if len(numbers) != len(shape) or known(node.inputs[1]) is not None:
            return 0
        return self._told(node, numbers)

    def _repeat(self, node: ir.Node) -> int:
        """What reads the Expand repeats its data by itself."""
        others = {value for user, _ in node.outputs[0].uses() for value in user.inputs if value is not None}
        shapes = {value: self._shape(value) for value in (node.outputs[0], *others)}
        if node.inputs[0] is None or not repeats_for_nothing(node, shapes):
            return 0
        ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
        return 1

    def _slice(self, node: ir.Node) -> int:
        """Every element is taken, and the result says so: an input's name alone may hold at one of two inputs only."""
        data, told = node.inputs[0], [self._content(value) for value in node.inputs[1:]]
        have = self._shape(data)
        if data is None or node.outputs[0].is_graph_output() or not takes_all(have, told):
            return 0
        if _is_input(data) and self._shape(node.outputs[0]) != have:
            return 0
        ir.convenience.replace_all_uses_with(node.outputs[0], data)
        return 1

    def _told(self, node: ir.Node, shape: Sequence[int]) -> int:
        node.replace_input_with(1, constant(self._model, np.asarray(shape, dtype=np.int64), "sizes"))
        return 1


def _whole(sizes: Shape) -> tuple[Size, ...] | None:
    """Sizes of which none is unknown."""
    known_ones = tuple(size for size in sizes if size is not None)
    return known_ones if len(known_ones) == len(sizes) else None


def _copying(have: Shape, wanted: Sequence[Size]) -> list[int] | None:
    """What a Reshape from one shape to another is told: 0 for a size that is copied, -1 for the only one left."""
    shape: list[int] = []
    for place, size in enumerate(wanted):
        if isinstance(size, int):
            shape.append(size)
        elif place < len(have) and have[place] == size:
            shape.append(0)
        else:
            shape.append(-1)
    if 0 in wanted or shape.count(-1) > (0 if 0 in shape else 1):
        return None
    return shape


def _expanded(have: Shape, asked: Shape) -> Shape | None:
    """The shape of an Expand: a size of 1 on one side takes that of the other; None where names decide at run time."""
    behind = len(asked) - len(have)
    made: list[Size] = []
    for own, other in zip((*[1] * behind, *have), asked, strict=True):
        fixed = [size for size in (own, other) if isinstance(size, int) and size != 1]
        if own == other or other == 1:
            size = own
        elif own == 1:
            size = other
        else:
            size = fixed[0] if fixed else None
        if size is None:
            return None
        made.append(size)
    return tuple(made)


_NAMING = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")


def _before(value: ir.Value | None) -> ir.Value | None:
    """The value that holds the same elements in order, before steps that only name other axes; None for no such."""
    found = value
    while found is not None and (node := found.producer()) is not None:
        if node.domain or node.op_type not in _NAMING:
            break
        found = node.inputs[0]
    return None if found is value else found


def _is_input(value: ir.Value | None) -> bool:
    """Whether a value comes from outside, where nobody holds two axes of one name to their name."""
    return value is not None and value.producer() is None
