"""Recurrent operators of a captured program refuse a state that does not fit their input, as the layers do in Python.

Nothing arrives. Leaves: a context round a run of a program. Torch (2.13) has that check in `torch.nn` alone: the
operator itself reads and writes beyond a state of fewer sequences, and ends the process later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
_OF_INPUT = frozenset({aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input})
_LAYERS, _BOTH_WAYS, _BATCH_FIRST = 4, 7, 8
"""Places among the operators' arguments."""


class StatesChecked(TorchFunctionMode):
    """Within, such an operator raises an error instead."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _OF_INPUT and len(args) > _BATCH_FIRST:
            _check(args[0], args[1], args)
        return func(*args, **dict(kwargs or {}))


def _check(given: Tensor, state: Tensor | Sequence[Tensor], args: Sequence[Any]) -> None:
    if given.dim() != 3:
        return
    batch = given.shape[0 if args[_BATCH_FIRST] else 1]
    count = args[_LAYERS] * (2 if args[_BOTH_WAYS] else 1)
    for one in [state] if isinstance(state, Tensor) else state:
        if one.dim() != 3 or one.shape[0] != count or one.shape[1] != batch:
            raise RuntimeError(f"the state of a recurrent layer is {tuple(one.shape)} beside {batch} sequences")
