"""What happened during one export: stages with times, what was captured, translated and verified, and the error.

The export writes it on its way; reports and the SARIF log read it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from batch_export.errors import OnnxExporterError
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.functions.making import Functions
from batch_export.exporter.graph.collector import young_only
from batch_export.exporter.optimise.passes import PassReport
from batch_export.numbers.facts import OutputFacts


@dataclass(slots=True)
class Journal:
    """What happened during one export.

    Attributes:
        model: the model's class.
        opset_version: the opset asked for.
        verbose: whether each stage is printed.
        seconds: stage -> seconds.
        failed_stage: the stage that raised, empty when none did.
        captured: what the capture made, once it has.
        operators: torch operator -> (how often, what translated it), once the program is translated.
        passes: what each pass of the optimiser did.
        functions: which calls of modules became functions, and which did not.
        verification: facts of each output that was compared.
        compared_at: at which inputs, in words.
        error: what the export ended with, when it failed.
    """

    model: str
    opset_version: int
    verbose: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    failed_stage: str = ""
    captured: Captured | None = None
    operators: Mapping[str, tuple[int, str]] | None = None
    passes: Sequence[PassReport] = ()
    functions: Functions = field(default_factory=Functions)
    verification: list[OutputFacts] = field(default_factory=list)
    compared_at: list[str] = field(default_factory=list)
    error: OnnxExporterError | None = None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage and remembers the one that failed."""
        begun = time.perf_counter()
        try:
            with young_only():
                yield
        except Exception:
            self.failed_stage = name
            raise
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
            if self.verbose:
                outcome = "failed" if self.failed_stage == name else "done"
                print(f"batch_export: {name} of {self.model} {outcome} in {self.seconds[name]:.3f} s")
