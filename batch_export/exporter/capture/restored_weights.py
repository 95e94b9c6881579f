"""A captured program is given the weights that torch did not see: inputs, signature and state as if it had.

Arrives: torch's program of a model whose copies had no weights (`hidden_weights.py`). Leaves: the program that torch
makes with all of them in place, in which each node that stands for a block reads its own, or the reason why not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx.passes.shape_prop import TensorMetadata, _extract_tensor_metadata

from batch_export.exporter.capture.block_operator import COPY, NAME, WEIGHT, Copied, is_copy
from batch_export.exporter.capture.block_recording import NotSharedError

_PREFIXES = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_"}
_ROOT = re.compile(r"^(L__self___|self_)")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]")


def restore(program: torch.export.ExportedProgram, model: torch.nn.Module, hidden: set[str]) -> None:
    """Gives a program the weights that were hidden.

    Args:
        program: what torch captured without them; it is changed.
        model: with all of its weights.
        hidden: their names in the model.

    Raises:
        NotSharedError: when torch would have given other names.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    weights: dict[str, torch.Tensor] = {**parameters, **buffers}
    mode = next(_modes(program), None)
    if mode is None:
        raise NotSharedError("the capture has no tensors")
    signature, graph = program.graph_signature, program.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    known = {
        spec.target: (spec, node)
        for spec, node in zip(signature.input_specs, placeholders, strict=True)
        if spec.kind in _PREFIXES and spec.target is not None
    }
    taken = {node.name for node in graph.nodes}
    described: dict[object, TensorMetadata] = {}
    specs: list[InputSpec] = []
    made: dict[str, torch.fx.Node] = {}
    before = [spec for spec in signature.input_specs if spec.kind == InputKind.TOKEN]
    after = [spec for spec in signature.input_specs if spec.kind not in (*_PREFIXES, InputKind.TOKEN)]
    order = [node for spec, node in zip(signature.input_specs, placeholders, strict=True) if spec in after]
    anchor = order[0] if order else next(node for node in graph.nodes if node.op != "placeholder")
    for name in reversed(weights):
        if name in known:
            spec, anchor = known[name]
            specs.append(spec)
        elif name in hidden:
            kind = InputKind.PARAMETER if name in parameters else InputKind.BUFFER
            given = _PREFIXES[kind] + _name_of(name)
            if given in taken:
                raise NotSharedError("two weights are of one name")
            taken.add(given)
            with graph.inserting_before(anchor):
                anchor = graph.placeholder(given)
            anchor.name = anchor.target = given
            anchor.meta = _described(weights[name], mode, described)
            made[name] = anchor
            persistent = None if kind == InputKind.PARAMETER else True
            specs.append(InputSpec(kind, TensorArgument(given), name, persistent))
        else:
            raise NotSharedError(f"{name} is not in the graph")
    if len(specs) != len(known) + len(made):
        raise NotSharedError("a weight of the graph is not the model's")
    signature.input_specs[:] = [*before, *reversed(specs), *after]
    state = program.state_dict
    program._state_dict = {name: weights[name] for name in weights if name in state or name in hidden}
    _refuse_nested(graph)
    for node in list(graph.nodes):
        if is_copy(node):
            _complete(node, made)
        elif node.target is WEIGHT:
            node.replace_all_uses_with(made[node.meta[NAME]])
            graph.erase_node(node)
    program.graph_module.recompile()


def _refuse_nested(graph: torch.fx.Graph) -> None:
    """Refuses weights that torch may have named after a node, as inputs of a graph in the graph."""
    targets = {node.target for node in graph.nodes}
    if WEIGHT in targets and any(isinstance(one, torch._ops.HigherOrderOperator) for one in targets):
        raise NotSharedError("a weight may be read in a branch")


def _name_of(weight: str) -> str:
    """What torch calls a weight's input, but for its kind."""
    return _NOT_IN_NAMES.sub("_", _ROOT.sub("", weight, count=1)).lower()


def _modes(program: torch.export.ExportedProgram) -> Iterator[FakeTensorMode]:
    for node in program.graph.nodes:
        for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                yield value.fake_mode


def _described(
    tensor: torch.Tensor, mode: FakeTensorMode, known: dict[object, TensorMetadata]
) -> dict[str, FakeTensor | TensorMetadata]:
    """What a graph knows of a weight; the second part is one object for all that are alike."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        content = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        value = FakeTensor(mode, content, tensor.device)
        value.requires_grad = tensor.requires_grad
        alike = (tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad)
        if alike not in known:
            known[alike] = _extract_tensor_metadata(value)
    return {"val": value, "tensor_meta": known[alike]}


def _complete(node: torch.fx.Node, made: Mapping[str, torch.fx.Node]) -> None:
    copied: Copied = node.meta[COPY]
    given, *rest = node.args
    arguments: list[Any] = list(given)  # type: ignore[arg-type]
    for at, name in copied.absent:
        arguments.insert(at, made[name])
    node.args = (arguments, *rest)
    node.meta[COPY] = replace(copied, absent=())
