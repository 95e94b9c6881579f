"""The shapes that a captured program shows for its values, held against those that they have at some sizes.

Arrives: a captured program as a module, inputs, and the sizes of the axes in it. Leaves: the first value that has
another shape than the program says, in words. A program may be right at sizes at which a condition of its capture is
false, since torch's operators go by what they are given; a translation goes by the shapes that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy
import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import run_undone


class _Watching(torch.fx.Interpreter):
    """Runs a graph node by node and notes the first one whose tensors are not of the shapes in its metadata."""

    def __init__(self, program: torch.fx.GraphModule, value: Callable[[str], int]) -> None:
        super().__init__(program)
        self.extra_traceback = False
        self.found = ""
        self._value = value

    def run_node(self, n: torch.fx.Node) -> object:
        """Called by torch for each node."""
        result: object = super().run_node(n)
        if not self.found:
            shown, made = pytree.tree_leaves(n.meta.get("val")), pytree.tree_leaves(result)
            if len(shown) == len(made):
                self.found = next(
                    (f"{n.name}: {one}" for pair in zip(shown, made, strict=True) if (one := self._differ(*pair))), ""
                )
        return result

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


def other_shape(
    program: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], value: Callable[[str], int]
) -> str:
    """The first value of another shape than the program shows, with both; empty where there is none.

    Args:
        program: `ExportedProgram.module(check_guards=False)`.
        args: positional inputs, which the program may change.
        kwargs: keyword inputs, likewise.
        value: torch's symbol -> its size; KeyError for one that is no axis of an input.
    """
    if not isinstance(program, torch.fx.GraphModule):
        return ""
    watching = _Watching(program, value)
    leaves = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs)))]
    with run_undone(program), settings_kept(), torch.no_grad():
        watching.run(*leaves, enable_io_processing=False)
    return watching.found
