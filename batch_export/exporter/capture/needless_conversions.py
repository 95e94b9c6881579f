"""Conversions of a module to the dtype and device that it has already: they change nothing, and capture stumbles there.

Nothing arrives. Leaves: a context in which `module.to(...)`, `float()`, `half()` and the like, called in a forward,
leave a module alone whose tensors are what they would become. torch itself would put each tensor back where it was, and
during capture it cannot: the weights are traced in their place. Conversions that change something are torch's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

_DTYPES = {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16}


@contextlib.contextmanager
def needless_conversions() -> Iterator[None]:
    """Within, modules that are converted to what they are stay as they are."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(nn.Module, "to", _to(nn.Module.to)))
        for name, dtype in _DTYPES.items():
            stack.enter_context(patch.object(nn.Module, name, _as(getattr(nn.Module, name), dtype)))
        yield


def _to(original: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    @wraps(original)
    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        parsed: tuple[Any, ...] = torch._C._nn._parse_to(*args, **kwargs)
        device, dtype, _, memory_format = parsed
        return self if memory_format is None and _is_already(self, device, dtype) else original(self, *args, **kwargs)

    return to


def _as(original: Callable[..., nn.Module], dtype: torch.dtype) -> Callable[..., nn.Module]:
    @wraps(original)
    def converted(self: nn.Module) -> nn.Module:
        return self if _is_already(self, None, dtype) else original(self)

    return converted


def _is_already(module: nn.Module, device: torch.device | None, dtype: torch.dtype | None) -> bool:
    """Whether a conversion would change no parameter and no buffer; dtypes concern floating-point ones only."""
    return all(
        (device is None or tensor.device == device)
        and (dtype is None or tensor.dtype == dtype or not (tensor.is_floating_point() or tensor.is_complex()))
        for tensor in (*module.parameters(), *module.buffers())
    )
