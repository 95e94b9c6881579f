"""Models as the bytes of a file: those that onnx-ir's protobuf objects give, in a fraction of their time.

Arrives: a model. Leaves: bytes, to the last one what `ir.to_proto(model).SerializeToString()` makes. Copies of a block
share attributes, types, shapes and most of their texts: each is written once, and its bytes are taken again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir import serde

_GRAPH = 7
"""The number of the field of a model that holds its graph."""
_IS_OUTSIDE = b"\x70\x01"
"""Of a tensor whose content is in another file."""
_QUANTISATION = "quant_parameter_tensor_names"
"""Under which onnx-ir notes it for a value."""


class _RareError(Exception):
    """A model has what onnx-ir alone writes."""


class _Lengths(dict[int, bytes]):
    """Lengths as protobuf has them: seven bits a byte, the lowest first."""

    def __missing__(self, number: int) -> bytes:
        made, rest = bytearray(), number
        while rest > 127:
            made.append(rest & 127 | 128)
            rest >>= 7
        made.append(rest)
        found = bytes(made)
        if number < 1 << 14:
            self[number] = found
        return found


_LENGTHS = _Lengths()


class _Texts(dict[str, bytes]):
    """Texts as bytes and, before them, their length."""

    def __missing__(self, text: str) -> bytes:
        if text is None:
            raise _RareError  # a value without a name, of which onnx-ir says which it is
        content = text.encode()
        found = self[text] = _LENGTHS[len(content)] + content
        return found


class _Entries(dict[tuple[str, str], bytes]):
    """Pairs of a key and a text as bytes and, before them, their length; copies of a block have many in common."""

    def __init__(self, texts: _Texts) -> None:
        self._texts = texts

    def __missing__(self, pair: tuple[str, str]) -> bytes:
        key, text = pair
        content = b"\x0a" + self._texts[key] + b"\x12" + self._texts[text]
        found = self[pair] = _LENGTHS[len(content)] + content
        return found


def serialised(model: ir.Model) -> bytes:
    """The bytes of a model's file; functions and what is rarer are onnx-ir's to write."""
    try:
        return _serialised(model)
    except _RareError:
        made: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
        return made


def _serialised(model: ir.Model) -> bytes:
    """NOTE: fields are in the order of their numbers, as protobuf writes them."""
    if model.functions or model.device_configurations:
        raise _RareError
    graph = model.graph
    content = _Writer().graph(graph)
    empty = ir.Model(
        ir.Graph([], [], nodes=[], opset_imports=dict(graph.opset_imports)),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        metadata_props=dict(model.metadata_props),
    )
    before, after = serde.serialize_model(empty), serde.serialize_model(empty)
    for field in before.DESCRIPTOR.fields:
        if field.number >= _GRAPH:
            before.ClearField(field.name)
        if field.number <= _GRAPH:
            after.ClearField(field.name)
    length = _LENGTHS[len(content)]
    return b"".join((before.SerializeToString(), b"\x3a", length, content, after.SerializeToString()))


class _Writer:
    """What was written of one model: what its parts share is the same object, and is kept alive by the model."""

    def __init__(self) -> None:
        self._texts = _Texts()
        self._entries = _Entries(self._texts)
        self._attributes: dict[int, bytes] = {}
        self._types: dict[tuple[int, int], bytes] = {}
        self._alike: dict[Any, bytes] = {}
        self._kinds: dict[tuple[ir.DataType, tuple[int, ...]], bytes] = {}

    def graph(self, graph: ir.Graph) -> bytes:
        texts, inputs = self._texts, {value.name for value in graph.inputs}
        tensors: list[bytes] = []
        told: list[bytes] = []
        for value in graph.initializers.values():
            if value.name not in inputs:
                self._tell(value, told)
            if value.const_value is None:
                raise _RareError
            value.const_value.name = value.name
            content = self._tensor(value.const_value)
            tensors += b"\x2a", _LENGTHS[len(content)], content
        parts: list[bytes] = []
        for node in graph:
            content = self._node(node)
            parts += b"\x0a", _LENGTHS[len(content)], content
            for value in node.outputs:
                if not value.is_graph_output():
                    self._tell(value, told)
        if graph.name:
            parts += b"\x12", texts[graph.name]
        parts += tensors
        if graph.doc_string:
            parts += b"\x52", texts[graph.doc_string]
        for tag, values in ((b"\x5a", graph.inputs), (b"\x62", graph.outputs)):
            for value in values:
                content = self._value(value)
                parts += tag, _LENGTHS[len(content)], content
        parts += told
        for pair in sorted(graph.metadata_props.items()):
            parts += b"\x82\x01", self._entries[pair]
        return b"".join(parts)

    def _tell(self, value: ir.Value, told: list[bytes]) -> None:
        """Adds what is known of a value, where it has a name and anything is known of it."""
        if value.name and (
            value.shape is not None or value.type is not None or value.metadata_props or value.doc_string
        ):
            content = self._value(value)
            told += b"\x6a", _LENGTHS[len(content)], content

    def _node(self, node: ir.Node) -> bytes:
        if node.device_configurations:
            raise _RareError
        texts, attributes = self._texts, self._attributes
        parts: list[bytes] = []
        for value in node.inputs:
            parts += b"\x0a", b"\x00" if value is None else texts[value.name]  # type: ignore[index]
        outputs: Iterable[ir.Value] = node.outputs
        if node.outputs and not node.outputs[-1].name:  # those at the end that nobody named are left out
            outputs = list(itertools.dropwhile(lambda value: not value.name, reversed(node.outputs)))[::-1]
        for value in outputs:
            parts += b"\x12", texts[value.name]  # type: ignore[index]
        if node.name:
            parts += b"\x1a", texts[node.name]
        parts += b"\x22", texts[node.op_type]
        for attribute in node.attributes.values():
            found = attributes.get(id(attribute))
            if found is None:
                written: Any = serde.serialize_attribute(attribute)
                content = written.SerializeToString()
                found = attributes[id(attribute)] = b"\x2a" + _LENGTHS[len(content)] + content
            parts.append(found)
        if node.doc_string:
            parts += b"\x32", texts[node.doc_string]
        if node.domain:
            parts += b"\x3a", texts[node.domain]
        if node.overload:
            parts += b"\x42", texts[node.overload]
        for pair in sorted(node.metadata_props.items()):
            parts += b"\x4a", self._entries[pair]
        return b"".join(parts)

    def _value(self, value: ir.Value) -> bytes:
        if getattr(value, "_metadata", value) and _QUANTISATION in value.meta:
            raise _RareError  # a field of the graph
        kind = (id(value.type), id(value.shape))
        found = self._types.get(kind)
        if found is None:
            found = self._types[kind] = self._type(value.type, value.shape)
        parts = [b"\x0a", self._texts[value.name], found]  # type: ignore[index]
        if value.doc_string:
            parts += b"\x1a", self._texts[value.doc_string]
        for pair in sorted(value.metadata_props.items()):
            parts += b"\x22", self._entries[pair]
        return b"".join(parts)

    def _type(self, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> bytes:
        sizes = None if shape is None else tuple((size, shape.get_denotation(at)) for at, size in enumerate(shape))
        known = (type(kind), kind, sizes)
        found = self._alike.get(known)
        if found is None:
            written: Any = serde.serialize_value(ir.Value(name="", type=kind, shape=shape))
            written.ClearField("name")
            found = self._alike[known] = written.SerializeToString()
        return found

    def _tensor(self, tensor: ir.TensorProtocol) -> bytes:
        made: Any
        if not isinstance(tensor, ir.ExternalTensor) or tensor.doc_string or tensor.metadata_props:
            made = serde.serialize_tensor(tensor)
            return bytes(made.SerializeToString())
        kind = (tensor.dtype, tensor.shape.numpy())
        found = self._kinds.get(kind)
        if found is None:
            made = onnx.TensorProto(data_type=tensor.dtype.value, dims=kind[1])
            found = self._kinds[kind] = made.SerializeToString()
        parts = [found, b"\x42", self._texts[tensor.name]]
        places = ("location", os.fspath(tensor.location)), ("offset", tensor.offset), ("length", tensor.length)
        for key, place in places:
            if place is not None:
                parts += b"\x6a", self._entries[key, str(place)]
        parts.append(_IS_OUTSIDE)
        return b"".join(parts)
