"""A workbench without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batch_export.spec import ExporterSpec, ModelSpec


class Workbench:
    """Carries the specs; `captured` as in the real one."""

    def __init__(self, model: ModelSpec, dynamic: str, exporter: ExporterSpec, scratch: Path) -> None:
        self.model = model
        self.dynamic = dynamic
        self.exporter = exporter
        self.scratch = scratch
        self.captured: Any = None
