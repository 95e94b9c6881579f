"""The live objects of one unit of work: the module, its inputs, the captured program. Built on first use, in a child.

Nothing in here is ever pickled or returned to the parent process.
"""

from __future__ import annotations

import time
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch_export.record import Cell
from batch_export.spec import ExporterSpec, ModelSpec
from batch_export.stages import model as model_room
from batch_export.stages.built import built

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from batch_export.stages.lent_module import Changes


_BUILT_SOON = 0.2
"""Seconds: a model that took longer is compared only where another step builds it as well."""


class Workbench:
    """One capture: one model at one dynamic-shape setting under one exporter.

    Args:
        cell: one of the cells that share the capture.
        model: its model's spec.
        exporter: its exporter's spec.
        scratch: an existing, empty folder for files on their way to the store.
    """

    def __init__(self, cell: Cell, model: ModelSpec, exporter: ExporterSpec, scratch: Path) -> None:
        self.model = model
        self.dynamic = cell.dynamic
        self.exporter = exporter
        self.scratch = scratch
        self.build_seconds = 0.0
        self.captured: Any = None
        """What `stages.capture` leaves for `stages.translate`."""
        self.oracle: Any = None
        """What `stages.oracle` keeps for the next case: a copy of the module in float64."""
        self.tensor_files: Any = None
        """What `stages.translate` keeps for the next opset: the tensors that it wrote (`TensorFiles`)."""
        self.was_lent = False
        """Whether somebody else's exporter has had the module, and this process, in hands."""
        self.is_spoiled = False
        """Whether this process is no longer one in which the model is what its builder makes of it."""
        self._let_go: weakref.ref[torch.nn.Module] | None = None

    @cached_property
    def module(self) -> torch.nn.Module:
        """The module, built once, in eval mode unless the builder chose otherwise."""
        begun = time.perf_counter()
        module = model_room.build(self.model)
        self.build_seconds = time.perf_counter() - begun
        return module

    @cached_property
    def built(self) -> dict[str, str]:
        """What the builder made (`stages.built`); steps ask before they run the module, which may change it."""
        return built(self.module)

    def returned(self, changes: Changes) -> None:
        """Takes the module back that an exporter had; one that is not proven to be what it was is let go.

        Args:
            changes: what the exporter changed.
        """
        self.was_lent = True
        self.is_spoiled = self.is_spoiled or bool(changes.of_process)
        if not changes.is_same:
            self._let_go = weakref.ref(self.module)
            self.oracle = None
            del self.module

    def is_sound(self) -> bool:
        """Whether a step of the model can be taken here: a module that was let go is built again, and is the same."""
        if self._let_go is not None and not self.is_spoiled:
            try:
                self.is_spoiled = self.module is self._let_go() or built(self.module) != self.built
            except Exception:  # the builder does not run twice in one process
                self.is_spoiled = True
            self._let_go = None
        return not self.is_spoiled

    def built_again(self) -> dict[str, str] | None:
        """What the builder makes when it is called once more; None of a model that took long to build."""
        return built(model_room.build(self.model)) if self.build_seconds < _BUILT_SOON else None

    def inputs(self, sizes: Mapping[str, int], variant: str = "") -> dict[str, Any]:
        """Keyword arguments of `forward` with every axis at the given size; the same values for the same sizes."""
        return model_room.example_inputs(self.model, sizes, variant)
