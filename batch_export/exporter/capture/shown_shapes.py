"""The shapes that a captured program shows for its values, held against those that they have at some sizes.

Arrives: a captured program as a module, inputs, and the sizes of the axes in it. Leaves: the first value that has
another shape than the program says, in words, and which axes of which values are others. A program may be right at
sizes at which a condition of its capture is false, since torch's operators go by what they are given; a translation
goes by the shapes that are shown, all but that of operators which work on elements one by one: what only they take may
go without a size (`x[:, :1] * x`, whose one column is none where x has none).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import run_undone

NOT_SHOWN = "batch_export_not_shown"
"""Where a node keeps the axes of its value that are not always as long as is shown."""
_VIEWS = ("slice.Tensor", "expand", "expand_as", "clone", "contiguous", "alias", "detach")
_CASTS = ("_to_copy", "to.dtype", "to.dtype_layout")
_MADE_BY = frozenset(f"aten::{name}" for name in (*_VIEWS, *_CASTS))
_TAKEN_BY = _MADE_BY | {"aten::cat", "aten::_assert_tensor_metadata"}
"""Operators beside those on single elements that are translated by no size of what they are given."""


_ROUNDS = 3
"""Of a loop, so many rounds are watched."""


@dataclass(slots=True)
class OtherShapes:
    """What has another shape than is shown.

    Attributes:
        first: the first such value, in words; empty where there is none.
        axes: the name of a node -> the axes of its value, where those alone are others, and empty in fact.
        beside: whether anything else is another one.
    """

    first: str = ""
    axes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    beside: bool = False


class _Watching(torch.fx.Interpreter):
    """Runs a graph node by node and notes those whose tensors are not of the shapes in its metadata."""

    def __init__(self, program: torch.fx.GraphModule, value: Callable[[str], int]) -> None:
        super().__init__(program)
        self.extra_traceback = False
        self.found = OtherShapes()
        self._value = value

    def run_node(self, n: torch.fx.Node) -> object:
        """Called by torch for each node."""
        result: object = super().run_node(n)
        shown, made = pytree.tree_leaves(n.meta.get("val")), pytree.tree_leaves(result)
        if n.op != "output" and len(shown) == len(made):
            for pair in zip(shown, made, strict=True):
                if words := self._differ(*pair):
                    self._note(n, words, *pair)
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called by torch for each operator; the branches and rounds of some are graphs of their own."""
        if isinstance(target, torch._ops.HigherOrderOperator):
            args = tuple(self._watched(one) if isinstance(one, torch.fx.GraphModule) else one for one in args)
        return super().call_function(target, args, kwargs)

    def _watched(self, graph: torch.fx.GraphModule) -> Callable[..., object]:
        """A branch or a round, of which the first few runs are watched. Sizes of nothing are not known there."""
        runs = itertools.count()

        def run(*given: object) -> object:
            if next(runs) >= _ROUNDS:
                return graph(*given)
            inner = _Watching(graph, self._value)
            result: object = inner.run(*given, enable_io_processing=False)
            if inner.found.beside:
                self.found.first, self.found.beside = self.found.first or inner.found.first, True
            return result

        return run

    def _note(self, node: torch.fx.Node, words: str, shown: object, made: object) -> None:
        self.found.first = self.found.first or f"{node.name}: {words}"
        if isinstance(node.meta["val"], torch.Tensor) and isinstance(shown, torch.Tensor):
            assert isinstance(made, torch.Tensor)
            pairs = enumerate(zip(shown.shape, made.shape, strict=True))
            axes = [axis for axis, (one, size) in pairs if not _is_as_shown(self._size(one), size)]
            if all(made.shape[axis] == 0 for axis in axes):
                self.found.axes[node.name] = tuple(axes)
                return
        self.found.beside = True

    def _differ(self, shown: object, made: object) -> str:
        if isinstance(shown, torch.SymInt) and isinstance(made, int):
            return f"{made} in place of {shown}" if self._size(shown) not in (None, made) else ""
        if not isinstance(shown, torch.Tensor) or not isinstance(made, torch.Tensor) or shown.dim() != made.dim():
            return ""
        sizes: list[object] = list(shown.shape)
        differ = any(not _is_as_shown(self._size(one), size) for one, size in zip(sizes, made.shape, strict=True))
        return f"{list(made.shape)} in place of {list(shown.shape)}" if differ else ""

    def _size(self, shown: object) -> int | None:
        """What a size is; None for one that goes by the data."""
        if not isinstance(shown, torch.SymInt):
            return int(shown)  # type: ignore[call-overload,no-any-return]
        expression: sympy.Basic = shown.node.expr
        try:
            known = {symbol: sympy.Integer(self._value(str(symbol))) for symbol in expression.free_symbols}
        except KeyError:
            return None
        number = expression.xreplace(known)
        return int(number) if number.is_number else None


def _is_as_shown(shown: int | None, made: int) -> bool:
    """Whether a size is what is shown; what is left of an axis that is cut by more than it has is shown below 0."""
    return shown is None or shown == made or (shown < 0 and made == 0)


def other_shapes(
    program: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], value: Callable[[str], int]
) -> OtherShapes:
    """The values of other shapes than the program shows.

    Args:
        program: `ExportedProgram.module(check_guards=False)`.
        args: positional inputs, which the program may change.
        kwargs: keyword inputs, likewise.
        value: torch's symbol -> its size; KeyError for one that is no axis of an input.
    """
    if not isinstance(program, torch.fx.GraphModule):
        return OtherShapes()
    watching = _Watching(program, value)
    leaves = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs)))]
    with run_undone(program), settings_kept(), torch.no_grad():
        watching.run(*leaves, enable_io_processing=False)
    return watching.found


def is_free_of_sizes(graph: torch.fx.Graph, axes: Mapping[str, Sequence[int]]) -> bool:
    """Whether values of a program are made and taken by operators alone that go by no size that is shown for them.

    Args:
        graph: the program's.
        axes: their names -> the axes whose sizes are not as shown.
    """
    nodes = {node.name: node for node in graph.nodes if node.op == "call_function"}
    made = [nodes.get(name) for name in axes]
    return all(
        node is not None and _is_one_of(node, _MADE_BY) and all(_takes_any_size(user, node) for user in node.users)
        for node in made
    )


def _takes_any_size(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether an operator goes by no size of a value; one that writes may take it as a further one (`y += value`)."""
    target = user.target
    is_write = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    if is_write and isinstance(target, torch._ops.OpOverload):
        return torch.Tag.pointwise in target.tags and user.args[0] is not node and not user.kwargs
    return _is_one_of(user, _TAKEN_BY)


def _is_one_of(node: torch.fx.Node, names: frozenset[str]) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return torch.Tag.pointwise in target.tags or target.name() in names


def keep_apart(graph: torch.fx.Graph, axes: Mapping[str, Sequence[int]]) -> None:
    """Notes with nodes which axes of their values are not always as long as they show, see `NOT_SHOWN`."""
    for node in graph.nodes:
        if node.name in axes:
            node.meta[NOT_SHOWN] = tuple(sorted({*node.meta.get(NOT_SHOWN, ()), *axes[node.name]}))
