"""Functions that mean something else where their arguments have certain sizes.

Arrives: a call of `torch.cross` without an axis, or of `torch.linalg.solve`, that is captured. Leaves: the same with
its meaning written out, or None where no free size decides it. torch takes no side on a free size inside of such
functions, and leaves no guard: asked for here, what decides is tried like an `if` of the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_CROSSES = (torch.cross, torch.Tensor.cross, torch.ops.aten.cross, torch.ops.aten.cross.default)
_SOLVES = (torch.linalg.solve, torch.linalg.solve_ex)


def decided(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """What the function gives, at the sizes that the guards of the capture then hold; None for every other call."""
    if function in _CROSSES:
        return _crossed(function, args, given)
    if function in _SOLVES:
        return _solved(function, args, given)
    return None


def _crossed(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> torch.Tensor | None:
    """Along the first axis of three elements, as eager takes it where no axis is named."""
    bound = {**dict(zip(("input", "other", "dim"), args, strict=False)), **given}
    left = bound.get("input", bound.get("self"))
    if bound.pop("dim", None) is not None or not isinstance(left, torch.Tensor) or not has_free(left.shape):
        return None
    axis = first_of_three(left.shape)
    if axis is None:
        return None
    crossed: torch.Tensor = function(*args[:2], **{**given, "dim": axis})
    return crossed


def _solved(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """For a batch of vectors where the right side has the shape of one for each matrix; for matrices elsewhere."""
    bound = {**dict(zip(("A", "B"), args, strict=False)), **given}
    matrix, right = bound.pop("A", None), bound.pop("B", None)
    if not (isinstance(matrix, torch.Tensor) and isinstance(right, torch.Tensor)) or bound.get("out") is not None:
        return None
    are_vectors = is_of_vectors(matrix.shape, right.shape)
    if are_vectors is None:
        return None
    if not are_vectors:
        return function(matrix, right.unsqueeze(0), **bound)  # as many axes as the matrices have: no vectors
    solved: Any = function(matrix, right.unsqueeze(-1), **bound)
    if isinstance(solved, torch.Tensor):
        return solved.squeeze(-1)
    return type(solved)((solved[0].squeeze(-1), *solved[1:]))


def first_of_three(shape: Sequence[Any]) -> int | None:
    """The first axis of three elements, of which a guard tells where the size is free."""
    return next((place for place, size in enumerate(shape) if bool(size == 3)), None)


def is_of_vectors(matrices: Sequence[Any], right: Sequence[Any]) -> bool | None:
    """Whether the right side has a vector for each matrix, of which a guard tells; None where no free size decides."""
    if len(right) < 2 or len(right) != len(matrices) - 1 or not has_free((*matrices, *right)):
        return None
    return all(bool(one == other) for one, other in zip(matrices[:-1], right, strict=True))


def has_free(sizes: Sequence[Any]) -> bool:
    """Whether some size is no plain number."""
    return any(isinstance(size, torch.SymInt) for size in sizes)
