"""The nodes that one call of a block wrote into a graph: what another call of its like would write as well.

Arrives: the tracer of a capture, a block and how it was called. Leaves: a `Recording` of the call's nodes with what
they stand on (inputs, weights, sizes), or the reason why they could not stand for another call; and whether two calls
wrote the same. Sizes are the same symbols in both, so every guard is the same as well.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_slot
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import transforms

if TYPE_CHECKING:  # a private name, which another torch may not have
    from torch.fx.experimental.proxy_tensor import _ModuleStackTracer as Tracer

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.memory_format)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_CONTAINERS = (list, tuple, dict)


MARK = "batch_export_block"
"""Metadata of a node: number of a recording -> the node's place in it."""
_NUMBERS = itertools.count(1)

Input = tuple[str, int]
"""What a node of a call reads: ("own", place among the call's nodes), ("given", place in `given`) or ("size", 0)."""
Place = tuple[str, Any]
"""Where a tensor comes from: ("input", position among the leaves) or ("weight", path in the block)."""


class NotSharedError(Exception):
    """Why a call cannot stand for another one; the block is captured as it is."""


@dataclass(slots=True)
class Call:
    """How a block is called: its leaves, their nodes, and what two calls must share (`key`)."""

    leaves: list[object]
    nodes: list[torch.fx.Node | None]
    key: Hashable


@dataclass
class Recording:
    """One call's nodes.

    Attributes:
        path: of the block in the model.
        call: how it was called.
        nodes: what the call wrote, in order; sizes are left out, they are the same for every call.
        outer: a node from outside -> what it is: ("input", position) or ("weight", path in the block).
        moved: what a tensor from outside is in the graph after the call, where an operator returned it as it is.
        outputs: for each leaf of the result its node, its place outside, or the value itself.
        leaves: the leaves of the result.
        spec: the result's structure.
        constants: a node -> the tensor that forward made from Python's numbers there, or found outside.
        is_common: constants that are one object in every call.
        calls: path in the block -> (calls before, calls after) of each module in it.
        inputs: for each node, what it reads, in order: a node of the call, one from outside, or a size.
        number: of the recording in this process; 0 until a second call was found to write the same.
    """

    path: str
    call: Call
    nodes: list[torch.fx.Node]
    outer: dict[torch.fx.Node, Place]
    moved: dict[Place, torch.fx.Node]
    outputs: list[Any]
    leaves: list[object]
    spec: pytree.TreeSpec
    constants: dict[torch.fx.Node, torch.Tensor]
    is_common: set[torch.fx.Node] = field(default_factory=set)
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    inputs: list[list[Input]] = field(default_factory=list)
    number: int = 0

    @functools.cached_property
    def given(self) -> list[torch.fx.Node]:
        """What the nodes read from outside of the block, sizes apart, and the constants: each call has its own."""
        return [*self.outer, *self.constants]

    @functools.cached_property
    def results(self) -> list[torch.fx.Node]:
        """The nodes that are read after the call."""
        made = [one for one in self.outputs if isinstance(one, torch.fx.Node)]
        return list(dict.fromkeys([*made, *self.moved.values()]))

    @functools.cached_property
    def may_be_one(self) -> bool:
        """Whether one operator's node may stand for all of the nodes."""
        known = all(
            isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
            for node in self.nodes
            if node not in self.constants
        )
        return known and not any(node in self.constants for node in self.results)

    def returns_one_of(self, weights: Container[str]) -> bool:
        """Whether one of these weights, by their paths in the block, is a result of the call."""
        return any(isinstance(one, tuple) and one[0] == "weight" and one[1] in weights for one in self.outputs)

    @functools.cached_property
    def sizes(self) -> list[torch.fx.Node]:
        """The sizes that the nodes read."""
        read = [one for node in self.nodes for one in node.all_input_nodes if is_size(one)]
        return list(dict.fromkeys(read))

    def confirm(self) -> None:
        """Marks the nodes as those of which others are copies."""
        self.number = next(_NUMBERS)
        index = {node: at for at, node in enumerate(self.nodes)}
        given = {node: at for at, node in enumerate(self.given)}
        for at, node in enumerate(self.nodes):
            node.meta[MARK] = {**node.meta.get(MARK, {}), self.number: at}
            self.inputs.append(
                [
                    ("size", 0) if is_size(one) else ("given", given[one]) if one in given else ("own", index[one])
                    for one in node.all_input_nodes
                ]
            )


