"""Whether gradients are recorded while a model is captured or run.

Models are captured and run without recording. One that takes gradients itself, and leaves the recording to whoever
calls it, is captured and run with it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final
from weakref import WeakSet

import torch
from torch.utils import _pytree as pytree

_MISSING = ("does not require grad", "is made by torch.autograd")
"""What is said where nothing was recorded that a gradient could be taken of, and of results that are still recorded."""
_AS_IT_IS: Final = object()
_WITH_GRADIENTS: WeakSet[Any] = WeakSet()


def is_of_recording(error: BaseException) -> bool:
    """Whether a model may have failed because nothing is recorded, or too much, where its caller would record."""
    return torch.is_grad_enabled() and any(words in str(error) for words in _MISSING)


def record_for(module: torch.nn.Module) -> bool:
    """From now on, gradients are recorded while this model runs, and the function that it was made of.

    Returns:
        Whether they were not before.
    """
    is_new = not _is_recorded(module)
    _WITH_GRADIENTS.add(module)
    if isinstance(function := vars(module).get("_function"), FunctionType):
        _WITH_GRADIENTS.add(function)
    return is_new


def _is_recorded(model: object) -> bool:
    return isinstance(model, (torch.nn.Module, FunctionType)) and model in _WITH_GRADIENTS


@contextlib.contextmanager
def recording(module: Any) -> Iterator[None]:
    """The context in which a model is captured or run: gradients are recorded in its forward, or nowhere."""
    with torch.set_grad_enabled(isinstance(module, FunctionType) and _is_recorded(module)):
        if not isinstance(module, torch.nn.Module) or not _is_recorded(module):
            yield
            return
        own = vars(module).get("forward")
        module.forward = _recorded(module.forward, own)
        try:
            yield
        finally:
            if own is None:
                del module.forward
            else:
                module.forward = own


def _recorded(forward: Any, own: object) -> Any:
    """A forward that records gradients, and gives tensors that are no part of what is recorded."""

    @functools.wraps(forward)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            found = forward(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, found)

    recorded.instead_of = own  # type: ignore[attr-defined]
    return recorded


def without_recording(attributes: dict[str, object]) -> dict[str, object]:
    """A module's attributes as they are without `recording`."""
    own = getattr(attributes.get("forward"), "instead_of", _AS_IT_IS)
    if own is _AS_IT_IS:
        return attributes
    others = {name: value for name, value in attributes.items() if name != "forward"}
    return others if own is None else {**others, "forward": own}
