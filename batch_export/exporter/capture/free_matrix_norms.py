"""Norms and condition numbers of matrices of free sizes, for which torch's own forms fix every size.

Arrives: a call of `torch.linalg.matrix_norm`, `norm` or `cond` that is captured. Leaves: the same by operators that
take free sizes, or nothing where torch's form takes them itself. Source: the definitions in torch's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

_NAMES: Mapping[Callable[..., Any], tuple[str, ...]] = {
    torch.linalg.matrix_norm: ("A", "ord", "dim", "keepdim"),
    torch.linalg.norm: ("A", "ord", "dim", "keepdim"),
    torch.linalg.cond: ("A", "p"),
}
MATRIX_NORMS = frozenset(_NAMES)
_BY_SUMS = (1, -1, math.inf, -math.inf)
_BY_SINGULAR_VALUES = (2, -2)


def of_free_sizes(func: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> torch.Tensor | None:
    """The norm or the condition number; None where torch's own form is the one to capture."""
    bound = {"input": None, **dict(zip(_NAMES[func], args, strict=False)), **given}
    matrix = bound.pop("A", bound.pop("input", None))
    if bound.get("out") is not None or not isinstance(matrix, torch.Tensor):
        return None
    if not any(isinstance(size, torch.SymInt) for size in matrix.shape):
        return None
    if func is torch.linalg.cond:
        return _condition(matrix, bound.get("p"))
    dim = bound.get("dim", (-2, -1) if func is torch.linalg.matrix_norm else None)
    if dim is None and matrix.dim() == 2:
        dim = (0, 1)
    order = bound.get("ord", "fro" if func is torch.linalg.matrix_norm else None)
    if not isinstance(dim, (tuple, list)) or len(dim) != 2 or order not in (*_BY_SUMS, *_BY_SINGULAR_VALUES):
        return None
    dtype = bound.get("dtype")
    return _norm(matrix if dtype is None else matrix.to(dtype), order, dim, bool(bound.get("keepdim", False)))


def _norm(matrix: torch.Tensor, order: float, dim: tuple[int, ...] | list[int], keepdim: bool) -> torch.Tensor:
    rows, columns = (one % matrix.dim() for one in dim)
    if order in _BY_SINGULAR_VALUES:
        numbers: torch.Tensor = torch.linalg.svdvals(matrix.movedim((rows, columns), (-2, -1)))
        found = numbers.amax(-1) if order > 0 else numbers.amin(-1)
        for axis in sorted((rows, columns)) if keepdim else ():
            found = found.unsqueeze(axis)
        return found
    first, second = (rows, columns) if abs(order) == 1 else (columns, rows)
    sums = matrix.abs().sum(first, keepdim=True)
    found = sums.amax(second, keepdim=True) if order > 0 else sums.amin(second, keepdim=True)
    for axis in sorted((rows, columns), reverse=True) if not keepdim else ():
        found = found.squeeze(axis)
    return found


def _condition(matrix: torch.Tensor, order: Any) -> torch.Tensor | None:
    """By the inverse, which is infinite where there is none."""
    if order not in (*_BY_SUMS, "fro"):
        return None
    inverse, failed = torch.linalg.inv_ex(matrix)
    return torch.where(failed > 0, math.inf, _any_norm(matrix, order) * _any_norm(inverse, order))


def _any_norm(matrix: torch.Tensor, order: Any) -> torch.Tensor:
    return torch.linalg.vector_norm(matrix, 2, (-2, -1)) if order == "fro" else _norm(matrix, order, (-2, -1), False)
