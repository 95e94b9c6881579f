"""Pieces of an axis that is too short for as many as the example has: empty in a file, where torch gives fewer.

Arrives: a captured program as a module, to be tried beside its model. Leaves: the program with slices in place of such
pieces, as the translation cuts them (`free_pieces`), so that a trial says what comes of the file. A model that asks
for a piece which is not there fails by itself, and one that goes over all pieces joins nothing more.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

_SPLIT = torch.ops.aten.split.Tensor
_CHUNK = torch.ops.aten.chunk.default
_SLICE = torch.ops.aten.slice.Tensor


def pieces_as_slices(program: torch.nn.Module) -> torch.nn.Module:
    """Returns the program with pieces of free axes as slices; it is changed in place."""
    graph = getattr(program, "graph", None)
    if isinstance(graph, torch.fx.Graph) and isinstance(program, torch.fx.GraphModule):
        for node in list(graph.nodes):
            if node.target in (_SPLIT, _CHUNK) and _is_of_free_size(node):
                _write_slices(graph, node)
        program.recompile()
    return program


def _axis(split: torch.fx.Node) -> int:
    axis = split.args[2] if len(split.args) > 2 else split.kwargs.get("dim", 0)
    return axis if isinstance(axis, int) else 0


def _is_of_free_size(split: torch.fx.Node) -> bool:
    """Whether pieces are shown with other sizes than numbers, and nothing but single ones is taken of them."""
    pieces = split.meta.get("val")
    taken = all(user.target is operator.getitem for user in split.users)
    return taken and isinstance(pieces, (list, tuple)) and any(not isinstance(_size(one, split), int) for one in pieces)


def _size(piece: torch.Tensor, split: torch.fx.Node) -> int | torch.SymInt:
    size: int | torch.SymInt = piece.shape[_axis(split)]
    return size


def _write_slices(graph: torch.fx.Graph, split: torch.fx.Node) -> None:
    whole, size = split.args[0], split.args[1]
    if split.target is _CHUNK:
        with graph.inserting_before(split):
            length = graph.call_function(torch.ops.aten.sym_size.int, (whole, _axis(split)))
            size = graph.call_function(operator.floordiv, (_sum(graph, length, size), size))
    for piece in list(split.users):
        place = piece.args[1]
        assert isinstance(place, int)
        with graph.inserting_before(piece):
            start, stop = (_times(graph, size, count) for count in (place, place + 1))
            cut = graph.call_function(_SLICE, (whole, _axis(split), start, stop))
        cut.meta = dict(piece.meta)
        piece.replace_all_uses_with(cut)
        graph.erase_node(piece)
    graph.erase_node(split)


def _sum(graph: torch.fx.Graph, length: torch.fx.Node, count: Any) -> torch.fx.Node:
    """A length and one less than a number of pieces, so that the quotient is rounded up."""
    less = count - 1 if isinstance(count, int) else graph.call_function(operator.sub, (count, 1))
    return graph.call_function(operator.add, (length, less))


def _times(graph: torch.fx.Graph, size: Any, count: int) -> Any:
    if isinstance(size, int) or count < 2:
        return 0 if count == 0 else size * count if isinstance(size, int) else size
    return graph.call_function(operator.mul, (size, count))
