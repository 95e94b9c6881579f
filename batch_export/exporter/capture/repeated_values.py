"""During capture, unique values along an axis counted from the end have the shape that they have in eager.

torch finds the shapes of `unique_consecutive` and `unique_dim` by slices of the sizes before and behind the axis, which
give two axes too many where it is counted from the end (`dim=-1`). While this is open it is counted from the front.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls

_SHAPES = "_unique"


@contextlib.contextmanager
def repeated_values() -> Iterator[None]:
    """Replaces what gives torch these shapes; by a private function: a torch without it stays as it is."""
    original: Callable[..., object] | None = getattr(fake_impls, _SHAPES, None)
    if original is None:
        yield
        return

    def shapes(mode: object, operator: object, arg: torch.Tensor, dim: int | None, *rest: Any, **given: Any) -> object:
        return original(mode, operator, arg, dim if dim is None else dim % max(arg.dim(), 1), *rest, **given)

    setattr(fake_impls, _SHAPES, shapes)
    try:
        yield
    finally:
        setattr(fake_impls, _SHAPES, original)
