"""Padding that a model leaves out at some sizes (`if n % 2: x = F.pad(x, (0, 1))`), where it is the tensor itself.

Arrives: a node of a captured program. Leaves: what it pads, and sizes at which eager does not; nothing where it always
pads. A capture pads by nothing there (`capture/taken_pads.py`), which is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
import torch

from batch_export.exporter.capture.taken_pads import TAKEN
from batch_export.exporter.graph.sizes import expression

_PADS = frozenset({torch.ops.aten.pad.default, torch.ops.aten.constant_pad_nd.default})
_SMALL = range(1, 65)
_LARGEST = 2**16
"""The largest size that is looked at because an amount names it."""


def skipped(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a node pads at the sizes at which the model asks for that; None for any other node."""
    is_taken = node.target in _PADS and TAKEN in (node.meta.get("custom") or {})
    return node.args[0] if is_taken and isinstance(node.args[0], torch.fx.Node) else None


def sizes_without(
    node: torch.fx.Node, allowed: Callable[[sympy.Symbol, int], bool]
) -> Mapping[sympy.Symbol, int] | None:
    """Sizes at which such a node pads by nothing; None where it has none.

    Args:
        node: the padding.
        allowed: which sizes the axes may have.
    """
    listed: Any = node.args[1]
    amounts = [_amount(one) for one in listed]
    if any(one.is_Integer and one != 0 for one in amounts):
        return None
    symbols = sorted({symbol for one in amounts for symbol in one.free_symbols}, key=str)
    for sizes in _tried(symbols, amounts):
        is_allowed = all(allowed(symbol, size) for symbol, size in sizes.items())
        if is_allowed and all(one.xreplace(sizes) == 0 for one in amounts):
            return sizes
    return None


def _amount(given: Any) -> sympy.Expr:
    number = given.meta["val"] if isinstance(given, torch.fx.Node) else given
    return expression(number) if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _tried(symbols: list[sympy.Symbol], amounts: list[sympy.Expr]) -> Iterator[Mapping[sympy.Symbol, int]]:
    """Small sizes and those that amounts name, alike for all axes, then for one beside others of 1 or 2."""
    named = {abs(int(one)) + more for each in amounts for one in each.atoms(sympy.Integer) for more in (-1, 0, 1)}
    sizes = [*_SMALL, *sorted(one for one in named if _SMALL[-1] < one <= _LARGEST)]
    yield from (dict.fromkeys(symbols, size) for size in sizes)
    for other in (1, 2):
        for symbol in symbols:
            yield from ({**dict.fromkeys(symbols, other), symbol: size} for size in sizes)
