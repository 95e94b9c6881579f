"""Copies to places along an axis that do not ask whether there are as many of them as of what is copied.

torch's decomposition of `index_copy` checks that, as eager does at every run. Where one of both sizes is free and the
other is not, the answer would be the example's.

Arrives: `index_copy` and its fake arguments. Leaves: the write that torch's decomposition makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., object]]:
    """The operators and their decompositions."""
    return {torch.ops.aten.index_copy.default: _index_copy}


def _index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> object:
    whole = x if x.dim() else x.unsqueeze(0)
    places = index if index.dim() else index.unsqueeze(0)
    before: list[torch.Tensor | None] = [None] * (dim % whole.dim())
    written = torch.ops.aten.index_put.default(whole, [*before, places], source)
    return written if x.dim() else written.squeeze(0)
