"""Operators of a captured program that mean something else where their operands have certain sizes.

Arrives: a program of a strategy that calls no function of `deciding_sizes.py` by its own form. Leaves: the program with
what the operators mean at the example's sizes written out, and a guard for what decides it. By itself such an operator
would be decided when it is translated, and no trial would see it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.exporter.capture.deciding_sizes import first_of_three, has_free, is_of_vectors

aten = torch.ops.aten
_SOLVES = (aten.linalg_solve.default, aten.linalg_solve_ex.default)
_KEPT: tuple[str, ...] = ("stack_trace", "nn_module_stack")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def decide(program: torch.export.ExportedProgram) -> None:
    """Writes out what such operators mean, in place; what torch asks for that is a guard of the program.

    Args:
        program: as torch captured it, in this process.
    """
    graphs = [one for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    for graph in graphs:
        found = [node for node in graph.graph.nodes if node.target in (aten.cross.default, *_SOLVES)]
        for node in found:
            values = [one.meta.get("val") for one in node.args[:2] if isinstance(one, torch.fx.Node)]
            tensors = [one for one in values if isinstance(one, torch.Tensor)]
            if len(tensors) == 2:
                with _at_line(node):
                    (_write_axis if node.target is aten.cross.default else _write_vectors)(node, *tensors)
        if found:
            graph.recompile()


def _write_axis(node: torch.fx.Node, left: torch.Tensor, right: torch.Tensor) -> None:
    del right
    if len(node.args) < 3 and node.kwargs.get("dim") is None and has_free(left.shape):
        axis = first_of_three(left.shape)
        if axis is not None:
            node.args, node.kwargs = (*node.args[:2], axis), {}


def _write_vectors(node: torch.fx.Node, matrix: torch.Tensor, right: torch.Tensor) -> None:
    """Vectors as matrices of one column; matrices with as many axes as those that they are solved by have."""
    are_vectors = is_of_vectors(matrix.shape, right.shape)
    if are_vectors is None:
        return
    with node.graph.inserting_before(node):
        longer = _called(node, aten.unsqueeze.default, node.args[1], -1 if are_vectors else 0)
    node.args = (node.args[0], longer, *node.args[2:])
    if not are_vectors:
        return
    if node.target is aten.linalg_solve_ex.default:
        node.meta["val"] = node.target(matrix, longer.meta["val"], *node.args[2:], **node.kwargs)
        for taken in [one for one in node.users if one.args[1:] == (0,)]:
            _squeeze_after(taken)
    else:
        _squeeze_after(node)


def _squeeze_after(node: torch.fx.Node) -> None:
    """What a node gives without its last axis, in the node's place and under its name, by which outputs go."""
    operator: Any = node.target
    with node.graph.inserting_before(node):
        solved = _called(node, operator, *node.args, **node.kwargs)
    node.target, node.args, node.kwargs = aten.squeeze.dim, (solved, -1), {}


def _called(beside: torch.fx.Node, operator: Callable[..., Any], *args: Any, **given: Any) -> torch.fx.Node:
    made = beside.graph.call_function(operator, args, given)
    kept: dict[str, Any] = {key: beside.meta[key] for key in _KEPT if key in beside.meta}
    values = [one.meta["val"] if isinstance(one, torch.fx.Node) else one for one in args]
    made.meta = {**kept, "val": operator(*values, **given)}
    return made


@contextlib.contextmanager
def _at_line(node: torch.fx.Node) -> Iterator[None]:
    """Within, guards have the line of the model that called an operator."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    located: Any = ShapeEnv._get_sloc

    def at_line(environment: ShapeEnv, framework_loc: str | None = None) -> Any:
        given = located(environment, framework_loc)
        return type(given)(given.framework_loc, ":".join(frames[-1])) if frames else given

    with patch.object(ShapeEnv, "_get_sloc", at_line):
        yield
