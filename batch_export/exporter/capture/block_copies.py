"""A recorded block written into a graph for another call of its like, node by node or as one node.

Arrives: the tracer of a capture, a recording, and the other call. Leaves: nodes that stand on the other block's inputs
and weights, and the call's result. One node in place of all of them costs torch's own passes less;
`block_expansion.py` puts the nodes in its place afterwards.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import (
    _ProxyTensor,
    disable_proxy_modes_tracing,
    set_proxy_slot,
    snapshot_fake,
    track_tensor,
)
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.block_agreement import without_modes
from batch_export.exporter.capture.block_operator import COPY, OPERATOR, Copied
from batch_export.exporter.capture.block_recording import (
    MARK,
    Call,
    NotSharedError,
    Place,
    Recording,
    weights,
)

if TYPE_CHECKING:  # a private name, which another torch may not have
    from torch.fx.experimental.proxy_tensor import _ModuleStackTracer as Tracer


def require_weights(recording: Recording, block: torch.nn.Module, tracer: Tracer, absent: Container[str] = ()) -> None:
    """Looks whether another block's weights can stand for a recording's.

    Args:
        recording: of the call whose like the block's is.
        block: the module that is called.
        tracer: of the capture.
        absent: paths in the block of the weights that are hidden from the capture.

    Raises:
        NotSharedError: when one of them is not in the graph.
    """
    found = weights(block, tracer)
    for kind, where in (*recording.outer.values(), *recording.moved):
        if kind == "weight" and where not in found and where not in absent:
            raise NotSharedError(f"its weight {where} is not in the graph")


def written(
    recording: Recording,
    path: str,
    block: torch.nn.Module,
    call: Call,
    tracer: Tracer,
    *,
    whole: bool,
    absent: Mapping[str, str] | None = None,
) -> object:
    """Writes what a recording says for another call and returns that call's result; `require_weights` comes first.

    Args:
        recording: of the call whose like this one is.
        path: of the block in the model.
        block: the module that is called.
        call: how.
        tracer: of the capture.
        whole: write one node that stands for all of them (`block_operator.py`), not the nodes themselves.
        absent: path in the block -> name in the model of each weight that has no node yet; none but for one node.
    """
    absent = absent or {}
    known = (
        _as_one(recording, path, block, call, tracer, absent)
        if whole
        else _node_by_node(recording, path, block, call, tracer)
    )
    calls = tracer.num_calls
    for inner, (before, after) in recording.calls.items():
        where = below(path, inner)
        calls[where] = calls.get(where, 0) + after - before
    for place, node in recording.moved.items():
        if place[1] in absent and place[0] == "weight":  # nobody reads it any more
            continue
        given = _outside(place, block, call)
        if whole:
            known[node].meta["val"] = snapshot_fake(given)
        proxy = torch.fx.Proxy(known[node], tracer)
        set_proxy_slot(given, tracer, _ProxyTensor(proxy, None))
    fresh: dict[torch.fx.Node, torch.Tensor] = {}
    leaves = []
    for output, leaf in zip(recording.outputs, recording.leaves, strict=True):
        if not isinstance(leaf, torch.Tensor):
            leaves.append(leaf)
        elif not isinstance(output, torch.fx.Node):
            leaves.append(_outside(output, block, call))
        else:
            if output not in fresh:
                fresh[output] = _like(leaf)
                known[output].meta["val"] = snapshot_fake(fresh[output])
                track_tensor(fresh[output], torch.fx.Proxy(known[output], tracer), constant=None, tracer=tracer)
            leaves.append(fresh[output])
    return pytree.tree_unflatten(leaves, recording.spec)


def _given(
    recording: Recording, block: torch.nn.Module, call: Call, tracer: Tracer, absent: Container[str] = ()
) -> dict[torch.fx.Node, Any]:
    """A node from outside of the recording -> that of this call, if it has one."""
    found = weights(block, tracer)
    return {
        node: call.nodes[where] if kind == "input" else found[where]
        for node, (kind, where) in recording.outer.items()
        if kind == "input" or where not in absent
    }


def _node_by_node(
    recording: Recording, path: str, block: torch.nn.Module, call: Call, tracer: Tracer
) -> dict[torch.fx.Node, Any]:
    known = _given(recording, block, call, tracer)
    for node in recording.nodes:
        copy = tracer.graph.create_node(
            node.op,
            _own_constant(recording, node, tracer) if node.op == "get_attr" else node.target,
            torch.fx.node.map_arg(node.args, lambda one: known.get(one, one)),
            torch.fx.node.map_arg(node.kwargs, lambda one: known.get(one, one)),
            name=_named(node, tracer),
            type_expr=node.type,
        )
        copy.meta = copied_meta(node)
        copy.meta["nn_module_stack"] = _stack(node, recording, path, tracer)
        known[node] = copy
    return known


def _as_one(
    recording: Recording, path: str, block: torch.nn.Module, call: Call, tracer: Tracer, absent: Mapping[str, str]
) -> dict[torch.fx.Node, Any]:
    known = _given(recording, block, call, tracer, absent)
    around = _around(tracer)
    for node in recording.constants:
        known[node] = tracer.graph.create_node("get_attr", _own_constant(recording, node, tracer), (), {})
        known[node].meta = {**copied_meta(node), "nn_module_stack": _stack(node, recording, path, tracer)}
    number = tracer.num_calls.get(path, 0)
    own = f"{path}@{number}" if number > 0 else path
    stack = {**around, own: (path, f"{type(block).__module__}.{type(block).__qualname__}")}
    given = recording.given
    arguments = ([known[one] for one in given if one in known], recording.sizes, recording.number)
    hidden = tuple((at, absent[recording.outer[one][1]]) for at, one in enumerate(given) if one not in known)
    whole = tracer.graph.create_node("call_function", OPERATOR, arguments, {}, name=type(block).__name__.lower())
    before = {
        inner: tracer.num_calls.get(below(path, inner), 0) - first for inner, (first, _) in recording.calls.items()
    }
    common = {"nn_module_stack": stack, "stack_trace": recording.nodes[-1].meta.get("stack_trace")}
    whole.meta = {
        **common,
        "val": [_snapshot(one.meta["val"]) for one in recording.results],
        COPY: Copied(path, before, absent=hidden),
    }
    for at, node in enumerate(recording.results):
        piece = tracer.graph.create_node("call_function", operator.getitem, (whole, at), {}, name=node.name)
        piece.meta = {**common, "val": whole.meta["val"][at]}
        known[node] = piece
    return known


def _snapshot(value: object) -> object:
    return snapshot_fake(value) if isinstance(value, torch.Tensor) else value


def copied_meta(node: torch.fx.Node) -> dict[str, object]:
    """What is known of a node, for a copy of it."""
    meta = {key: value for key, value in node.meta.items() if key != MARK}
    value = meta.get("val")
    if value is not None:
        meta["val"] = pytree.tree_map_only(torch.Tensor, snapshot_fake, value)
    return meta


def _named(node: torch.fx.Node, tracer: Tracer) -> str | None:
    """The name that torch's tracer asks for: an operator's without its overload."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name: str = tracer.graph._target_to_str(node.target.overloadpacket.__name__)
    return name


