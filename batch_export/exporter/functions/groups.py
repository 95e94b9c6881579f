"""The nodes of one call of a module as a thing of their own: what goes in, what comes out, and what makes two the same.

Arrives: nodes of a graph, in order. Leaves: a `Group` with a key. Groups of one key do the same: operators, attributes,
bodies and small constants agree, and so do dtypes and axes of what goes in. Weights, and other values from outside, go
in. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from batch_export.exporter.functions.calls import within
from batch_export.exporter.graph import metadata, weights

_SMALL_ELEMENTS = 16
"""Up to so many elements a constant is written in the function itself, and part of what it is."""
_INPUT_KIND = metadata.KIND.format(side="Input")


@dataclass(slots=True)
class Group:
    """The nodes of one call.

    Attributes:
        nodes: of the main graph, in order.
        key: equal for groups that one function may stand for.
        given: values from outside, in the order in which they are read.
        constants: small constants, likewise.
        left: the outputs, as (number of the node, number of its output), that are read outside.
    """

    nodes: list[ir.Node]
    key: Hashable = None
    given: list[ir.Value] = field(default_factory=list)
    constants: list[ir.Value] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)

    @property
    def own(self) -> set[ir.Node]:
        """Its nodes, those in bodies included."""
        return {one for node in self.nodes for one in (node, *within(node))}


def group_of(nodes: Sequence[ir.Node]) -> Group:
    """The group of some nodes of a graph, which are in order."""
    group = Group(list(nodes))
    own = group.own
    places = {value: (at, number) for at, node in enumerate(nodes) for number, value in enumerate(node.outputs)}
    group.left = [
        place
        for value, place in places.items()
        if value.is_graph_output() or any(user not in own for user, _ in value.uses())
    ]
    reading = _Reading(group, {value: ("own", *place) for value, place in places.items()})
    described = tuple(reading.node(node) for node in nodes)
    group.key = (described, tuple(map(_facts, group.given)))
    return group


def is_weight(value: ir.Value) -> bool:
    """Whether a value is an initializer of the model that goes into functions."""
    return value.producer() is None and value.is_initializer()


def is_parameter(value: ir.Value) -> bool:
    """Whether a value is a parameter of the module that was exported."""
    return value.metadata_props.get(_INPUT_KIND) == "PARAMETER"


def is_small_constant(value: ir.Value) -> bool:
    """Whether a value is a constant that a function has in itself."""
    tensor = value.const_value
    return (
        tensor is not None
        and is_weight(value)
        and not value.is_graph_input()
        and not value.is_graph_output()
        and _INPUT_KIND not in value.metadata_props
        and not weights.is_torch_tensor(value)
        and tensor.size <= _SMALL_ELEMENTS
    )


def common_shape(shapes: Sequence[ir.Shape | None]) -> ir.Shape | None:
    """What calls agree in of a value's shape; other axes have no name."""
    first = shapes[0]
    if first is None or any(one is None or len(one) != len(first) for one in shapes):
        return None
    axes = zip(*(one.dims for one in shapes if one is not None), strict=True)
    return ir.Shape([sizes[0] if all(size == sizes[0] for size in sizes) else None for sizes in axes])


def _facts(value: ir.Value) -> Hashable:
    sizes = None if value.shape is None else tuple(str(getattr(size, "value", size)) for size in value.shape.dims)
    return (str(value.type), sizes, value.producer() is None and value.const_value is not None)


def _content(tensor: ir.TensorProtocol) -> Hashable:
    sizes = tuple(tensor.shape.numpy())
    if tensor.dtype == ir.DataType.STRING:
        return (tensor.dtype, sizes, tuple(tensor.numpy().ravel().tolist()))
    return (tensor.dtype, sizes, tensor.tobytes())


class _Reading:
    """Describes nodes by what they do, and notes what they read from outside."""

    def __init__(self, group: Group, known: Mapping[ir.Value, Hashable]) -> None:
        self._group = group
        self._known: dict[ir.Value, Hashable] = dict(known)
        self._bodies = 0

    def node(self, node: ir.Node) -> Hashable:
        read = tuple(None if value is None else self._value(value) for value in node.inputs)
        attributes = tuple(sorted((name, self._attribute(one)) for name, one in node.attributes.items()))
        return (node.op_identifier(), read, attributes, len(node.outputs))

    def _value(self, value: ir.Value) -> Hashable:
        if value not in self._known:
            if is_small_constant(value):
                self._group.constants.append(value)
                assert value.const_value is not None
                self._known[value] = ("constant", _content(value.const_value))
            else:
                self._known[value] = ("given", len(self._group.given))
                self._group.given.append(value)
        return self._known[value]

    def _attribute(self, attribute: ir.Attr) -> str:
        """An attribute as a text: those of one operator are put in order by it."""
        if attribute.type == ir.AttributeType.GRAPH:
            return repr(self._body(attribute.value))
        if attribute.type == ir.AttributeType.GRAPHS:
            return repr([self._body(one) for one in attribute.value])
        if attribute.type == ir.AttributeType.TENSOR:
            return repr(_content(attribute.value))
        return repr((attribute.type, attribute.value))

    def _body(self, body: ir.Graph) -> Hashable:
        self._bodies += 1
        number = self._bodies
        made = [*body.inputs, *(value for node in body for value in node.outputs)]
        self._known.update((value, ("body", number, at)) for at, value in enumerate(made))
        for value in body.initializers.values():
            if value not in self._known and value.const_value is not None:
                self._known[value] = ("constant", _content(value.const_value))
        nodes = tuple(self.node(node) for node in body)
        return (len(body.inputs), nodes, tuple(self._value(value) for value in body.outputs))
