"""Bodies of repeated blocks: the nodes of one block as a graph of its own, written into a model wherever it is called.

Arrives: the nodes that a translation recorded for a block, and calls of it in a model, each a node that stands for all
of them. Leaves: a graph with inputs and outputs, which passes may run over once for all calls; and the model with that
graph's nodes in the place of each call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from batch_export.exporter.graph import metadata, weights

DOMAIN = "batch_export.blocks"
"""Of the nodes that stand for blocks; none is left in a finished model."""
_WORD = re.compile(r"\w+")


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
            made = known[value] = _copy(value)
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
        outputs = [_copy(value) for value in node.outputs]
        known.update(zip(node.outputs, outputs, strict=True))
        copies.append(_node(node, read, outputs, node.name))
    outputs = [known[value] for value in results if value in known]
    if len(outputs) != len(results) or any(value.producer() is None for value in outputs) or len(set(outputs)) != len(outputs):
        raise NotABodyError("a block gives back what it is given")
    graph = ir.Graph(inputs, outputs, nodes=copies, initializers=initializers, opset_imports={"": opset}, name=name)
    for node in copies:
        if node.domain and node.domain not in graph.opset_imports:
            graph.opset_imports[node.domain] = node.version or 1
    return Body(name, path, ir.Model(graph, ir_version=10), [known[value] for value in standing]), standing


def _copy(value: ir.Value) -> ir.Value:
    made = ir.Value(name=value.name, type=value.type, shape=value.shape)
    made.metadata_props.update(value.metadata_props)
    made.meta.update(value.meta)
    return made


def _node(node: ir.Node, inputs: Sequence[ir.Value | None], outputs: Sequence[ir.Value], name: str | None) -> ir.Node:
    made = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        node.attributes.values(),
        overload=node.overload,
        outputs=outputs,
        version=node.version,
        name=name,
    )
    made.metadata_props.update(node.metadata_props)
    return made


def written_out(model: ir.Model, bodies: Sequence[Body]) -> int:
    """Puts the nodes of each body in the place of its calls; returns how many calls there were."""
    names = {value.name for value in _values(model)} | {node.name for node in model.graph}
    count = 0
    for body in bodies:
        graph = body.model.graph
        common = _constants(model, body, names)
        templates = [(node, _origin(node)) for node in graph]
        replaced = dict(zip(body.given, range(len(body.given)), strict=True))
        for call, site in body.calls.items():
            if call.graph is not model.graph:
                continue
            known: dict[ir.Value, ir.Value | None] = {value: call.inputs[at] for value, at in replaced.items()}
            known.update(common)
            path = re.compile(rf"(?<![\w.]){re.escape(body.path)}(?![\w])")
            made = [_placed(node, origin, known, site, path, names) for node, origin in templates]
            model.graph.insert_before(call, made)
            for old, inner in zip(call.outputs, graph.outputs, strict=True):
                new = known[inner]
                assert new is not None
                new.metadata_props.update(old.metadata_props)
                ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
                new.name, old.name = old.name, None
            model.graph.remove(call, safe=True)
            count += 1
        for domain, version in graph.opset_imports.items():
            model.graph.opset_imports.setdefault(domain, version)
    model.graph.opset_imports.pop(DOMAIN, None)
    return count


def _values(model: ir.Model) -> list[ir.Value]:
    graph = model.graph
    return [
        *graph.inputs,
        *graph.initializers.values(),
        *(value for node in graph.all_nodes() for value in node.outputs),
    ]


def _constants(model: ir.Model, body: Body, names: set[str | None]) -> dict[ir.Value, ir.Value]:
    """A body's constants as initializers of the model, one for all calls."""
    made = {}
    for value in list(body.model.graph.initializers.values()):
        if value in body.given:
            continue
        copy = _copy(value)
        copy.const_value = value.const_value
        copy.name = _unique(value.name or "const", names)
        model.graph.initializers[copy.name] = copy
        made[value] = copy
    return made


def _unique(wanted: str, names: set[str | None]) -> str:
    name, number = wanted, 0
    while name in names:
        number += 1
        name = f"{wanted}_{number}"
    names.add(name)
    return name


def _origin(node: ir.Node) -> str:
    """The name of the captured graph's node that an ONNX node was made for."""
    text = node.metadata_props.get(metadata.NAME_SCOPES)
    scopes = ast.literal_eval(text) if text else [""]
    return str(scopes[-1]) if scopes else ""


def _placed(
    node: ir.Node,
    origin: str,
    known: dict[ir.Value, ir.Value | None],
    site: Site,
    path: re.Pattern[str],
    names: set[str | None],
) -> ir.Node:
    own = site.names.get(origin, origin)

    def named(text: str | None) -> str:
        text = text or origin
        changed = text.replace(origin, own) if origin and origin in text else f"{own}_{text}"
        return _unique(changed, names)

    inputs = [None if value is None else known[value] for value in node.inputs]
    outputs = []
    for value in node.outputs:
        made = _copy(value)
        made.name = named(value.name)
        known[value] = made
        outputs.append(made)
    result = _node(node, inputs, outputs, named(node.name))
    for key, text in node.metadata_props.items():
        if key in (metadata.NAME_SCOPES, metadata.FX_NODE, "namespace"):
            result.metadata_props[key] = _WORD.sub(
                lambda word: site.names.get(word[0], word[0]), path.sub(site.path, text)
            )
    return result
