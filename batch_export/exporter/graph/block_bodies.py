"""Bodies of repeated blocks: the nodes of one block as a graph of its own, written into a model wherever it is called.

Arrives: the nodes that a translation recorded for a block, and calls of it in a model, each a node that stands for all
of them. Leaves: a graph with inputs and outputs, which passes may run over once for all calls; and the model with that
graph's nodes in the place of each call.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from batch_export.exporter.graph import metadata, weights
from batch_export.exporter.graph.copies import node_like, value_like
from batch_export.exporter.graph.free_names import free_name

DOMAIN = "batch_export.blocks"
"""Of the nodes that stand for blocks; none is left in a finished model."""
_PLACES = frozenset({metadata.NAME_SCOPES, metadata.FX_NODE, "namespace"})


@dataclass(slots=True)
class Site:
    """What a call's nodes are called: the block's path in the model, and for each node of the captured graph its name.

    Attributes:
        path: of the block in the model.
        names: a name in the source's captured graph -> the name in this call's place.
    """

    path: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Body:
    """One block's nodes, for any number of calls.

    Attributes:
        name: of the calls' operator.
        path: of the block in the model that the nodes were recorded for.
        model: its graph, whose inputs and weights stand for what each call is given.
        given: for each input of a call, the value that stands for it: an input of the graph, or a weight.
        calls: the nodes that stand for it in a model, and what their nodes are called.
    """

    name: str
    path: str
    model: ir.Model
    given: list[ir.Value]
    calls: dict[ir.Node, Site] = field(default_factory=dict)


class NotABodyError(Exception):
    """Why nodes cannot be a graph of their own; they are translated for every call."""


def is_weight(value: ir.Value) -> bool:
    """Whether a value is a weight of the program, whose content no pass may look at."""
    kind = value.metadata_props.get(metadata.KIND.format(side="Input"))
    return kind in ("PARAMETER", "BUFFER") and weights.is_torch_tensor(value)


def body_of(
    name: str, path: str, nodes: Sequence[ir.Node], given: Sequence[ir.Value], results: Sequence[ir.Value], opset: int
) -> tuple[Body, list[ir.Value]]:
    """A graph of copies of some nodes, and the values from outside that its calls must be given.

    Args:
        name: what the calls' operator shall be called.
        path: of the block in the model.
        nodes: in order.
        given: values from outside that differ from call to call.
        results: values of the nodes that are read outside.
        opset: of the nodes.

    Raises:
        NotABodyError: for nodes with graphs of their own.
    """
    known: dict[ir.Value, ir.Value] = {}
    inputs: list[ir.Value] = []
    initializers: list[ir.Value] = []
    standing: list[ir.Value] = []

    def outer(value: ir.Value) -> ir.Value:
        if value not in known:
            made = known[value] = value_like(value, value.name)
            if value.const_value is not None and value.producer() is None:
                made.const_value = value.const_value
                initializers.append(made)
            else:
                inputs.append(made)
            if made.const_value is None or is_weight(made):
                standing.append(value)
        return known[value]

    for value in given:
        outer(value)
    copies = []
    for node in nodes:
        if any(one.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for one in node.attributes.values()):
            raise NotABodyError("a block has nodes with bodies")
        read = [None if value is None else outer(value) for value in node.inputs]
        outputs = [value_like(value, value.name) for value in node.outputs]
        known.update(zip(node.outputs, outputs, strict=True))
        copies.append(node_like(node, read, outputs, node.name, {}))
    outputs = [known[value] for value in results if value in known]
    if (
        len(outputs) != len(results)
        or any(value.producer() is None for value in outputs)
        or len(set(outputs)) != len(outputs)
    ):
        raise NotABodyError("a block gives back what it is given")
    graph = ir.Graph(inputs, outputs, nodes=copies, initializers=initializers, opset_imports={"": opset}, name=name)
    for node in copies:
        if node.domain and node.domain not in graph.opset_imports:
            graph.opset_imports[node.domain] = node.version or 1
    return Body(name, path, ir.Model(graph, ir_version=10), [known[value] for value in standing]), standing


def share_constants(bodies: Sequence[Body]) -> bool:
    """Notes which inputs of each body are one constant in all calls; whether a call has a constant of its own."""
    has_own = False
    for body in bodies:
        graph = body.model.graph
        for at, value in enumerate(body.given):
            found = {call.inputs[at] for call in body.calls}
            known = [one for one in found if one is not None and one.const_value is not None and not is_weight(one)]
            has_own |= len(found) > 1 and bool(known)
            if len(found) == 1 and known and value.const_value is None and value.name is not None:
                graph.inputs.remove(value)
                value.const_value = known[0].const_value
                graph.initializers[value.name] = value
    return has_own


def written_out(model: ir.Model, bodies: Sequence[Body]) -> list[ir.Value]:
    """Puts the nodes of each body in the place of its calls; returns the values where both meet."""
    names = {value.name for value in _values(model)} | {node.name for node in model.graph}
    seams: dict[ir.Value, None] = {}
    for body in bodies:
        common = _constants(model, body, names)
        templates = _templates(body)
        for call, site in body.calls.items():
            if call.graph is not model.graph:
                continue
            known: dict[ir.Value, ir.Value | None] = {**dict(zip(body.given, call.inputs, strict=True)), **common}
            told = _Told(site, body.path)
            model.graph.insert_before(call, [one.placed(known, told, names) for one in templates])
            seams.update((value, None) for value in call.inputs if value is not None and not is_weight(value))
            for old, inner in zip(call.outputs, body.model.graph.outputs, strict=True):
                new = known[inner]
                assert new is not None
                ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
                if inner.producer() is not None:
                    new.metadata_props.update(old.metadata_props)
                    new.name, old.name = old.name, None
                seams.pop(old, None)
                seams[new] = None
            model.graph.remove(call, safe=True)
        for domain, version in body.model.graph.opset_imports.items():
            model.graph.opset_imports.setdefault(domain, version)
    model.graph.opset_imports.pop(DOMAIN, None)
    return list(seams)


def _values(model: ir.Model) -> list[ir.Value]:
    graph = model.graph
    made = (value for node in graph.all_nodes() for value in node.outputs)
    return [*graph.inputs, *graph.initializers.values(), *made]


def _constants(model: ir.Model, body: Body, names: set[str | None]) -> dict[ir.Value, ir.Value]:
    """A body's constants as initializers of the model, one for all calls."""
    made = {}
    given = set(body.given)
    for value in body.model.graph.initializers.values():
        if value in given:
            continue
        copy = value_like(value, value.name)
        copy.const_value = value.const_value
        copy.name = name = free_name(value.name or "const", names)  # its content is called so too
        model.graph.initializers[name] = copy
        made[value] = copy
    return made


