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
from batch_export.exporter.capture.written_parameters import WrittenParameters


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


@contextlib.contextmanager
def _kept(holders: Sequence[object], *, with_values: bool = True, with_weights: bool = False) -> Iterator[Contents]:
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():  # a mode would take its time for each look
        contents = Contents(holders)
        tensors = [
            KeptTensor(one, with_values=with_values and (with_weights or not contents.is_weight(one)))
            for one in contents.tensors
        ]
    try:
        yield contents
    finally:
        contents.put_back()
        with unset_fake_temporarily(), torch._C.DisableTorchFunction(), torch.no_grad():
            for tensor in tensors:
                tensor.put_back()


@contextlib.contextmanager
def run_undone(*holders: object) -> Iterator[None]:
    """The same for a run with numbers, which may write to parameters too: these are copied when it does."""
    with _kept(holders) as contents:
        if not contents.parameters:
            yield
            return
        with WrittenParameters(contents.parameters) as written:
            try:
                yield
            finally:
                written.put_back()


@contextlib.contextmanager
def trace_undone(*holders: object) -> Iterator[None]:
    """The same for torch.jit's tracer, which does not go together with a mode: all parameters are copied before."""
    with _kept(holders, with_weights=True):
        yield
