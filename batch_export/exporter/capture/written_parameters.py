"""Parameters that a run writes to: each one is copied the moment before it is written for the first time.

Arrives: parameters, and operators as they run. Leaves: the parameters with the numbers that they had. What no operator
of torch writes (another language's code) is not seen. Where parameters are small, all are copied before the run, which
takes less than a look at every operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from batch_export.exporter.capture.kept_tensors import memory_of, same_bytes

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_SMALL = 1 << 15
"""Bytes of a parameter, in the mean of all, that are copied and compared faster than operators are looked at."""


class WrittenParameters(TorchDispatchMode):
    """While on, notes the numbers of parameters before they change, whichever view of them is written to."""

    supports_higher_order_operators = True

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of: dict[int, list[torch.Tensor]] = {}
        for one in parameters:
            memory = None if isinstance(one, FakeTensor) or one.is_meta else memory_of(one)
            if memory is not None:
                self._of.setdefault(memory, []).append(one)
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Called by torch for every operator."""
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            for tensor in _tensors((*args, *kwargs.values())):
                memory = memory_of(tensor)
                for one in self._of.pop(memory, ()) if memory is not None else ():
                    self._before.append((one.data, one.detach().clone()))
        return func(*args, **kwargs)

    def put_back(self) -> None:
        """Gives the parameters their numbers again."""
        before, self._before = self._before, []
        with torch.no_grad():
            for memory, values in before:
                with contextlib.suppress(RuntimeError):
                    memory.copy_(values)


class CopiedParameters:
    """Parameters that are all copied, and after a run compared with their copies, as often as one likes."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        with unset_fake_temporarily(), torch._C.DisableTorchFunction(), torch.no_grad():
            self._before = [(one.data, one.detach().clone()) for one in parameters]

    def __enter__(self) -> None:
        """For the time of a run, in the place of a mode."""

    def __exit__(self, *_: object) -> None:
        """Whatever the run ended with, the numbers are put back by a call of its own."""

    def put_back(self) -> None:
        """Gives the parameters that have others their numbers again."""
        with unset_fake_temporarily(), torch._C.DisableTorchFunction(), torch.no_grad():
            for memory, values in self._before:
                if not same_bytes(memory, values):
                    with contextlib.suppress(RuntimeError):
                        memory.copy_(values)


def copied_parameters(parameters: Sequence[torch.Tensor]) -> CopiedParameters | None:
    """Copies of parameters that are small, plain and in this machine's memory; None where they are not."""
    if any(type(one) not in _PLAIN or one.device.type != "cpu" or one.layout != torch.strided for one in parameters):
        return None
    if sum(one.nbytes for one in parameters) > _SMALL * len(parameters):
        return None
    return CopiedParameters(parameters)


def _tensors(arguments: Sequence[Any]) -> Iterator[torch.Tensor]:
    for one in arguments:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _tensors(one)
