"""A workbench without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batch_export.record import Cell
from batch_export.spec import ExporterSpec, ModelSpec


class Workbench:
    """Carries the specs; `captured` as in the real one."""

    def __init__(self, cell: Cell, model: ModelSpec, exporter: ExporterSpec, scratch: Path) -> None:
        self.model = model
        self.dynamic = cell.dynamic
        self.exporter = exporter
        self.scratch = scratch
        self.captured: Any = None
        self.was_lent = self.is_spoiled = False

    def is_sound(self) -> bool:
        """As the real one."""
        return not self.is_spoiled
