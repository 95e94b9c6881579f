"""Captured programs in which one node stands for a whole block: the same program with each block's nodes in its place.

Arrives: torch's exported program after all of its passes, and the recordings that nodes of it stand for. Leaves: the
`Source` of each, found in the program itself, or the reason why it cannot be written again; and the program written
out, which is the one that plain tracing gives.
"""

from __future__ import annotations

import builtins
import copy
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from batch_export.exporter.capture.block_copies import copied_meta, inner_stack
from batch_export.exporter.capture.block_operator import COPY, SOURCES, Copied, Source, is_copy, is_piece
from batch_export.exporter.capture.block_recording import MARK, NotSharedError, Recording

_ROOT, _PREFIX = "_export_root", "L__self__"
_NUMBER = re.compile(r"_\d+$")
_CHECK = torch.ops.aten._assert_tensor_metadata.default
_SOURCES, _EXPANDED = "_block_sources", "_without_copies"


def sources(program: torch.export.ExportedProgram) -> dict[int, Source]:
    """The blocks that nodes of a program stand for, by number; none for a program with nothing to write out."""
    found: dict[int, Source] = getattr(program, _SOURCES, {})
    return found


def find_sources(program: torch.export.ExportedProgram, recordings: Iterable[Recording], copies: int) -> None:
    """Finds the nodes of each recording in the finished program.

    Args:
        program: what torch made of the graph in which blocks are single nodes.
        recordings: what they stand for.
        copies: how many such nodes were written.

    Raises:
        NotSharedError: when torch's passes changed what was recorded.
    """
    used = [node.args[2] for node in program.graph.nodes if is_copy(node)]
    if len(used) != copies:
        raise NotSharedError("a block is not where it was")
    placed: dict[int, dict[int, torch.fx.Node]] = {}
    checks: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    pending: list[torch.fx.Node] = []
    for node in program.graph.nodes:
        marks = node.meta.pop(MARK, {})
        if node.target is _CHECK and not marks:  # torch's passes put it before the cast that it belongs to
            pending.append(node)
            continue
        checks[node], pending = pending, []
        for number, at in marks.items():
            if node.op == "call_function":
                placed.setdefault(number, {})[at] = node
    found = {one.number: _source(one, placed.get(one.number, {}), checks) for one in recordings if one.number in used}
    for node in program.graph.nodes:
        if is_copy(node):  # torch's passes make sizes one that are computed twice
            node.update_arg(1, list(found[node.args[2]].sizes))
    if found:
        _give_names(program, found)
    SOURCES.update(found)
    setattr(program, _SOURCES, found)


