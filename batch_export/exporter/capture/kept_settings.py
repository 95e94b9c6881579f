"""Settings of the whole process that a model's code may change: random numbers, dtypes, gradients, precision.

Arrives: nothing; a context is opened round what runs a model. Leaves: the settings that there were.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

_DEVICES = ("cpu", "cuda")
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_num_threads, torch.set_num_threads),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda mode: torch.use_deterministic_algorithms(mode[0], warn_only=mode[1]),
    ),
    (
        lambda: [(one, torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in _DEVICES],
        lambda states: _set_autocast(states),
    ),
)
"""What says how a setting stands, and what makes it so; only a changed one is set."""


def _set_autocast(states: Sequence[tuple[str, bool, torch.dtype]]) -> None:
    for device, enabled, dtype in states:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Puts the settings back when it is left, and the generators of random numbers of torch, numpy and Python."""
    before = [read() for read, _ in _SETTINGS]
    drawn, legacy, generator = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        for (read, write), value in zip(_SETTINGS, before, strict=True):
            if read() != value:
                write(value)
        random.setstate(drawn)
        np.random.set_state(legacy)
        torch.set_rng_state(generator)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