class _Text:
    """A text in which names are to be replaced: what is between them, and the names."""

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self._parts = pattern.split(text)  # every second one is a name
        self.names_something = len(self._parts) > 1

    def at(self, site: Site, path: str) -> str:
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        parts = parts.copy()
        for at in range(1, len(parts), 2):
            parts[at] = site.path if parts[at] == path else site.names.get(parts[at], parts[at])
        return "".join(parts)


class _Told:
    """The texts of one call, each made once: many nodes have the same."""

    def __init__(self, site: Site, path: str) -> None:
        self._site, self._path = site, path
        self._known: dict[_Text, str] = {}

    def __call__(self, text: _Text) -> str:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = text.at(self._site, self._path)
        return found


@dataclass(slots=True)
class _Template:
    """One node of a body, and what of it says where it is."""

    node: ir.Node
    name: _Text
    outputs: list[_Text]
    texts: dict[str, _Text]

    def placed(self, known: dict[ir.Value, ir.Value | None], told: _Told, names: set[str | None]) -> ir.Node:
        outputs = []
        for value, text in zip(self.node.outputs, self.outputs, strict=True):
            made = known[value] = value_like(value, free_name(told(text), names))
            outputs.append(made)
        inputs = [None if value is None else known[value] for value in self.node.inputs]
        texts = {key: told(text) for key, text in self.texts.items()}
        return node_like(self.node, inputs, outputs, free_name(told(self.name), names), texts)


def _templates(body: Body) -> list[_Template]:
    words = sorted({name for site in body.calls.values() for name in site.names}, key=len, reverse=True)
    names = "|".join(map(re.escape, words))
    in_text = re.compile(rf"(?<![\w.])({re.escape(body.path)}(?!\w)|(?:{names})(?![\w.]))")
    in_name = re.compile(rf"((?<![^\W_])(?:{names})(?![^\W_]))")
    text_of = functools.cache(_Text)
    made = []
    for node in body.model.graph:
        origin = _origin(node)

        def named(text: str | None, origin: str = origin) -> _Text:
            found = text_of(text or origin, in_name)
            return found if found.names_something else text_of(f"{origin}_{text}", in_name)

        told = {key: text_of(text, in_text) for key, text in node.metadata_props.items() if key in _PLACES}
        texts = {key: text for key, text in told.items() if text.names_something}
        made.append(_Template(node, named(node.name), [named(one.name) for one in node.outputs], texts))
    return made


def _origin(node: ir.Node) -> str:
    """The name of the captured graph's node that an ONNX node was made for."""
    text = node.metadata_props.get(metadata.NAME_SCOPES)
    scopes = ast.literal_eval(text) if text else [""]
    return str(scopes[-1])
