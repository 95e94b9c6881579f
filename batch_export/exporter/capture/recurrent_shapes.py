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
_OPERATORS: tuple[torch._ops.OpOverload, ...] = (
    _aten.lstm.input,
    _aten.gru.input,
    _aten.rnn_tanh.input,
    _aten.rnn_relu.input,
)
_KEYS = (
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Autograd,
    torch._C.DispatchKey.Meta,
)


def _shapes(
    input: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    return results(input, hx, bidirectional)


def results(
    input: torch.Tensor, hx: torch.Tensor | Sequence[torch.Tensor], bidirectional: bool
) -> tuple[torch.Tensor, ...]:
    """Outputs and states of layers over an input of three axes, without numbers."""
    states = [hx] if isinstance(hx, torch.Tensor) else hx
    width = states[0].shape[2] * (2 if bidirectional else 1)
    output = input.new_empty([*input.shape[:2], width])
    return (output, *(state.new_empty(state.shape) for state in states))


@contextlib.contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Replaces what torch's Python dispatcher calls for recurrent layers; eager execution does not go through it.

    While a program is made functional, tensors without numbers reach the table of decompositions past the dispatcher.
    """
    kept = [(operator, dict(operator.py_kernels)) for operator in _OPERATORS]
    parts: dict[Any, Callable[..., object]] = torch._decomp.decomposition_table
    own_parts = {operator: parts[operator] for operator in _OPERATORS if operator in parts}
    for operator in _OPERATORS:
        parts[operator] = _shapes
        for key in _KEYS:
            operator.py_kernels[key] = _shapes
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in kept:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            del parts[operator]
            operator._dispatch_cache.clear()
        parts.update(own_parts)
