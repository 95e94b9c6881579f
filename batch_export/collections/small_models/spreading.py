"""Weights that are constant by initialisation, spread, so that a file which forgets one is seen.

A module arrives and is changed in place. What is added is the same for the same name, whatever else is built.
"""

from __future__ import annotations

import zlib

import torch
from torch import nn

SPREAD = 0.1


def spread(model: nn.Module) -> None:
    """Adds small numbers, the same ones for the same names, to parameters and statistics that are constant."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            statistic = name.endswith(("running_mean", "running_var"))
            learnt = isinstance(tensor, nn.Parameter)
            if not tensor.is_floating_point() or not tensor.numel() or not (learnt or statistic):
                continue
            if bool((tensor == tensor.reshape(-1)[0]).all()):
                generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                noise = torch.rand(tensor.shape, generator=generator) - 0.5
                tensor.add_((noise * 2 * SPREAD).to(tensor.dtype))
