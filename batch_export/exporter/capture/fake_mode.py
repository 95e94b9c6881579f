"""Fake mode: modules and inputs made inside it have shapes and dtypes, and no memory.

Arrives: nothing; a context is opened. Leaves: an `ONNXFakeContext`, and, for a program that was captured from fake
tensors, the context that it belongs to. Real weights are given later (`ONNXProgram.apply_weights`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv


@dataclass(frozen=True, slots=True)
class ONNXFakeContext:
    """The fake mode that a model was made in.

    Attributes:
        fake_mode: torch's mode; two contexts are equal when it is the same.
    """

    fake_mode: FakeTensorMode


@contextlib.contextmanager
def enable_fake_mode() -> Iterator[ONNXFakeContext]:
    """Makes every tensor created inside fake, so that a model of any size can be built and exported.

    Yields:
        The context; it is `program.fake_context` of programs exported from what was made inside.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(allow_scalar_outputs=True))
    with mode:
        yield ONNXFakeContext(mode)


def context_of(program: torch.export.ExportedProgram) -> ONNXFakeContext | None:
    """The context of a program whose weights are fake; None for a program with real weights, or with none."""
    for tensor in (*program.state_dict.values(), *program.constants.values()):
        if isinstance(tensor, FakeTensor):
            return ONNXFakeContext(tensor.fake_mode)
    return None
