"""Weights that are one number throughout, as they are begun with, are any numbers for the time of some runs.

Arrives: a model and its captured program, which share their weights. Leaves: a context in which such weights hide
nothing that the model does with them. Behind it they are as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_MOST = 2**22
"""The most elements of a weight that is looked at."""
_REACH = 0.5


@contextlib.contextmanager
def perturbed_weights(module: torch.nn.Module, program: torch.nn.Module) -> Iterator[None]:
    """Within, parameters that both share and whose elements are all alike have other ones.

    Args:
        module: the model.
        program: the captured program as a module.
    """
    shared = {one.data_ptr() for one in program.parameters()}
    found = [
        (one, one.detach().clone())
        for one in module.parameters()
        if one.is_floating_point() and 0 < one.numel() <= _MOST and one.data_ptr() in shared and _is_one_number(one)
    ]
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for one, _ in found:
                drawn = torch.rand(one.shape, generator=generator, dtype=torch.float64) * 2 * _REACH - _REACH
                one.add_(drawn.to(one.dtype).to(one.device))
        yield
    finally:
        with torch.no_grad():
            for one, before in found:
                one.copy_(before)


def _is_one_number(one: torch.Tensor) -> bool:
    first = one.detach().reshape(-1)[0]
    return bool((one.detach() == first).all())
