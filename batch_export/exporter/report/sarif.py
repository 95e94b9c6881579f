"""The SARIF log of one export. What the export gathered arrives; one file leaves, without results when all is well."""

from __future__ import annotations

import json
from pathlib import Path

from batch_export.exporter.report.journal import Journal
from batch_export.findings.diagnostic import Diagnostic
from batch_export.findings.sarif import sarif_log
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import default_tolerance


def write(path: Path, journal: Journal) -> Path:
    """Writes the log of an export that succeeded or failed; returns its path."""
    log = sarif_log(diagnostics(journal), Path.cwd(), successful=journal.error is None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log, indent=2), encoding="utf-8")
    return path


def diagnostics(journal: Journal) -> list[Diagnostic]:
    """Returns what is to be told: the error, strategies that failed before one worked, outputs that differ."""
    found: list[Diagnostic] = []
    error = journal.error
    if error is not None:
        found.append(
            Diagnostic(
                stage=error.stage if error.stage != "export" else journal.failed_stage or "translate",
                error_class=type(error).__name__,
                message=str(error),
                operator=error.operator or "",
                source=error.source or "",
                node=error.node or "",
                subject=journal.model,
            )
        )
    for attempt in journal.captured.attempts if journal.captured is not None else ():
        if attempt.error:
            message = f"{attempt.strategy} did not capture the model: {attempt.error}"
            found.append(Diagnostic("capture", "StrategyFailed", message, subject=journal.model, level="note"))
    for facts in journal.verification:
        if isinstance(facts, OutputFacts) and facts.outside:
            found.append(Diagnostic("mismatch", "Output", _mismatch(facts), subject=journal.model, level="warning"))
    return found


def _mismatch(facts: OutputFacts) -> str:
    allowed = default_tolerance(facts.expected_dtype)
    return (
        f"output {facts.name}: {facts.outside} of {facts.count} elements beyond {allowed.atol} + {allowed.rtol} * "
        f"|expected|, largest error {facts.max_abs}"
    )
