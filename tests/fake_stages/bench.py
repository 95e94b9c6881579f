"""A workbench without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batch_export.plan.matrix import PlannedCell


class Workbench:
    """Carries the specs; `captured` as in the real one."""

    def __init__(self, cell: PlannedCell, scratch: Path) -> None:
        self.model = cell.model
        self.dynamic = cell.cell.dynamic
        self.exporter = cell.exporter
        self.scratch = scratch
        self.captured: Any = None