def node_of(value: Any, tracer: Tracer) -> torch.fx.Node | None:
    """The node that stands for a tensor in the graph; None when there is none."""
    found = get_proxy_slot(value, tracer, None)
    node: torch.fx.Node | None = None if found is None else found.proxy.node
    return node


def described_call(args: Sequence[object], kwargs: Mapping[str, object], tracer: Tracer) -> Call:
    """How a block is called.

    Raises:
        NotSharedError: when it is given something that it might change, or of which nothing is known.
    """
    leaves, spec = _flat((tuple(args), dict(kwargs)), "is given")
    nodes = [node_of(leaf, tracer) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
    firsts = {node: index for index, node in reversed(list(enumerate(nodes))) if node is not None}
    key: list[Hashable] = []
    for leaf, node in zip(leaves, nodes, strict=True):
        if isinstance(leaf, torch.Tensor):
            key.append((facts(leaf), id(leaf) if node is None else firsts[node]))
        else:
            key.append((type(leaf), expression(leaf)))
    return Call(leaves, nodes, (str(spec), tuple(key)))


def ties(block: torch.nn.Module, call: Call, tracer: Tracer) -> Hashable:
    """Which weights of a block are one tensor, and which of them it is given as well."""
    firsts: dict[torch.fx.Node, str] = {}
    of_weights = weights(block, tracer)
    pattern = tuple((path, firsts.setdefault(node, path)) for path, node in of_weights.items())
    return (
        tuple((path, first) for path, first in pattern if path != first),
        tuple((at, firsts[node]) for at, node in enumerate(call.nodes) if node in firsts),
    )


def leaves(args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
    """What a call is given, without its structure."""
    return _flat((tuple(args), dict(kwargs)), "is given")[0]


def _flat(value: object, verb: str) -> tuple[list[object], pytree.TreeSpec]:
    leaves, spec = pytree.tree_flatten(value, is_leaf=_is_leaf)
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, *_PLAIN, *_SYMBOLIC)):
            raise NotSharedError(f"it {verb} a {type(leaf).__name__}")
    return leaves, spec


def _is_leaf(value: object) -> bool:
    """Anything but plain containers: another one (a cache) is no tree whose tensors tell everything."""
    return not isinstance(value, _CONTAINERS)


def expression(value: object) -> Hashable:
    found: Hashable = value.node.expr if isinstance(value, _SYMBOLIC) else value
    return found


def facts(tensor: torch.Tensor) -> Hashable:
    """What two tensors must share to be treated alike by every operator."""
    return (
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tensor.requires_grad,
        tensor.is_conj(),
        tensor.is_neg(),
        tuple(map(expression, tensor.shape)),
        tuple(map(expression, tensor.stride())) if tensor.layout == torch.strided else None,
        expression(tensor.storage_offset()) if tensor.layout == torch.strided else None,
    )


def weights(block: torch.nn.Module, tracer: Tracer) -> dict[str, torch.fx.Node]:
    """Path of each parameter and buffer in a block -> its node."""
    found = {}
    for path, tensor in (
        *block.named_parameters(remove_duplicate=False),
        *block.named_buffers(remove_duplicate=False),
    ):
        node = node_of(tensor, tracer)
        if node is not None:
            found[path] = node
    return found


