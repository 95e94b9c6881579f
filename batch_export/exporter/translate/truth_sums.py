"""Sums of truth values: the factor of what is added is a truth value as well, as eager takes it.

torch's decomposition of `index_add` multiplies by `alpha` as a number: of truth values and -1 it makes -1, which takes
away where eager adds.

Arrives: `index_add` and its fake arguments. Leaves: torch's decomposition of it with the factor in the tensor's kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., object]]:
    """The operators and their decompositions."""
    return {torch.ops.aten.index_add.default: _index_add}


def _index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float | bool = 1
) -> object:
    factor = bool(alpha) if x.dtype is torch.bool else alpha
    return torch._decomp.decomposition_table[torch.ops.aten.index_add.default](x, dim, index, source, alpha=factor)
