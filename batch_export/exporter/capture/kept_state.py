"""Models that stay as they were while they run, or while they are captured.

Arrives: modules, and whatever else holds state (example inputs, a callable). Leaves: the same objects with the same
content: parameters, buffers, plain attributes and what lists, dicts and objects in them hold, submodules, hooks,
training modes, gradients and generators of random numbers. Tensors stay the same tensors in the same memory: a captured
program shares them with its model, and both with the file's weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from batch_export.exporter.capture.kept_contents import Contents
from batch_export.exporter.capture.kept_tensors import KeptTensor
from batch_export.exporter.capture.written_parameters import CopiedParameters, WrittenParameters, copied_parameters


@contextlib.contextmanager
def state_kept(*holders: object) -> Iterator[None]:
    """Puts the state of modules (and of what else is given) back when it is left.

    What is written into the memory of parameters is not looked at, see `run_undone`: they are too large to be copied
    for nothing.
    """
    with _kept(holders):
        yield


@contextlib.contextmanager
def capture_undone(*holders: object) -> Iterator[None]:
    """The same without copies of any numbers: a capture runs on tensors without content."""
    with _kept(holders, with_values=False):
        yield


class _Kept:
    """The state of some holders as it is when this is made; it can be put back again and again."""

    def __init__(self, holders: Sequence[object], *, with_values: bool = True, with_weights: bool = False) -> None:
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():  # a mode would take its time for each look
            self.contents = Contents(holders)
            self._tensors = [
                KeptTensor(one, with_values=with_values and (with_weights or not self.contents.is_weight(one)))
                for one in self.contents.tensors
            ]

    def put_back(self) -> None:
        self.contents.put_back()
        with unset_fake_temporarily(), torch._C.DisableTorchFunction(), torch.no_grad():
            for tensor in self._tensors:
                tensor.put_back()


@contextlib.contextmanager
def _kept(holders: Sequence[object], *, with_values: bool = True, with_weights: bool = False) -> Iterator[None]:
    kept = _Kept(holders, with_values=with_values, with_weights=with_weights)
    try:
        yield
    finally:
        kept.put_back()


class RunsUndone:
    """Several runs with numbers, each of which finds the same state; it is looked at once for all of them.

    Nothing but these runs may change it in the meantime.
    """

    def __init__(self, *holders: object) -> None:
        self._holders = holders
        self._kept: _Kept | None = None
        self._copied: CopiedParameters | None = None

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Puts everything back when it is left, parameters too; these are copied when one is written, or if small."""
        kept = self._kept
        if kept is None:
            kept = self._kept = _Kept(self._holders)
            self._copied = copied_parameters(kept.contents.parameters)
        written = self._copied or WrittenParameters(kept.contents.parameters)
        try:
            with written:
                yield
        finally:
            kept.put_back()
            written.put_back()
            if kept.contents.has_iterators:  # these are as they were, and nobody looks at them any more
                self._kept = None


def run_undone(*holders: object) -> contextlib.AbstractContextManager[None]:
    """As `state_kept` for a run with numbers, which may write to parameters too."""
    return RunsUndone(*holders).run()


@contextlib.contextmanager
def trace_undone(*holders: object) -> Iterator[None]:
    """The same for torch.jit's tracer, which does not go together with a mode: all parameters are copied before."""
    with _kept(holders, with_weights=True):
        yield
