"""What the core's tests share: export a module, run the file in ONNX Runtime, compare with eager at several inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree as pytree

from batch_export.exporter import ONNXProgram, export


class Called(torch.nn.Module):
    """A function of one tensor as a model."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def eager(module: torch.nn.Module, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The model's outputs; its state and the inputs stay as they are."""
    state = copy.deepcopy(module.state_dict())
    with torch.no_grad():
        outputs = module(*copy.deepcopy(args))
    module.load_state_dict(state)
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def assert_same(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], tolerance: float = 1e-4) -> None:
    """Count, dtype, shape and numbers agree."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=tolerance, atol=tolerance, equal_nan=True)


def export_and_compare(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    *more: tuple[Any, ...],
    folder: Path | None = None,
    tolerance: float = 1e-4,
    **options: Any,
) -> ONNXProgram:
    """Exports at `args`, then compares the user outputs with eager at `args` and at every other inputs given."""
    module = module.eval() if not options.pop("training", False) else module
    program = export(module, args, None, **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    for given in (args, *more):
        expected = eager(module, given)
        assert_same(program(*copy.deepcopy(given)), expected, tolerance)
    program.release()
    return program