class _Names:
    """Names as torch numbers them: the first of a kind has none, and no name is given twice."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*taken, *dir(builtins), *keyword.kwlist}
        self._next: dict[str, int] = {}

    def numbered(self, name: str) -> str:
        base = _NUMBER.sub("", name)
        found, number = base, self._next.get(base, 0)
        while found in self._taken:
            number += 1
            found = f"{base}_{number}"
        self._next[base] = number
        self._taken.add(found)
        return found


def _give_names(program: torch.export.ExportedProgram, known: Mapping[int, Source]) -> None:
    """Numbers the nodes as if those that stand for blocks were written out, and notes the names of these."""
    nodes = list(program.graph.nodes)
    names = _Names(node.name for node in nodes if node.op != "call_function")
    renamed: dict[torch.fx.Node, str] = {}
    for node in nodes:
        if is_copy(node):
            source = known[node.args[2]]
            copied: Copied = node.meta[COPY]
            path = copied.path.removeprefix(_ROOT).removeprefix(".")
            given = tuple(names.numbered(one.name) for one in source.nodes)
            node.meta[COPY] = replace(copied, path=path, names=given)
        elif is_piece(node):
            whole, at = node.args
            source = known[whole.args[2]]
            renamed[node] = whole.meta[COPY].names[source.nodes.index(source.results[at])]
        elif node.op == "call_function":
            renamed[node] = names.numbered(node.name)
    renamed.update((node, names.numbered(f"{node.name}_block")) for node in nodes if is_copy(node))
    new = {node.name: name for node, name in renamed.items()}
    for node, name in renamed.items():
        node.name = name
    for spec in program.graph_signature.output_specs:
        if getattr(spec.arg, "name", None) in new:
            spec.arg = replace(spec.arg, name=new[spec.arg.name])


def _source(
    recording: Recording, placed: dict[int, torch.fx.Node], checks: Mapping[torch.fx.Node, list[torch.fx.Node]]
) -> Source:
    given: dict[int, torch.fx.Node] = {}
    sizes: dict[torch.fx.Node, None] = {}
    for at in sorted(placed):
        read = placed[at].all_input_nodes
        if len(read) != len(recording.inputs[at]):
            raise NotSharedError("its nodes are others after the capture")
        for node, (kind, index) in zip(read, recording.inputs[at], strict=True):
            expected = (
                placed.get(index) if kind == "own" else given.setdefault(index, node) if kind == "given" else node
            )
            if node is not expected:
                raise NotSharedError("its nodes are others after the capture")
            if kind == "size":
                sizes[node] = None
    own = {node: at for at, node in enumerate(recording.nodes)}
    results = [placed.get(own[node]) for node in recording.results]
    if len(given) != len(recording.given) or len(sizes) != len(recording.sizes) or None in results:
        raise NotSharedError("its nodes are others after the capture")
    return Source(
        recording.number,
        recording.path.removeprefix(_ROOT).removeprefix("."),
        [one for at in sorted(placed) for one in (*checks[placed[at]], placed[at])],
        [given[at] for at in sorted(given)],
        list(sizes),
        [node for node in results if node is not None],
    )


def expanded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with the nodes of each block in the place of the node that stands for it; made once."""
    known = sources(program)
    if not known:
        return program
    made: torch.export.ExportedProgram | None = getattr(program, _EXPANDED, None)
    if made is None:
        made = _expanded(program, known)
        setattr(program, _EXPANDED, made)
    made._example_inputs = program.example_inputs
    return made


def _expanded(program: torch.export.ExportedProgram, known: dict[int, Source]) -> torch.export.ExportedProgram:
    graph = torch.fx.Graph()
    env: dict[torch.fx.Node, Any] = {}
    for node in program.graph.nodes:
        if is_copy(node):
            env[node] = _written_out(graph, node, known[node.args[2]], env)
        elif is_piece(node):
            env[node] = env[node.args[0]][node.args[1]]
        else:
            env[node] = graph.node_copy(node, lambda one: env[one])
            env[node].name = node.name  # `input` is torch's name of an input, and no new node's
    made = torch.export.ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=copy.copy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )
    kept = {key: value for key, value in vars(program).items() if key not in (_SOURCES, _EXPANDED)}
    for key, value in kept.items():
        if key not in vars(made) or key == "_guards_code":
            setattr(made, key, value)
    return made


def _written_out(
    graph: torch.fx.Graph, node: torch.fx.Node, source: Source, outer: Mapping[torch.fx.Node, Any]
) -> list[torch.fx.Node]:
    given: Any = node.args[0]
    copied: Copied = node.meta[COPY]
    env = {one: outer[own] for one, own in zip(source.given, given, strict=True)}
    env.update((one, outer[one]) for one in source.sizes)
    around = dict(list(node.meta["nn_module_stack"].items())[:-1])
    for one, name in zip(source.nodes, copied.names, strict=True):
        target: Any = one.target
        arguments = torch.fx.node.map_arg((one.args, one.kwargs), lambda read: env[read])
        made = graph.create_node("call_function", target, *arguments, name=name, type_expr=one.type)
        made.meta = copied_meta(one)
        made.meta["nn_module_stack"] = {
            **around,
            **inner_stack(one.meta.get("nn_module_stack", {}), source.path, copied, _PREFIX),
        }
        env[one] = made
    return [env[one] for one in source.results]
