"""Writes that torch's capture does not follow: what was read as a Python number before them stays in the program.

Arrives: a captured program. Leaves: the name of a tensor of the model, neither parameter nor buffer, that the program
writes to, and an error for one without content. torch (2.13) takes `self.table.tolist()` from the tensor as the model
has it, whatever forward wrote there, and keeps no track of what is written by way of `.data`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind

_ASSIGNED = torch.ops.aten._has_compatible_shallow_copy_type.default
"""What torch asks before it assigns to `.data`, and all that a captured program has of that."""


class UnfollowedWriteError(RuntimeError):
    """Something is written to a tensor in a way that is not followed."""


def refuse_unfollowed_writes(program: torch.export.ExportedProgram, module: torch.nn.Module) -> None:
    """Looks for constants without content, and for tensors whose `.data` becomes another's, which torch leaves out.

    Args:
        program: what was captured.
        module: the model, whose weights may be without content themselves.

    Raises:
        UnfollowedWriteError: there is one, that a model with weights did not bring.
    """
    for node in program.graph.find_nodes(op="call_function", target=_ASSIGNED):
        shape = list(node.args[0].meta["val"].shape) if isinstance(node.args[0], torch.fx.Node) else "?"
        raise UnfollowedWriteError(f"the `.data` of a tensor of shape {shape} becomes another tensor's")
    if any(isinstance(tensor, FakeTensor) for tensor in (*module.parameters(), *module.buffers())):
        return
    for name, held in program.constants.items():
        if isinstance(held, FakeTensor) and name.startswith("lifted_tensor"):
            raise UnfollowedWriteError(f"a tensor of shape {list(held.shape)} is written to by way of `.data`")


def written_constant(program: torch.export.ExportedProgram) -> str | None:
    """The name of a plain tensor attribute that the program writes to, None where there is none."""
    constants = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and not str(spec.target).startswith("lifted_tensor")
    }
    if not constants:
        return None
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in constants and any(map(_writes, _reached(node))):
            return str(constants[node.name])
    return None


def _reached(origin: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """Users of a tensor and of its views, each with the one of these that it takes first."""
    waiting = [origin]
    while waiting:
        tensor = waiting.pop()
        for user in tensor.users:
            if user.args and user.args[0] is tensor:
                yield user, tensor
                if _is_view(user):
                    waiting.append(user)


def _first(node: torch.fx.Node) -> torch.Argument | None:
    schema = getattr(node.target, "_schema", None)
    return schema.arguments[0] if schema is not None and schema.arguments else None


def _is_view(node: torch.fx.Node) -> bool:
    first = _first(node)
    return first is not None and first.alias_info is not None


def _writes(pair: tuple[torch.fx.Node, torch.fx.Node]) -> bool:
    first = _first(pair[0])
    return first is not None and first.alias_info is not None and first.alias_info.is_write
