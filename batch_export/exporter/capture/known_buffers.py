"""Whole numbers in buffers that are no part of a model's state: settings, which stay known while torch captures.

Arrives: nothing; a context is opened round a capture. Leaves: torch as it was. A layer that keeps its stride in a
tensor (`register_buffer("stride", torch.tensor(4), persistent=False)`) decides nothing by data where it asks it, and
no weights that are applied later have another. What forward writes to is not known: the next call finds it otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

_MODULE, _NAME = "torch.export._trace", "_fakify_params_buffers"
_WHOLE = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})


@contextlib.contextmanager
def known_buffers() -> Iterator[list[tuple[FakeTensor, int]]]:
    """While open, a capture knows such buffers; it gives what stands in for each of them, and its number.

    NOTE: a private function of torch that makes stand-ins of buffers is wrapped; without it they are data, as before.
    """
    trace: Any = importlib.import_module(_MODULE)
    own: Callable[..., Any] | None = getattr(trace, _NAME, None)
    known: list[tuple[FakeTensor, int]] = []
    if own is None:
        yield known
        return

    def made(mode: Any, module: torch.nn.Module) -> Any:
        stand_ins = own(mode, module)
        for name, buffer in _settings(module):
            stand_in = stand_ins.get(name)
            if isinstance(stand_in, FakeTensor) and stand_in.constant is None:
                with _disable_current_modes():
                    stand_in.constant, number = buffer.detach().clone(), int(buffer)
                mode.fake_tensor_converter.add_constant_storage_mapping(stand_in)
                known.append((stand_in, number))
        return stand_ins

    setattr(trace, _NAME, made)
    try:
        yield known
    finally:
        setattr(trace, _NAME, own)


def _settings(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers of one whole number that the module's state dict leaves out, by name."""
    for path, owner in module.named_modules(remove_duplicate=False):
        for name in owner._non_persistent_buffers_set:
            buffer = owner._buffers.get(name)
            if buffer is None or isinstance(buffer, FakeTensor) or buffer.device.type != "cpu":
                continue
            if buffer.dim() == 0 and buffer.dtype in _WHOLE:
                yield f"{path}.{name}".removeprefix("."), buffer


def are_written(known: Sequence[tuple[FakeTensor, int]]) -> bool:
    """Whether a capture that ended wrote other numbers to some of these, or what it does not know."""
    return any(one.constant is None or int(one.constant) != number for one, number in known)
