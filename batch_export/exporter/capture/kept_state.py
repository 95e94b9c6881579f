"""Buffers that stay as they were while a module runs.

Arrives: a module. Leaves: the same tensors with the same values, in place: a captured program shares them with its
model, and both with the file's weights. Parameters and plain attributes are not looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def state_kept(module: torch.nn.Module) -> Iterator[None]:
    """Puts a module's buffers back when it is left."""
    held = [(one, dict(one._buffers)) for one in module.modules()]
    values = {buffer: buffer.detach().clone() for _, own in held for buffer in own.values() if buffer is not None}
    try:
        yield
    finally:
        for one, own in held:
            if isinstance(one._buffers, dict):  # a TorchScript module's cannot come or go
                one._buffers.clear()
            for name, buffer in own.items():
                if name not in one._buffers or one._buffers[name] is not buffer:
                    one._buffers[name] = buffer
        for buffer, value in values.items():
            _put_back(buffer, value)


def _put_back(buffer: torch.Tensor, value: torch.Tensor) -> None:
    if buffer.shape != value.shape or buffer.dtype != value.dtype:
        buffer.data = value
        return
    with torch.no_grad(), contextlib.suppress(RuntimeError):  # what torch does not write to, no run has written to
        buffer.copy_(value)
