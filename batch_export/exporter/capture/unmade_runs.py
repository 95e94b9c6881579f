"""Runs of a model on inputs that have sizes but no numbers, by which it may refuse sizes that are too large to be made.

Arrives: the model and its inputs at other sizes (`other_sizes.py`). Leaves: why the model does not take some sizes,
as far as that is seen without numbers.
"""

from __future__ import annotations

import functools
import math

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.exporter.capture.fake_runs import refused_run
from batch_export.exporter.capture.guard_points import Point
from batch_export.exporter.capture.other_sizes import Resizing


class UnmadeRuns:
    """Runs of a model without numbers at other sizes."""

    def __init__(self, module: torch.nn.Module, resizing: Resizing) -> None:
        self._module = module
        self._resizing = resizing
        self._are_possible: bool | None = None
        self._long = math.inf

    def refused(self, sizes: Point) -> str:
        """Why the model does not take sizes; empty where it may take them.

        For sizes that are too large to be made, and for models that made-up numbers do not suit.
        """
        return self._refusal(sizes) if self.are_possible() else ""

    def are_possible(self) -> bool:
        """Whether the model takes the example without numbers; if not, no refusal without them is because of sizes."""
        if self._are_possible is None:
            self._are_possible = not self._refusal(self._resizing.example)
        return self._are_possible

    def note_possible(self) -> None:
        """The model has taken inputs without numbers, so that the example needs no run."""
        self._are_possible = True

    def _refusal(self, sizes: Point) -> str:
        elements = self._resizing.elements(sizes)
        inputs = self._resizing.without_numbers(sizes, self._mode) if elements < self._long else None
        if inputs is None:
            return ""
        run = refused_run(self._module, *inputs, self._mode)
        if run.is_long:  # a loop over rows: of more there is nothing to be learned either
            self._long = elements
        return run.refused

    @functools.cached_property
    def _mode(self) -> FakeTensorMode:
        symbols = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
        return FakeTensorMode(allow_non_fake_inputs=True, shape_env=symbols)  # an index by data is some index
