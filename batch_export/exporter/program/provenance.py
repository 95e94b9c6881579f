"""How a program came to be: who made it of what, and what the export noted on its way. It is handed over complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.fake_mode import ONNXFakeContext
from batch_export.exporter.optimise.passes import PassReport
from batch_export.exporter.report.journal import Journal


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a program came to be.

    Attributes:
        exporter: `core`, or `torchscript` where the TorchScript exporter made it.
        export_exception: what the core raised before the export fell back to another exporter, else None.
        operators: torch operator -> (how often it occurs, what translated it).
        operator_seconds: torch operator -> seconds spent on its translation.
        output_kinds: kind (`USER_OUTPUT`, `BUFFER_MUTATION`, ...) and target of each graph output, in order.
        passes: what each pass of the optimiser did, in order.
        seconds: wall time by stage of the export, in seconds.
        captured: strategies tried and guards, when the capture is known.
        fake_context: the context in which the weights were made without memory, else None.
        diagnostic_context: what the export noted on its way (stages, capture attempts, guards, the error).
    """

    exporter: str = "core"
    export_exception: Exception | None = None
    operators: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    operator_seconds: Mapping[str, float] = field(default_factory=dict)
    output_kinds: Sequence[tuple[str, str]] = ()
    passes: Sequence[PassReport] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    captured: Captured | None = None
    fake_context: ONNXFakeContext | None = None
    diagnostic_context: Journal | None = None


class Traceable:
    """Reads the fields of a provenance under their own names.

    Attributes:
        provenance: how the program came to be.
    """

    provenance: Provenance

    @property
    def exporter(self) -> str:
        """`core`, or `torchscript` where the TorchScript exporter made it."""
        return self.provenance.exporter

    @property
    def export_exception(self) -> Exception | None:
        """What the core raised before the export fell back to another exporter, else None."""
        return self.provenance.export_exception

    @property
    def operators(self) -> Mapping[str, tuple[int, str]]:
        """Torch operator -> (how often it occurs, what translated it)."""
        return self.provenance.operators

    @property
    def operator_seconds(self) -> Mapping[str, float]:
        """Torch operator -> seconds spent on its translation."""
        return self.provenance.operator_seconds

    @property
    def output_kinds(self) -> list[tuple[str, str]]:
        """Kind and target of each graph output, in order."""
        return list(self.provenance.output_kinds)

    @property
    def passes(self) -> list[PassReport]:
        """What each pass of the optimiser did, in order."""
        return list(self.provenance.passes)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall time by stage of the export, in seconds."""
        return self.provenance.seconds

    @property
    def captured(self) -> Captured | None:
        """Strategies tried and guards, when this program's capture is known."""
        return self.provenance.captured

    @property
    def fake_context(self) -> ONNXFakeContext | None:
        """The context in which its weights were made without memory, else None."""
        return self.provenance.fake_context

    @property
    def diagnostic_context(self) -> Journal | None:
        """What the export noted on its way (stages, capture attempts, guards, the error)."""
        return self.provenance.diagnostic_context
