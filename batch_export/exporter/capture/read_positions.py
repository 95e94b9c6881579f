"""What was read at a position that a tensor holds (`x[i]`): eager has the memory of x there, a program has a copy.

Arrives: a captured program. Leaves: nothing, or an error where that makes a difference: something is written to what
was read, or to x while what was read is still used.
"""

from __future__ import annotations

import torch

from batch_export.exporter.capture.written_constants import is_view, reached, writes, writes_to
from batch_export.exporter.graph.metadata import source_location


class LostAliasError(RuntimeError):
    """A write that eager would see at another place, and the program does not.

    Attributes:
        source: `file:line` of the write in the model, empty where it is not known.
    """

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


def refuse_lost_aliases(program: torch.export.ExportedProgram) -> None:
    """Looks at everything that was read at a position.

    Raises:
        LostAliasError: a write would have to be seen through it.
    """
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            places = {node: place for place, node in enumerate(module.graph.nodes)}
            for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.index.Tensor):
                if _is_position(node):
                    _refuse(node, places)


def _is_position(node: torch.fx.Node) -> bool:
    """Whether all indices are single integers."""
    indices = [one for one in node.args[1] if isinstance(one, torch.fx.Node)]  # type: ignore[union-attr]
    values = [one.meta.get("val") for one in indices]
    return bool(values) and all(isinstance(one, torch.Tensor) and one.dim() == 0 for one in values)


def _refuse(node: torch.fx.Node, places: dict[torch.fx.Node, int]) -> None:
    origin, _ = _path(node.args[0])
    for pair in reached(node):
        if writes(pair) and not _is_written_back(node, pair[0], origin, places):
            raise LostAliasError("what was read at a position that a tensor holds is written to", _line(pair[0]))
    last = max((places[user] for one in _sharing(node) for user in one.users), default=-1)
    for pair in reached(origin):
        if writes(pair) and places[node] < places[pair[0]] < last and not _writes_back(pair[0], node):
            raise LostAliasError(
                "a tensor is written to while something is still used that was read from it at a position that a "
                "tensor holds",
                _line(pair[0]),
            )


def _sharing(origin: torch.fx.Node) -> set[torch.fx.Node]:
    """A node and those whose results share its memory."""
    return {origin, *(user for user, _ in reached(origin) if is_view(user))}


def _path(tensor: object) -> tuple[torch.fx.Node, list[object]]:
    """The tensor whose memory another one shares, and how that is made of it."""
    assert isinstance(tensor, torch.fx.Node)
    steps: list[object] = []
    while is_view(tensor) and isinstance(first := tensor.args[0], torch.fx.Node):
        steps.append((tensor.target, tensor.args[1:], tensor.kwargs))
        tensor = first
    return tensor, steps


def _is_written_back(
    node: torch.fx.Node, write: torch.fx.Node, origin: torch.fx.Node, places: dict[torch.fx.Node, int]
) -> bool:
    """Whether `x[i] += 1` is what happens: x is next used to take in again, at that position, what was read."""
    later = [user for one in _sharing(origin) for user in one.users if places[user] > places[write]]
    after = sorted((user for user in later if writes_to(user) or not is_view(user)), key=lambda user: places[user])
    return bool(after) and _writes_back(after[0], node)


def _writes_back(write: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether a write puts what was read at a position there again."""
    if write.target is not torch.ops.aten.index_put_.default:
        return False
    same = _path(write.args[0]) == _path(node.args[0]) and write.args[1] == node.args[1]
    return same and write.args[2] in _sharing(node)


def _line(node: torch.fx.Node) -> str:
    return source_location(node) or ""
