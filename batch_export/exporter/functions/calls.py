"""Which call of which module each node of an ONNX model was made in.

Arrives: an ONNX model whose nodes name the nodes of the captured graph that they were made for. Leaves: for each node
of the main graph the calls of modules around it, outermost first, in its metadata, for the time in which functions are
made of them (`making.py`). No node is moved.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir
import torch

from batch_export.exporter.graph import metadata

_KEY = "batch_export.module_calls"


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module.

    Attributes:
        path: of the module in the model.
        number: which call of it this is, from 0.
        kind: the module's class, `package.module.Class`.
    """

    path: str
    number: int
    kind: str

    def __str__(self) -> str:
        return f"{self.path}@{self.number}" if self.number else self.path

    def instead(self, one: ModuleCall, other: ModuleCall) -> ModuleCall:
        """This call, of a module in `one`, as it is in `other`."""
        inside = self.path.startswith(f"{one.path}.")
        path = other.path + self.path[len(one.path) :] if inside else self.path
        return ModuleCall(path, max(0, self.number + other.number - one.number) if inside else self.number, self.kind)


Calls = tuple[ModuleCall, ...]
"""The calls around a node, outermost first; the model's own is none of them."""


def kinds(program: torch.export.ExportedProgram) -> set[str]:
    """The classes of the modules whose calls left nodes in a captured program, the model's own left out."""
    return {call.kind for node in program.graph.nodes for call in _around(node)}


def note(model: ir.Model, program: torch.export.ExportedProgram) -> None:
    """Notes the calls around each node of the main graph.

    Args:
        model: what became of the program.
        program: the graph that was translated, with the nodes of all blocks.
    """
    known = {node.name: _around(node) for node in program.graph.nodes if node.op == "call_function"}
    for node in model.graph:
        found = _noted(node, known)
        if found is not None:
            write(node, found)


def write(node: ir.Node, calls: Calls) -> None:
    """Notes the calls around a node."""
    node.metadata_props[_KEY] = json.dumps([[one.path, one.number, one.kind] for one in calls])


def taken(model: ir.Model) -> dict[ir.Node, Calls]:
    """The calls around each node of the main graph; the notes are gone afterwards.

    A node without a note, which a pass has put in, belongs where its readers do.
    """
    found: dict[ir.Node, Calls] = {}
    owners = owners_of(model.graph)
    for node in reversed(model.graph):
        text = node.metadata_props.pop(_KEY, None)
        if text is not None:
            found[node] = tuple(ModuleCall(*one) for one in json.loads(text))
            continue
        readers = [found[owners.get(user, user)] for value in node.outputs for user, _ in value.uses()]
        is_output = any(value.is_graph_output() for value in node.outputs)
        found[node] = () if is_output or not readers else common(readers)
    return found


def common(calls: list[Calls]) -> Calls:
    """The calls that several nodes have around them."""
    shortest = min(calls, key=len)
    for at, call in enumerate(shortest):
        if any(one[at] != call for one in calls):
            return shortest[:at]
    return shortest


def _around(node: torch.fx.Node) -> Calls:
    found = []
    for key, (path, kind) in metadata.modules_around(node).items():
        number = key.rpartition("@")[2] if "@" in key else "0"
        found.append(ModuleCall(path, int(number) if number.isdigit() else 0, metadata.class_name(kind)))
    return tuple(one for one in found if one.path)


def _noted(node: ir.Node, known: Mapping[str, Calls]) -> Calls | None:
    text = node.metadata_props.get(metadata.NAME_SCOPES)
    if not text:
        return None
    scopes = ast.literal_eval(text)
    classes = ast.literal_eval(node.metadata_props.get(metadata.CLASS_HIERARCHY, "[]"))
    paths = [path for path in scopes[:-1] if path]
    calls = known.get(scopes[-1])
    if calls is not None and [one.path for one in calls] == paths:
        return calls
    named = zip(scopes[:-1], classes[:-1], strict=False)  # a node within a body has the name of another outside
    return tuple(ModuleCall(path, 0, kind) for path, kind in named if path)


def owners_of(graph: ir.Graph) -> dict[ir.Node, ir.Node]:
    """A node in a body -> the node of the graph whose body it is in, however deep."""
    return {inner: node for node in graph for inner in within(node)}


def within(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes in the bodies of a node, and in theirs."""
    for attribute in node.attributes.values():
        bodies = (
            [attribute.value]
            if attribute.type == ir.AttributeType.GRAPH
            else attribute.value
            if attribute.type == ir.AttributeType.GRAPHS
            else []
        )
        for body in bodies:
            for inner in body:
                yield inner
                yield from within(inner)
