"""The SARIF log of one export. What the export gathered arrives; one file leaves, without results when all is well."""

from __future__ import annotations

import json
from pathlib import Path

from batch_export.exporter.report.story import Story
from batch_export.findings.diagnostic import Diagnostic
from batch_export.findings.sarif import sarif_log
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import default_tolerance


def write(path: Path, story: Story) -> Path:
    """Writes the log of an export that succeeded or failed; returns its path."""
    log = sarif_log(diagnostics(story), Path.cwd(), successful=story.error is None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log, indent=2), encoding="utf-8")
    return path


def diagnostics(story: Story) -> list[Diagnostic]:
    """Returns what is to be told: the error, strategies that failed before one worked, outputs that differ."""
    found: list[Diagnostic] = []
    error = story.error
    if error is not None:
        found.append(
            Diagnostic(
                stage=error.stage if error.stage != "export" else story.failed_stage or "translate",
                error_class=type(error).__name__,
                message=str(error),
                operator=error.operator or "",
                source=error.source or "",
                node=error.node or "",
                subject=story.model,
            )
        )
    for attempt in story.captured.attempts if story.captured is not None else ():
        if attempt.error:
            message = f"{attempt.strategy} did not capture the model: {attempt.error}"
            found.append(Diagnostic("capture", "StrategyFailed", message, subject=story.model, level="note"))
    for facts in story.verification:
        if isinstance(facts, OutputFacts) and facts.outside:
            found.append(Diagnostic("mismatch", "Output", _mismatch(facts), subject=story.model, level="warning"))
    return found


def _mismatch(facts: OutputFacts) -> str:
    allowed = default_tolerance(facts.expected_dtype)
    return (
        f"output {facts.name}: {facts.outside} of {facts.count} elements beyond {allowed.atol} + {allowed.rtol} * "
        f"|expected|, largest error {facts.max_abs}"
    )
