"""A model as the bytes of a file: those of onnx-ir's protobuf message, without an object for each of its parts.

Arrives: a model. Leaves: the bytes that `ir.to_proto(model).SerializeToString()` gives. Copies of a block share types,
shapes and attributes, and many nodes say the same of where they come from: each of these is encoded once. Tensors,
bodies and graph-wide parts are encoded by protobuf; a model with functions or other rare parts is, as a whole.

Fields are written in the order of their numbers (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
import onnx_ir as ir

_QUANTISED = "quant_parameter_tensor_names"
"""What onnx-ir calls a note that becomes a part of the graph."""
_ENCODED_OTHERWISE = (ir.ExternalTensor, ir.StringTensor, ir.TensorProtoTensor)
"""Tensors that have no bytes of their own, or a message."""


class _RareError(Exception):
    """Why protobuf encodes the whole model."""


def file_bytes(model: ir.Model) -> bytes:
    """The bytes of a file that holds a model."""
    if model.functions or model.device_configurations:
        return _by_protobuf(model)
    try:
        graph = _Encoding().graph(model.graph)
    except _RareError:
        return _by_protobuf(model)
    around = ir.Model(
        ir.Graph([], [], nodes=[], opset_imports=dict(model.graph.opset_imports)),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        metadata_props=dict(model.metadata_props),
    )
    return _with(ir.to_proto(around), "graph", [b"\x3a", _length(sum(map(len, graph))), *graph])


def _by_protobuf(model: ir.Model) -> bytes:
    return bytes(ir.to_proto(model).SerializeToString())


def _with(message: onnx.ModelProto, field: str, parts: Iterable[bytes]) -> bytes:
    """A message with other parts in the place of one field."""
    fields: Any = message.DESCRIPTOR.fields_by_name
    place = fields[field].number
    before, after = onnx.ModelProto(), onnx.ModelProto()
    before.CopyFrom(message)
    after.CopyFrom(message)
    for name, one in fields.items():
        if one.number >= place:
            before.ClearField(name)
        if one.number <= place:
            after.ClearField(name)
    return b"".join((before.SerializeToString(), *parts, after.SerializeToString()))


def _length(number: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    if number < 128:
        return _SHORT[number]
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_SHORT = [bytes((number,)) for number in range(128)]


class _Texts(dict[str | None, bytes]):
    """Text -> its bytes behind their number."""

    def __missing__(self, text: str | None) -> bytes:
        if text is None:
            raise _RareError  # a value without a name: protobuf says what is wrong
        data = text.encode()
        made = self[text] = _length(len(data)) + data
        return made


class _Notes(dict[str, bytes]):
    """Text -> the entry of a map of texts that has it under one key."""

    def __init__(self, key: str, tag: bytes) -> None:
        self._key, self._tag = _sized(key.encode()), tag

    def __missing__(self, text: str) -> bytes:
        entry = b"".join((b"\x0a", self._key, b"\x12", _sized(text.encode())))
        made = self[text] = self._tag + _sized(entry)
        return made


class _NotesOf(dict[str, _Notes]):
    """Key -> its entries, in the field of one tag."""

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._in_order: dict[tuple[str, ...], list[tuple[str, _Notes]]] = {}

    def __missing__(self, key: str) -> _Notes:
        made = self[key] = _Notes(key, self._tag)
        return made

    def of(self, notes: Mapping[str, str]) -> list[bytes]:
        """The entries for some notes."""
        keys = tuple(notes)
        ordered = self._in_order.get(keys)
        if ordered is None:
            ordered = self._in_order[keys] = [(key, self[key]) for key in sorted(keys)]
        return [entries[notes[key]] for key, entries in ordered]


def _sized(data: bytes) -> bytes:
    return _length(len(data)) + data


class _Encoding:
    """The bytes of one graph's parts, each kind in a list of its own."""

    def __init__(self) -> None:
        self._texts = _Texts()
        self._of_nodes, self._of_values, self._of_graph = map(_NotesOf, (b"\x4a", b"\x22", b"\x82\x01"))
        self._types: dict[tuple[int, int], tuple[object, bytes]] = {}
        self._attributes: dict[int, tuple[object, bytes]] = {}

    def graph(self, graph: ir.Graph) -> list[bytes]:
        """All parts of a graph, in order."""
        texts = self._texts
        nodes: list[bytes] = []
        tensors: list[bytes] = []
        known: list[bytes] = []
        for value in graph.inputs:
            self._require_plain(value)
        inputs = {value.name for value in graph.inputs}
        for value in graph.initializers.values():
            self._require_plain(value)
            if value.name not in inputs and _is_known(value):
                known += (b"\x6a", self._value(value))
            if value.const_value is None:
                raise _RareError
            value.const_value.name = value.name
            parts = self._tensor(value.const_value)
            tensors += (b"\x2a", _length(sum(map(len, parts))), *parts)
        for node in graph:
            nodes += (b"\x0a", self._node(node))
            for value in node.outputs:
                self._require_plain(value)
                if not value.is_graph_output() and _is_known(value):
                    known += (b"\x6a", self._value(value))
        name = [b"\x12", texts[graph.name]] if graph.name else []
        doc = [b"\x52", texts[graph.doc_string]] if graph.doc_string else []
        given = [part for value in graph.inputs for part in (b"\x5a", self._value(value))]
        results = [part for value in graph.outputs for part in (b"\x62", self._value(value))]
        notes = self._of_graph.of(graph.metadata_props)
        return [*nodes, *name, *tensors, *doc, *given, *results, *known, *notes]

    def _node(self, node: ir.Node) -> bytes:
        if node.device_configurations:
            raise _RareError
        texts = self._texts
        parts: list[bytes] = []
        for read in node.inputs:
            parts += (b"\x0a", texts["" if read is None else read.name])
        names = [value.name for value in node.outputs]
        while names and not names[-1]:
            names.pop()
        for name in names:
            parts += (b"\x12", texts[name])
        if own := node.name:
            parts += (b"\x1a", texts[own])
        parts += (b"\x22", texts[node.op_type])
        parts += [self._attribute(one) for one in node.attributes.data.values()]
        if node.doc_string:
            parts += (b"\x32", texts[node.doc_string])
        if domain := node.domain:
            parts += (b"\x3a", texts[domain])
        if node.overload:
            parts += (b"\x42", texts[node.overload])
        if notes := node.metadata_props:
            parts += self._of_nodes.of(notes)
        return _sized(b"".join(parts))

    def _attribute(self, attribute: Any) -> bytes:
        found = self._attributes.get(id(attribute))
        if found is None:
            if attribute.is_ref():
                raise _RareError
            data = b"\x2a" + _sized(ir.serde.serialize_attribute(attribute).SerializeToString())
            found = self._attributes[id(attribute)] = (attribute, data)
        return found[1]

    def _tensor(self, tensor: Any) -> list[bytes]:
        """The parts of a tensor; its content is one of them, which may be large."""
        if isinstance(tensor, _ENCODED_OTHERWISE) or tensor.doc_string or tensor.metadata_props:
            proto = onnx.TensorProto()
            ir.serde.serialize_tensor_into(proto, from_=tensor)
            return [proto.SerializeToString()]
        sizes = [part for size in tensor.shape.numpy() for part in (b"\x08", _length(size))]
        name = (b"\x42", self._texts[tensor.name]) if tensor.name else ()
        content = tensor.tobytes()
        return [*sizes, b"\x10", _length(tensor.dtype.value), *name, b"\x4a", _length(len(content)), content]

    def _value(self, value: ir.Value) -> bytes:
        kind, shape = value.type, value.shape
        key = id(kind), id(shape)
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = ((kind, shape), _type(kind, shape))
        parts = [b"\x0a", self._texts[value.name], found[1]]
        if value.doc_string:
            parts += (b"\x1a", self._texts[value.doc_string])
        if notes := value.metadata_props:
            parts += self._of_values.of(notes)
        return _sized(b"".join(parts))

    @staticmethod
    def _require_plain(value: ir.Value) -> None:
        """Looks for a note that becomes a part of the graph.

        NOTE: `meta` makes an empty store where there is none; onnx-ir's private attribute says whether there is one.
        """
        if getattr(value, "_metadata", value) and _QUANTISED in value.meta:
            raise _RareError


def _is_known(value: ir.Value) -> bool:
    """Whether a file says anything of a value inside the graph."""
    is_described = value.type is not None or value.shape is not None or value.metadata_props or value.doc_string
    return bool(is_described and value.name)


def _type(kind: Any, shape: ir.Shape | None) -> bytes:
    if kind is None:
        if shape is not None:
            raise _RareError
        return b""
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, kind)
    if shape is not None:
        ir.serde.serialize_shape_into(proto, shape)
    return b"\x12" + _sized(proto.SerializeToString())
