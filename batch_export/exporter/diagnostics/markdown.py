"""The Markdown report of one export: stages with times, capture attempts, operators, guards, passes, verification.

Arrives: what the export gathered on its way. Leaves: one file, named by the time and the outcome. A failed export has a
report as well, up to the stage that failed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch_export.errors import OnnxExporterError

if TYPE_CHECKING:
    from batch_export.exporter.capture import Captured
    from batch_export.exporter.program import ONNXProgram

_STAGES = ("capture", "translate", "optimise", "opset", "save", "verify")
_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")


@dataclass(slots=True)
class Story:
    """What happened during one export."""

    model: str
    opset_version: int
    verbose: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    failed_stage: str = ""
    captured: Captured | None = None
    program: ONNXProgram | None = None
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

    def write(self, folder: Path) -> Path:
        """Writes the report; returns its path."""
        folder.mkdir(parents=True, exist_ok=True)
        outcome = f"failed_{self.failed_stage or 'export'}" if self.error else "success"
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        path = folder / f"onnx_export_{stamp}_{outcome}.md"
        path.write_text(self.text(), encoding="utf-8")
        return path

    def text(self) -> str:
        """The report."""
        lines = [f"# ONNX export of {self.model}: {'failed' if self.error else 'success'}", ""]
        if self.error:
            lines += ["## Error", "", "```", str(self.error), "```", ""]
        lines += ["## Stages", "", "| stage | result | seconds |", "|---|---|---|"]
        for name in _STAGES:
            if name in self.seconds:
                lines.append(
                    f"| {name} | {'failed' if name == self.failed_stage else 'done'} | {self.seconds[name]:.3f} |"
                )
        lines += ["", "## Environment", "", f"- opset {self.opset_version}"]
        lines += [f"- {package} {_version(package)}" for package in _PACKAGES]
        if self.captured is not None:
            lines += self._capture_lines(self.captured)
        elif getattr(self.error, "attempts", ()):
            lines += self._attempt_lines(self.error.attempts)  # type: ignore[union-attr]
        if self.program is not None:
            lines += self._program_lines(self.program)
        if self.verification:
            lines += [
                "",
                "## Verification",
                "",
                "| output | max abs | max rel | non-finite | elements |",
                "|---|---|---|---|---|",
            ]
            for facts in self.verification:
                measured = (facts.name, facts.max_abs, facts.max_rel, facts.non_finite_mismatches, facts.count)
                lines.append(f"| {' | '.join(map(str, measured))} |")
        if self.captured is not None:
            lines += ["", "## Exported program", "", "```python", str(self.captured.program), "```"]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _attempt_lines(attempts: Sequence[Any]) -> list[str]:
        lines = ["", "## Capture strategies", "", "| strategy | seconds | result |", "|---|---|---|"]
        for attempt in attempts:
            outcome = attempt.error.replace("|", "\\|") or "captured"
            lines.append(f"| {attempt.strategy} | {attempt.seconds:.3f} | {outcome} |")
        return lines

    @staticmethod
    def _capture_lines(captured: Captured) -> list[str]:
        lines = Story._attempt_lines(captured.attempts)
        lines += ["", "## Dynamic axes and guards", ""]
        lines += [f"- {name} (torch's {symbol})" for symbol, name in captured.axis_names.items()] or ["- no named axes"]
        lines += [
            f"- **holds only while `{guard.condition}`**{f' ({guard.source})' if guard.source else ''}"
            for guard in captured.restrictions
        ]
        harmless = [guard.condition for guard in captured.guards if not guard.restricts]
        if harmless:
            lines += ["", "Conditions that torch noted and that take nothing away:", ""]
            lines += [f"- `{condition}`" for condition in harmless]
        return lines

    @staticmethod
    def _program_lines(program: ONNXProgram) -> list[str]:
        lines = ["", "## Operators", "", "| operator | count | translated by |", "|---|---|---|"]
        for name, (count, origin) in sorted(program.operators.items()):
            lines.append(f"| {name} | {count} | {origin} |")
        if program.passes:
            lines += ["", "## Optimiser", "", "| pass | nodes before | nodes after | changes |", "|---|---|---|---|"]
            for one in program.passes:
                lines.append(f"| {one.name} | {one.nodes_before} | {one.nodes_after} | {one.changes} |")
        return lines


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
