"""What a model makes longer at some sizes only (`if n % 2: x = F.pad(x, (0, 1))`), and is the tensor itself at others.

Arrives: a node of a captured program. Leaves: what it pads, resizes or joins something to, or crops and copies, and
sizes at which eager does not; nothing where it always does. A capture pads by nothing there (`capture/taken_pads.py`),
joins what has no elements or copies all of it (`capture/chosen_parts.py`, `capture/taken_resizes.py`), which is a copy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch

from batch_export.exporter.capture import every_size
from batch_export.exporter.capture.taken_pads import IN_ORDER, TAKEN
from batch_export.exporter.capture.taken_resizes import RESIZED
from batch_export.exporter.graph.sizes import expression

_PADS = frozenset({torch.ops.aten.pad.default, torch.ops.aten.constant_pad_nd.default})
_CAT = torch.ops.aten.cat.default
_COPIES = frozenset({torch.ops.aten.clone.default, torch.ops.aten.contiguous.default})
_SMALL = range(1, 65)
_LARGEST = 2**16
"""The largest size that is looked at because an amount names it."""


def lengthened(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a node makes longer at the sizes at which the model asks for that, or crops; None for any other node."""
    if (resized := _resized(node)) is not None:
        return resized
    place = _place(node)
    if place is None or node.target not in (*_PADS, _CAT, *_COPIES):
        return None
    parts: Any = node.args[0] if node.target == _CAT else [node.args[0]]
    found = parts[place]
    while node.target in _COPIES and isinstance(found, torch.fx.Node) and _is_cut(found):
        found = found.args[0]
    return found if isinstance(found, torch.fx.Node) else None


def sizes_without(
    node: torch.fx.Node, allowed: Callable[[sympy.Symbol, int], bool]
) -> Mapping[sympy.Symbol, int] | None:
    """Sizes at which such a node pads by nothing; None where it has none.

    Args:
        node: the padding.
        allowed: which sizes the axes may have.
    """
    amounts = [_amount(one) for one in _lengths(node)]
    if any(one.is_Integer and one != 0 for one in amounts):
        return None
    symbols = sorted({symbol for one in amounts for symbol in one.free_symbols}, key=str)
    for sizes in _tried(symbols, amounts):
        is_allowed = all(allowed(symbol, size) for symbol, size in sizes.items())
        if is_allowed and all(one.xreplace(sizes) == 0 for one in amounts):
            return sizes
    return None


def may_copy(node: torch.fx.Node) -> torch.fx.Node | None:
    """The crop that a node copies, and that the model itself would copy only where it does not lie in its own order."""
    is_maybe = node.target in _COPIES and (node.meta.get("custom") or {}).get(IN_ORDER)
    return node.args[0] if is_maybe and isinstance(node.args[0], torch.fx.Node) else None


def _place(node: torch.fx.Node) -> int | None:
    place: int | None = (node.meta.get("custom") or {}).get(TAKEN)
    return place


def _resized(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a node resizes where it has other sizes; None for any other node."""
    chosen = node.args[0] if node.target is operator.getitem else None
    if not isinstance(chosen, torch.fx.Node) or RESIZED not in (chosen.meta.get("custom") or {}):
        return None
    operands: Any = chosen.args[3]
    found: torch.fx.Node = operands[0]
    return found


def _is_cut(node: torch.fx.Node) -> bool:
    return node.target == torch.ops.aten.slice.Tensor and _place(node) is not None


def _lengths(node: torch.fx.Node) -> list[Any]:
    """By how much the node makes it longer, or shorter."""
    if node.target in _COPIES or _resized(node) is not None:
        whole: Any = lengthened(node)
        return [of - kept for of, kept in zip(whole.meta["val"].shape, node.meta["val"].shape, strict=True)]
    if node.target != _CAT:
        amounts: Any = node.args[1]
        return list(amounts)
    parts, axis = (*node.args, 0)[:2]
    others: Any = [part for part in parts if part is not lengthened(node)]  # type: ignore[union-attr]
    return [part.meta["val"].shape[axis] for part in others]


def _amount(given: Any) -> sympy.Expr:
    number = given.meta["val"] if isinstance(given, torch.fx.Node) else given
    return expression(number) if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _tried(symbols: list[sympy.Symbol], amounts: list[sympy.Expr]) -> Iterator[Mapping[sympy.Symbol, int]]:
    """Small sizes and those that amounts go by, alike for all axes, then for one beside others of 1 or 2."""
    named = {abs(int(one)) + more for each in amounts for one in each.atoms(sympy.Integer) for more in (-1, 0, 1)}
    sizes = [*_SMALL, *sorted(one for one in named if _SMALL[-1] < one <= _LARGEST)]
    sizes += every_size.sizes(amounts) or ()
    yield from (dict.fromkeys(symbols, size) for size in sizes)
    for other in (1, 2):
        for symbol in symbols:
            yield from ({**dict.fromkeys(symbols, other), symbol: size} for size in sizes)
