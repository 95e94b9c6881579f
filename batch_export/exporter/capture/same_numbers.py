"""Random numbers that are the same in each run that is compared with another one.

Arrives: nothing. Leaves: generators as after `torch.manual_seed(0)`. That one also remembers the call, with its stack,
for every kind of device that was never used, which takes longer than many a small model does.
"""

from __future__ import annotations

import torch

_LAZY = (torch.cuda, torch.xpu, torch.mtia)
"""Devices that are begun when they are first used."""


def seed_all() -> None:
    """Seeds the generators of the processor and of all devices that are in use."""
    if any(device.is_initialized() for device in _LAZY) or torch.backends.mps.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)
