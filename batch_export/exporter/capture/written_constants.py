"""Writes that torch's capture does not follow: what was read as a Python number before them stays in the program.

Arrives: a captured program. Leaves: the name of a tensor of the model, neither parameter nor buffer, that the program
writes to, and an error for one without content. torch (2.13) takes `self.table.tolist()` from the tensor as the model
has it, whatever forward wrote there, and keeps no track of what autograd and threads make.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind

from batch_export.exporter.graph.metadata import source_location

_ASSIGNED = torch.ops.aten._has_compatible_shallow_copy_type.default
"""What torch asks before it assigns to `.data`, and all that a captured program has of that."""

_WITHOUT_NAME = "lifted_tensor"
"""How torch begins the names of tensors that are no attributes of modules."""


class UnfollowedWriteError(RuntimeError):
    """Something is written to a tensor in a way that is not followed.

    Attributes:
        source: `file:line` in the model, empty where it is not known.
        next_step: what can be done instead.
    """

    def __init__(
        self,
        message: str,
        source: str = "",
        next_step: str = "write to the tensor itself (`with torch.no_grad(): tensor.copy_(new)`), or assign it anew",
    ) -> None:
        super().__init__(message)
        self.source = source
        self.next_step = next_step


def assigns_data(program: torch.export.ExportedProgram) -> bool:
    """Whether some tensor's `.data` becomes another's, which no way of torch's follows."""
    return any(True for _ in program.graph.find_nodes(op="call_function", target=_ASSIGNED))


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
        raise UnfollowedWriteError(
            f"the `.data` of a tensor of shape {shape} becomes another tensor's", source_location(node) or ""
        )
    if any(isinstance(tensor, FakeTensor) for tensor in (*module.parameters(), *module.buffers())):
        return
    if (error := made_elsewhere(program)) is not None:
        raise error


def made_elsewhere(program: torch.export.ExportedProgram) -> UnfollowedWriteError | None:
    """The error for a constant without content in the program of a model that has its weights; None without one."""
    for spec in program.graph_signature.input_specs:
        held = program.constants.get(str(spec.target))
        if isinstance(held, FakeTensor) and str(spec.target).startswith(_WITHOUT_NAME):
            nodes = [one for one in program.graph.find_nodes(op="placeholder") if one.name == spec.arg.name]
            sources = [source_location(user) for node in nodes for user in node.users]
            return UnfollowedWriteError(
                f"a tensor of shape {list(held.shape)} is made by torch.autograd (`grad`, `backward`) or a thread",
                next((one for one in sources if one), ""),
                "compute gradients by torch.func.grad, and keep threads out of forward",
            )
    return None


def written_constant(program: torch.export.ExportedProgram) -> str | None:
    """The name of a plain tensor attribute that the program writes to, None where there is none."""
    return next((name for name in _written(program) if not name.startswith(_WITHOUT_NAME)), None)


def written_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    """The model's tensors that the program writes to and has no name for: those in lists, dicts and objects."""
    names = [name for name in _written(program) if name.startswith(_WITHOUT_NAME)]
    return [held for name in names if isinstance(held := program.constants.get(name), torch.Tensor)]


def _written(program: torch.export.ExportedProgram) -> Iterator[str]:
    """The names of constants that the program writes to."""
    constants = {
        spec.arg.name: str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR
    }
    for node in program.graph.find_nodes(op="placeholder") if constants else ():
        if node.name in constants and any(map(_writes, _reached(node))):
            yield constants[node.name]


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
