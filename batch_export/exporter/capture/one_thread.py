"""Small runs of a model in one thread: there several wait for one another for longer than they compute, and very long
where other programs use the processor, too.

Arrives: a model and its inputs. Leaves: a context in which torch computes with one thread where both are small. What a
model gives is the same but for roundings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

_WEIGHTS, _INPUTS = 2**24, 2**20
"""The elements of weights and of inputs up to which a run is small."""


@contextlib.contextmanager
def one_thread_if_small(module: torch.nn.Module, inputs: object) -> Iterator[None]:
    """Within, torch uses one thread where a run is small.

    Args:
        module: the model.
        inputs: its inputs, nested as they are.
    """
    threads = torch.get_num_threads()
    tensors = (one for one in pytree.tree_leaves(inputs) if isinstance(one, torch.Tensor))
    is_small = threads > 1 and sum(one.numel() for one in tensors) <= _INPUTS
    weights = (one.numel() for one in module.parameters() if not is_lazy(one))
    if not is_small or sum(weights) > _WEIGHTS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
