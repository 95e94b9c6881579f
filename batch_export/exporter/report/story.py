"""What happened during one export: stages with times, what was captured, translated and verified, and the error.

The export writes it on its way; reports and the SARIF log read it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from batch_export.errors import OnnxExporterError
from batch_export.exporter.capture.captured import Captured


class PassFigures(Protocol):
    """What one pass of the optimiser did."""

    @property
    def name(self) -> str: ...
    @property
    def nodes_before(self) -> int: ...
    @property
    def nodes_after(self) -> int: ...
    @property
    def changes(self) -> int: ...


class Made(Protocol):
    """What a story says about an exported program."""

    @property
    def operators(self) -> Mapping[str, tuple[int, str]]: ...
    @property
    def passes(self) -> Sequence[PassFigures]: ...


@dataclass(slots=True)
class Story:
    """What happened during one export."""

    model: str
    opset_version: int
    verbose: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    failed_stage: str = ""
    captured: Captured | None = None
    program: Made | None = None
    verification: list[Any] = field(default_factory=list)
    error: OnnxExporterError | None = None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage and remembers the one that failed."""
        begun = time.perf_counter()
        try:
            yield
        except Exception:
            self.failed_stage = name
            raise
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
            if self.verbose:
                outcome = "failed" if self.failed_stage == name else "done"
                print(f"batch_export: {name} of {self.model} {outcome} in {self.seconds[name]:.3f} s")
