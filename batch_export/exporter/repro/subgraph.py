"""Parts of an exported program as programs of their own, and the smallest of them that still fails.

An exported program, the nodes to keep and eager's values arrive; a module leaves in which every value from outside is
an input. `reduce` is delta debugging (Zeller and Hildebrandt, 2002) over the nodes. The program is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from batch_export.exporter.diagnostics.eager_values import EagerValues


@dataclass(slots=True)
class Part:
    """A part of a program.

    Attributes:
        module: computes the part's outputs.
        args: eager's values of what comes from outside.
        expected: what eager gives for the outputs.
        nodes: FX nodes that were kept, in order.
    """

    module: torch.fx.GraphModule
    args: tuple[object, ...]
    expected: list[torch.Tensor]
    nodes: tuple[str, ...]


def call_nodes(program: torch.export.ExportedProgram) -> list[str]:
    """Returns the names of the nodes that compute something, in order."""
    return [node.name for node in program.graph.nodes if node.op == "call_function"]


def before(program: torch.export.ExportedProgram, name: str, distance: int) -> list[str]:
    """Returns the nodes at most `distance` steps before a node, itself included, in order."""
    nodes = {node.name: node for node in program.graph.nodes}
    found, edge = {name}, {name}
    for _ in range(distance):
        edge = {one.name for inner in edge for one in nodes[inner].all_input_nodes if one.op == "call_function"} - found
        found |= edge
    return [one for one in call_nodes(program) if one in found]


def cut(eager: EagerValues, keep: Collection[str]) -> Part:
    """Returns the part with these nodes.

    Weights that the nodes use stay weights; other values from outside become inputs, numbers become constants. Outputs
    are the tensors that no kept node uses. They have the program's form as far as a part can have it: one tensor where
    the program gives one, its lists and dicts where they are the program's own outputs; a tuple otherwise.

    Raises:
        ValueError: no kept node makes a tensor.
    """
    program = eager.program
    kept = [node for node in program.graph.nodes if node.name in keep and node.op == "call_function"]
    outside = list(dict.fromkeys(one for node in kept for one in node.all_input_nodes if one not in kept))
    results = [node for node in kept if not any(user in kept for user in node.users)]
    values = eager.tensors({one.name for one in (*outside, *results)})
    states = _states(program)
    graph = torch.fx.Graph()
    root: dict[str, Any] = {}
    copies: dict[torch.fx.Node, Any] = {}
    args: list[Any] = []
    for one in outside:
        if one.op == "get_attr":
            root[str(one.target)] = _attribute(program.graph_module, str(one.target))
            copies[one] = graph.get_attr(str(one.target))
        elif one.name in states:
            target = f"weight_{len(root)}"
            root[target] = states[one.name]
            copies[one] = graph.get_attr(target)
        elif isinstance(values.get(one.name), torch.Tensor):
            copies[one] = graph.placeholder(one.name)
            args.append(values[one.name])
        else:
            copies[one] = values.get(one.name)
    # Placeholders have to come first in a graph.
    _placeholders_first(graph)
    for node in kept:
        arguments = torch.fx.map_arg(node.args, lambda one: copies[one])
        keywords = torch.fx.map_arg(node.kwargs, lambda one: copies[one])
        copy = graph.call_function(node.target, arguments, keywords)
        copy.meta = {key: value for key, value in node.meta.items() if key in ("stack_trace", "nn_module_stack")}
        copies[node] = copy
    made = [node for node in results if isinstance(values.get(node.name), torch.Tensor)]
    if not made:
        raise ValueError(f"none of the nodes {', '.join(node.name for node in kept)} makes a tensor by itself")
    form, made = _form(program, made)
    graph.output(pytree.tree_map(lambda place: copies[made[place]], form))
    module = torch.fx.GraphModule(root, graph)
    return Part(module.eval(), tuple(args), [values[node.name] for node in made], tuple(node.name for node in kept))


def reduce(nodes: Sequence[str], fails: Callable[[Sequence[str]], bool], attempts: int = 60) -> tuple[str, ...]:
    """Returns a subset of the nodes that still fails and of which no tried part fails; `nodes` itself has to.

    Args:
        nodes: in order.
        fails: tries a subset.
        attempts: how many subsets are tried at most.
    """
    current, pieces, tried = list(nodes), 2, 0
    while len(current) > 1 and tried < attempts:
        size = -(-len(current) // pieces)
        chunks = [current[start : start + size] for start in range(0, len(current), size)]
        candidates = [
            *chunks,
            *([[n for n in current if n not in chunk] for chunk in chunks] if len(chunks) > 2 else []),
        ]
        smaller = None
        for candidate in candidates:
            if tried >= attempts:
                break
            tried += 1
            if candidate and fails(candidate):
                smaller = candidate
                break
        if smaller is not None:
            current, pieces = smaller, 2
        elif pieces >= len(current):
            break
        else:
            pieces = min(len(current), 2 * pieces)
    return tuple(current)


def _form(program: torch.export.ExportedProgram, made: Sequence[torch.fx.Node]) -> tuple[Any, list[torch.fx.Node]]:
    """Returns what a part gives, with places in the list of nodes beside it where its tensors are."""
    spec = program.call_spec.out_spec
    whole = pytree.tree_unflatten(list(range(spec.num_leaves)), spec) if spec is not None else ()
    if whole == 0 and len(made) == 1:
        return 0, list(made)
    by_name: dict[object, torch.fx.Node] = {node.name: node for node in made}
    names = list(program.graph_signature.user_outputs)
    if len(names) == len(made) and set(names) == set(by_name) and _is_plain(whole):
        return whole, [by_name[name] for name in names]
    return tuple(range(len(made))), list(made)


def _is_plain(form: object) -> bool:
    """Whether there is nothing but numbers in lists, tuples and dicts: what a graph can give."""
    if type(form) is dict:
        return all(_is_plain(one) for one in form.values())
    if type(form) is list or type(form) is tuple:
        return all(_is_plain(one) for one in form)
    return isinstance(form, int)


def _states(program: torch.export.ExportedProgram) -> Mapping[str, object]:
    """Placeholder name -> parameter, buffer or constant."""
    states: dict[str, object] = {}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    for spec in program.graph_signature.input_specs:
        if spec.kind in kinds:
            target = str(spec.target)
            value = program.state_dict.get(target, program.constants.get(target))
            if isinstance(value, torch.Tensor):
                states[spec.arg.name] = value.detach().clone()
    return states


def _attribute(module: object, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _placeholders_first(graph: torch.fx.Graph) -> None:
    """Puts them before everything else, in the order that they have."""
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    for node in list(graph.nodes):
        if node.op == "placeholder" and first is not None:
            first.prepend(node)
