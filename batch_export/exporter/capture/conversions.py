"""Conversions of modules in a forward: `module.to(...)`, `float()`, `half()` and the like, as eager's module sees them.

Arrives: the module that is captured. Leaves: a context in which a conversion puts the converted weights in the place of
those of before, in every module that shares them. torch would exchange a weight in place, and during capture it cannot:
traced tensors stand for the weights. That the model has its own weights again afterwards is `kept_state.py`'s business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from unittest.mock import patch

import torch
from torch import nn


@contextlib.contextmanager
def conversions(root: torch.nn.Module) -> Iterator[None]:
    """Within, modules are converted without exchanging tensors in place; what stays as it is, is left alone."""

    def apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for parameter in [one for one in self._parameters.values() if one is not None]:
            with torch.no_grad():
                converted = fn(parameter)
            if converted is not parameter:
                _put(converted, parameter, (self, *root.modules()))
        for name, buffer in list(self._buffers.items()):
            if buffer is not None and (new := fn(buffer)) is not buffer:
                setattr(self, name, new)  # as an assignment in forward, which is followed
        return self

    with patch.object(nn.Module, "_apply", apply):
        yield


def _put(converted: torch.Tensor, parameter: torch.Tensor, modules: tuple[nn.Module, ...]) -> None:
    """Puts a converted parameter in the place of the one of before, wherever a module has it."""
    for module in modules:
        held: dict[str, torch.Tensor | None] = module._parameters  # type: ignore[assignment]
        for other in [key for key, one in held.items() if one is parameter]:
            held[other] = converted
