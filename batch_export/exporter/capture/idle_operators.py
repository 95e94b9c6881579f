"""Operators of a program that do nothing at some sizes: what is padded by nothing, cut nowhere, joined with nothing.

Arrives: a captured program and sizes of axes. Leaves: the operators that do something there, in their order. A model
that pads only where its length is no multiple (`if rest: x = torch.cat([x, zeros])`) calls fewer operators where it is
one, and gives the same as the program that pads by nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

Known = Callable[[Any], int | None]
"""Gives a size as a number; None where it is not known."""

_ATEN = torch.ops.aten
_KEEPING = frozenset(
    (
        *(_ATEN.constant_pad_nd.default, _ATEN.slice.Tensor, _ATEN.expand.default, _ATEN.repeat.default),
        *(_ATEN.pad.default, _ATEN.narrow.default),
    )
)
"""Operators that give what they get where that has the shape of the result."""


def is_idle(node: torch.fx.Node, known: Known) -> bool:
    """Whether an operator gives nothing, or what it gets, at such sizes.

    Args:
        node: of a program.
        known: the sizes.
    """
    shape = _shape(node, known)
    if shape is None:
        return False
    if 0 in shape:
        return True
    if node.target is _ATEN.cat.default:
        parts = node.args[0]
        filled = [one for one in parts if 0 not in (_shape(one, known) or ())]  # type: ignore[union-attr, arg-type]
        return len(filled) == 1 and filled[0].meta["val"].dtype == node.meta["val"].dtype  # type: ignore[union-attr]
    given = node.args[0] if node.args else None
    return node.target in _KEEPING and isinstance(given, torch.fx.Node) and _shape(given, known) == shape


def _shape(node: torch.fx.Node, known: Known) -> Sequence[int] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [known(size) for size in value.shape]
    return None if None in sizes else [size for size in sizes if size is not None]


def hinted(size: Any) -> int | None:
    """A size as it is in a program's own example.

    One that was not known when it was made (the length of a mask's end) may have been found to be an axis since.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node.has_hint():
        return int(size.node.hint)
    made = size.node.expr.xreplace(size.node.shape_env.backed_var_to_val)
    return int(made) if made.is_Integer else None


def at(sizes: Mapping[str, int]) -> Known:
    """Returns what gives sizes of a program, of which some axes have other sizes than in its example.

    Args:
        sizes: of the axes, by symbol.
    """

    def known(size: Any) -> int | None:
        if not isinstance(size, torch.SymInt):
            return int(size)
        symbols = size.node.expr.free_symbols
        if any(str(one) not in sizes for one in symbols):
            return None
        made = size.node.expr.xreplace({one: sympy.Integer(sizes[str(one)]) for one in symbols})
        return int(made) if made.is_Integer else None

    return known
