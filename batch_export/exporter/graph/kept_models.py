"""A model as it was: what it takes to make it again once somebody has changed it.

Arrives: a model. Leaves: a description of it, and on demand another model that is as the first one was then. A
description takes a fraction of the time of a copy, which nobody may ask for; it holds on to the model's parts.
Contents, shapes and attributes are the model's own, as in a copy: whoever changes a model exchanges them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from batch_export.exporter.graph.copies import is_plain

_Notes = tuple[dict[str, Any], set[str]] | None
_OF_VALUES = ("name", "type", "shape", "const_value", "doc_string", "metadata_props", "metadata")
_OF_NODES = ("domain", "op_type", "overload", "version", "name", "doc_string", "inputs", "outputs")
_HELD = ("attributes", "metadata_props", "metadata")


def _read(kind: type, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads attributes of an object of onnx-ir's all at once.

    NOTE: its properties are functions of Python's; what they give is read itself where it is under their name.
    """
    public = {"metadata": "meta"}
    return operator.attrgetter(*(f"_{name}" if hasattr(kind, f"_{name}") else public.get(name, name) for name in names))


_value_of = _read(ir.Value, _OF_VALUES)
_node_of = _read(ir.Node, _OF_NODES)
_held_by = _read(ir.Node, _HELD)


class KeptModel:
    """A model as it is when this is made.

    Args:
        model: without functions and bodies, see `of`.
    """

    def __init__(self, model: ir.Model) -> None:
        graph = model.graph
        self._places = list(graph.inputs), list(graph.outputs), list(graph.initializers.values())
        self._values: dict[ir.Value, tuple[Any, ...]] = {
            value: _described(_value_of(value)) for value in (*self._places[0], *self._places[2])
        }
        self._nodes: list[tuple[Any, ...]] = []
        for node in graph:
            what, (attributes, properties, notes) = _node_of(node), _held_by(node)
            self._nodes.append((what, dict(attributes.data), dict(properties or ()), _notes_of(notes)))
            for value in what[-1]:
                self._values[value] = _described(_value_of(value))
        self._graph: dict[str, Any] = {
            "doc_string": graph.doc_string,
            "opset_imports": dict(graph.opset_imports),
            "name": graph.name,
        }
        self._model: dict[str, Any] = {
            "ir_version": model.ir_version,
            "producer_name": model.producer_name,
            "producer_version": model.producer_version,
            "domain": model.domain,
            "model_version": model.model_version,
            "doc_string": model.doc_string,
            "device_configurations": model.device_configurations,
        }
        self._properties = dict(graph.metadata_props), dict(model.metadata_props)
        self._notes = _notes_of(graph.meta), _notes_of(model.meta)

    @classmethod
    def of(cls, model: ir.Model) -> KeptModel | None:
        """The description; None of a model with rare parts, which onnx-ir alone copies."""
        return cls(model) if is_plain(model) else None

    def made(self) -> ir.Model:
        """A model as it was."""
        values: dict[Any, Any] = {value: _value(description) for value, description in self._values.items()}
        values[None] = None
        inputs, outputs, initializers = ([values[one] for one in some] for some in self._places)
        nodes = [_node(description, values) for description in self._nodes]
        graph = ir.Graph(inputs, outputs, nodes=nodes, initializers=initializers, **self._graph)
        graph.metadata_props.update(self._properties[0])
        model = ir.Model(graph, metadata_props=dict(self._properties[1]), **self._model)
        for one, notes in zip((graph, model), self._notes, strict=True):
            _note(one, notes)
        return model


def _described(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """What was read of a value, with copies of what is changed in place."""
    properties, notes = value[-2:]
    return value if not properties and not notes else (*value[:-2], dict(properties or ()), _notes_of(notes or None))


def _value(description: tuple[Any, ...]) -> ir.Value:
    name, kind, shape, content, text, properties, notes = description
    made = ir.Value(name=name, type=kind, shape=shape, const_value=content, doc_string=text)
    if properties:
        made.metadata_props.update(properties)
    if notes:
        _note(made, notes)
    return made


def _node(description: tuple[Any, ...], values: dict[Any, Any]) -> ir.Node:
    (domain, op_type, overload, version, name, text, inputs, outputs), attributes, properties, notes = description
    made = ir.Node(
        domain,
        op_type,
        [values[one] for one in inputs],
        overload=overload,
        outputs=[values[one] for one in outputs],
        version=version,
        name=name,
        doc_string=text,
        metadata_props=dict(properties),
    )
    made.attributes.data.update(attributes)
    _note(made, notes)
    return made


def _notes_of(notes: Any) -> _Notes:
    """What passes noted."""
    return (dict(notes), set(notes._invalid_keys)) if notes else None


def _note(one: Any, notes: _Notes) -> None:
    if notes is not None:
        one.meta.update(notes[0])
        for key in notes[1]:
            one.meta.invalidate(key)
