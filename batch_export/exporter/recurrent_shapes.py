"""During capture, recurrent layers are one operator whose result has a known shape, not a loop that is unrolled.

torch finds the shapes of `aten.lstm`, `aten.gru` and `aten.rnn_*` by running their steps one by one in Python, which
fixes the length of the sequence and takes time for each step. While this is open the shapes are those of torch's
documentation instead: the length, the batch (or the batch, the length) and `directions * hidden` for the outputs, and
for the states what they were. Nothing but shapes is computed during capture, so no number can differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_KEYS = (
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Autograd,
    torch._C.DispatchKey.Meta,
)


def _output(input: torch.Tensor, state: torch.Tensor, bidirectional: bool) -> torch.Tensor:
    return input.new_empty([*input.shape[:2], state.shape[2] * (2 if bidirectional else 1)])


def _lstm(
    input: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    return _output(input, hx[0], bidirectional), hx[0].new_empty(hx[0].shape), hx[1].new_empty(hx[1].shape)


def _one_state(
    input: torch.Tensor,
    hx: torch.Tensor,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    return _output(input, hx, bidirectional), hx.new_empty(hx.shape)


_SHAPES: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (_aten.lstm.input, _lstm),
    (_aten.gru.input, _one_state),
    (_aten.rnn_tanh.input, _one_state),
    (_aten.rnn_relu.input, _one_state),
)


@contextlib.contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Replaces what torch's Python dispatcher calls for recurrent layers; eager execution does not go through it."""
    kept = [(operator, dict(operator.py_kernels)) for operator, _ in _SHAPES]
    for operator, function in _SHAPES:
        for key in _KEYS:
            operator.py_kernels[key] = function
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in kept:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
