"""During capture, pooling with `ceil_mode` has a length that is one formula of the input's length.

torch counts the windows, asks whether the last one begins behind the elements, and leaves it out if it does: which of
both it was in the example becomes a guard and the shown length, though the operator itself decides anew at every size.
While this is open the count is that of either case, which the settings alone decide between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import _meta_registrations

_LENGTH = "pooling_output_shape_pad_lr"


@contextlib.contextmanager
def pooled_sizes() -> Iterator[None]:
    """Replaces what gives torch these lengths; by a private function: a torch without it stays as it is."""
    original: Callable[..., Any] | None = getattr(_meta_registrations, _LENGTH, None)
    if original is None:
        yield
        return

    def length(size: Any, kernel: Any, left: Any, right: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
        settings = (kernel, left, right, stride, dilation)
        if (
            not ceil_mode
            or not isinstance(size, torch.SymInt)
            or any(isinstance(one, torch.SymInt) for one in settings)
        ):
            return original(size, *settings, ceil_mode)
        beyond = right - dilation * (kernel - 1) - 1
        if beyond > 0:  # then a second window might begin behind the elements
            return original(size, *settings, ceil_mode)
        return (size + left + stride + min(beyond + stride - 1, -1)) // stride

    setattr(_meta_registrations, _LENGTH, length)
    try:
        yield
    finally:
        setattr(_meta_registrations, _LENGTH, original)