def _own_constant(recording: Recording, node: torch.fx.Node, tracer: Tracer) -> str:
    """The name of a copy's constant: one that every call makes anew is a tensor of its own."""
    if node in recording.is_common:
        return str(node.target)
    name = next(name for at in itertools.count() if not hasattr(tracer.root, name := f"_tensor_constant{at}"))
    with without_modes():
        setattr(tracer.root, name, recording.constants[node].clone())
    return name


def _outside(place: Place, block: torch.nn.Module, call: Call) -> Any:
    kind, where = place
    if kind == "input":
        return call.leaves[where]
    owner, _, name = where.rpartition(".")
    return getattr(block.get_submodule(owner), name)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor without content, of the same sizes and strides."""
    assert isinstance(tensor, FakeTensor)
    shape, strides = tensor.shape, tensor.stride()
    made: torch.Tensor
    if all(type(one) is int for one in (*shape, *strides)):
        with without_modes(), torch.no_grad():
            content = torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta")
            made = FakeTensor(tensor.fake_mode, content, tensor.device)
    else:
        with disable_proxy_modes_tracing(), tensor.fake_mode:
            made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.requires_grad_(tensor.requires_grad) if tensor.requires_grad else made


def below(path: str, inner: str) -> str:
    return f"{path}.{inner}" if inner else path


def _around(tracer: Tracer) -> dict[str, tuple[str, str]]:
    """The modules around a call, as torch's tracer has them."""
    return {
        key: (where, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
        for key, (where, kind) in tracer.module_stack.items()
    }


def _stack(node: torch.fx.Node, recording: Recording, path: str, tracer: Tracer) -> dict[str, tuple[str, Any]]:
    """The modules around a copied node: those around the call, then the recording's own under the new path."""
    before = {
        inner: tracer.num_calls.get(below(path, inner), 0) - first for inner, (first, _) in recording.calls.items()
    }
    return {
        **_around(tracer),
        **inner_stack(node.meta.get("nn_module_stack", {}), recording.path, Copied(path, before)),
    }


def inner_stack(
    stack: Mapping[str, tuple[str, Any]], path: str, copied: Copied, prefix: str = ""
) -> dict[str, tuple[str, Any]]:
    """The part of a stack of modules below a path, below a copy's path.

    Args:
        stack: of the node that is copied.
        path: of the block that it is in.
        copied: the other block.
        prefix: what keys begin with before the path.
    """
    found = {}
    for key, (where, kind) in stack.items():
        if where != path and not where.startswith(f"{path}."):
            continue
        inner = where[len(path) + 1 :]
        new = below(copied.path, inner)
        number = (int(key.rpartition("@")[2]) if "@" in key else 0) + copied.before.get(inner, 0)
        found[f"{prefix}{new}@{number}" if number > 0 else f"{prefix}{new}"] = (new, kind)
    return found
