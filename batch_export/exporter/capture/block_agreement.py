"""Whether two recorded calls of blocks wrote the same nodes on corresponding inputs and weights.

Arrives: two recordings of one kind. Leaves: yes or no; and which of their constants are one tensor in both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.block_recording import Recording, expression, facts, is_size, lists


def equal(one: Recording, other: Recording) -> bool:
    """Whether two calls wrote the same nodes on corresponding inputs and weights."""
    if len(one.nodes) != len(other.nodes) or one.spec != other.spec or one.call.key != other.call.key:
        return False
    known = dict(zip(one.nodes, other.nodes, strict=True))
    for node, place in one.outer.items():
        twin = next((found for found, where in other.outer.items() if where == place), None)
        if twin is None:
            return False
        known[node] = twin
    if any(_written(node, known) != _written(twin, {}) for node, twin in zip(one.nodes, other.nodes, strict=True)):
        return False
    if any(_described(node) != _described(twin) for node, twin in zip(one.nodes, other.nodes, strict=True)):
        return False
    if {place: known.get(node) for place, node in one.moved.items()} != other.moved:
        return False
    other.is_common = {known[node] for node, tensor in one.constants.items() if other.constants[known[node]] is tensor}
    if not all(_is_equal(tensor, other.constants[known[node]]) for node, tensor in one.constants.items()):
        return False
    results = zip(one.outputs, other.outputs, strict=True)
    return all(_of_result(mine, known) == _of_result(its, {}) for mine, its in results)


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    if isinstance(one, FakeTensor) or isinstance(other, FakeTensor) or facts(one) != facts(other):
        return False
    with without_modes():
        return bool(torch.equal(one, other))


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Real tensors are computed with, as outside of a capture."""
    with unset_fake_temporarily(), disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
        yield


def _of_result(output: object, known: Mapping[torch.fx.Node, torch.fx.Node]) -> Hashable:
    return known.get(output, output) if isinstance(output, torch.fx.Node) else (type(output), expression(output))


def _written(node: torch.fx.Node, known: Mapping[torch.fx.Node, torch.fx.Node]) -> object:
    def leaf(argument: object) -> object:
        if not isinstance(argument, torch.fx.Node):
            return (type(argument), str(argument))
        if argument in known:
            return known[argument]
        return ("size", expression(argument.meta["val"])) if is_size(argument) else argument

    arguments = pytree.tree_map(leaf, (lists(node.args), lists(node.kwargs)))
    return (node.op, "" if node.op == "get_attr" else node.target, arguments)


def _described(node: torch.fx.Node) -> list[Hashable]:
    return [
        facts(one) if isinstance(one, torch.Tensor) else str(one) for one in pytree.tree_leaves(node.meta.get("val"))
    ]