def written_since(last: torch.fx.Node, graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes after one."""
    found = []
    node = last.next
    while node is not graph._root:
        found.append(node)
        node = node.next
    return found


def recorded(
    path: str,
    block: torch.nn.Module,
    call: Call,
    of_weights: Mapping[str, torch.fx.Node],
    result: Any,
    nodes: list[torch.fx.Node],
    tracer: Tracer,
) -> Recording:
    """What a call wrote.

    Args:
        path: of the block in the model.
        block: the module.
        call: how it was called.
        of_weights: `weights()` of the block before the call.
        result: what it returned.
        nodes: what was written since.
        tracer: of the capture.

    Raises:
        NotSharedError: when its nodes could not stand for those of another block.
    """
    inside = {node for node in nodes if not is_size(node)}
    places: dict[torch.fx.Node, Place] = {}
    for at, node in enumerate(call.nodes):
        if node is not None:
            places.setdefault(node, ("input", at))
    for where, node in of_weights.items():
        places.setdefault(node, ("weight", where))
    outer: dict[torch.fx.Node, Place] = {}
    for node in nodes:
        if node not in inside:
            continue
        _refuse(node)
        for argument in node.all_input_nodes:
            if argument in inside or is_size(argument):
                continue
            place = places.get(argument)
            if place is None:
                raise NotSharedError(f"it reads {argument.name}, which is neither its input nor its weight")
            outer[argument] = place
    _refuse_writes([node for node in nodes if node in inside], outer)
    leaves, spec = _flat(result, "returns")
    outputs = [_output(leaf, call, inside, outer, places, tracer) for leaf in leaves]
    for one, other in itertools.combinations([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], 2):
        if one is not other and _shares(one, other):
            raise NotSharedError("it returns tensors that share memory")
    moved: dict[Place, torch.fx.Node] = {}
    for at, (leaf, node) in enumerate(zip(call.leaves, call.nodes, strict=True)):
        if node is not None and (now := node_of(leaf, tracer)) is not node:
            moved["input", at] = _inner(now, inside)
    for where, node in weights(block, tracer).items():
        if where not in of_weights or of_weights[where] is not node:
            moved["weight", where] = _inner(node, inside)
    kept = [node for node in nodes if node in inside]
    constants = {node: getattr(tracer.root, str(node.target)) for node in kept if node.op == "get_attr"}
    if any(type(one) is not torch.Tensor for one in constants.values()):
        raise NotSharedError("it reads a constant that is not a plain tensor")
    if any(map(transforms.is_of_transform, constants.values())):
        raise NotSharedError("it reads a tensor of one of torch.func's transforms")
    return Recording(path, call, kept, outer, moved, outputs, leaves, spec, constants)


def _output(
    leaf: object,
    call: Call,
    inside: Container[torch.fx.Node],
    outer: Mapping[torch.fx.Node, Place],
    places: Mapping[torch.fx.Node, Place],
    tracer: Tracer,
) -> object:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    at = next((at for at, one in enumerate(call.leaves) if one is leaf), None)
    if at is not None:
        return ("input", at)
    node = node_of(leaf, tracer)
    if node is not None and node in inside:
        if any(_shares(leaf, one.meta.get("val")) for one in outer):
            raise NotSharedError("it returns a view of what it is given")
        return node
    if node is None or node not in places:
        raise NotSharedError("it returns a tensor of somewhere else")
    return places[node]


def _inner(node: torch.fx.Node | None, inside: Container[torch.fx.Node]) -> torch.fx.Node:
    if node is None or node not in inside:
        raise NotSharedError("what it is given is another tensor afterwards")
    return node


def is_size(node: torch.fx.Node) -> bool:
    """Whether a node is a size or a condition on sizes: the same for every block that is called alike."""
    return isinstance(node.meta.get("val"), (*_SYMBOLIC, bool, int, float))


def _refuse(node: torch.fx.Node) -> None:
    if node.meta.get("unbacked_bindings"):
        raise NotSharedError(f"the size of {node.name} depends on data")
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise NotSharedError(f"it has a {node.target}")
    if node.op not in ("call_function", "get_attr"):
        raise NotSharedError(f"it has a {node.op}")


def _refuse_writes(nodes: Sequence[torch.fx.Node], outer: Mapping[torch.fx.Node, object]) -> None:
    for node in nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
            continue
        for argument in _written_to(node):
            written = argument.meta.get("val")
            if argument in outer or any(_shares(written, one.meta.get("val")) for one in outer):
                raise NotSharedError(f"{node.name} may write to what the block is given")


def _written_to(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    for at, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            yield from (one for one in pytree.tree_leaves(lists(given)) if isinstance(one, torch.fx.Node))


def _shares(one: object, other: object) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if one.layout != torch.strided or other.layout != torch.strided:
        return True
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def lists(argument: object) -> object:
    """Plain lists and dicts in place of FX's, and slices taken apart."""
    if isinstance(argument, (list, tuple)):
        return [lists(item) for item in argument]
    if isinstance(argument, dict):
        return {key: lists(item) for key, item in argument.items()}
    if isinstance(argument, slice):
        return ["slice", argument.start, argument.stop, argument.step]
    return argument
