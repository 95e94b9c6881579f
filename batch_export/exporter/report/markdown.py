"""The Markdown report of one export: stages with times, capture attempts, operators, guards, passes, verification.

Arrives: the journal of an export. Leaves: one file, named by the time and the outcome. A failed export has a report as
well, up to the stage that failed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from batch_export.calling.users_line import users_level
from batch_export.errors import ExportWarning
from batch_export.exporter.capture.blocks import Block
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.functions.making import Functions
from batch_export.exporter.optimise.passes import PassReport
from batch_export.exporter.report.journal import Journal

_STAGES = ("capture", "translate", "optimise", "opset", "save", "verify")
_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")


def write(journal: Journal, folder: Path) -> Path:
    """Writes the report; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = f"failed_{journal.failed_stage or 'export'}" if journal.error else "success"
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    path = folder / f"onnx_export_{stamp}_{outcome}.md"
    path.write_text(text(journal), encoding="utf-8")
    return path


def write_or_warn(journal: Journal, folder: Path) -> None:
    """Writes the report; where nothing can be written there a warning says so, and hides no error of the export."""
    try:
        write(journal, folder)
    except OSError as error:
        warnings.warn(f"the report is not written: {error}", ExportWarning, stacklevel=users_level())


def text(journal: Journal) -> str:
    """The report."""
    lines = [f"# ONNX export of {journal.model}: {'failed' if journal.error else 'success'}", ""]
    if journal.error:
        lines += ["## Error", "", "```", str(journal.error), "```", ""]
    lines += ["## Stages", "", "| stage | result | seconds |", "|---|---|---|"]
    for name in _STAGES:
        if name in journal.seconds:
            lines.append(
                f"| {name} | {'failed' if name == journal.failed_stage else 'done'} | {journal.seconds[name]:.3f} |"
            )
    lines += ["", "## Environment", "", f"- opset {journal.opset_version}"]
    lines += [f"- {package} {_version(package)}" for package in _PACKAGES]
    if journal.captured is not None:
        lines += _capture_lines(journal.captured)
    elif getattr(journal.error, "attempts", ()):
        lines += _attempt_lines(journal.error.attempts)  # type: ignore[union-attr]
    if journal.operators is not None:
        lines += _program_lines(journal.operators, journal.passes)
    lines += _function_lines(journal.functions)
    if journal.verification:
        lines += [
            "",
            "## Verification",
            "",
            "| output | max abs | max rel | non-finite | elements |",
            "|---|---|---|---|---|",
        ]
        for facts in journal.verification:
            measured = (facts.name, facts.max_abs, facts.max_rel, facts.non_finite_mismatches, facts.count)
            lines.append(f"| {' | '.join(map(str, measured))} |")
        lines += ["", *(f"Compared at {one}." for one in journal.compared_at)]
    if journal.captured is not None:
        lines += ["", "## Exported program", "", "```python", str(journal.captured.program), "```"]
    return "\n".join(lines) + "\n"


def _block_lines(blocks: Sequence[Block]) -> list[str]:
    if not blocks:
        return []
    lines = ["", "## Repeated blocks", "", "| block | traced | written again | why not more |", "|---|---|---|---|"]
    return [*lines, *(f"| {one.kind} | {len(one.traced)} | {len(one.stamped)} | {one.reason} |" for one in blocks)]


def _attempt_lines(attempts: Sequence[Any]) -> list[str]:
    lines = ["", "## Capture strategies", "", "| strategy | seconds | result |", "|---|---|---|"]
    for attempt in attempts:
        outcome = attempt.error.replace("|", "\\|") or "captured"
        lines.append(f"| {attempt.strategy} | {attempt.seconds:.3f} | {outcome} |")
    return lines


def _decision_lines(captured: Captured) -> list[str]:
    if not captured.both_ways and not captured.raising:
        return []
    lines = ["", "Decisions by data, of which the file has both ways:", ""]
    lines += [f"- {line}" for line in captured.both_ways] or ["- none"]
    return [*lines, *(f"- {line} raises an error, and the file does not" for line in captured.raising)]


def _capture_lines(captured: Captured) -> list[str]:
    lines = [*_attempt_lines(captured.attempts), *_decision_lines(captured), *_block_lines(captured.blocks)]
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


def _program_lines(operators: Mapping[str, tuple[int, str]], passes: Sequence[PassReport]) -> list[str]:
    lines = ["", "## Operators", "", "| operator | count | translated by |", "|---|---|---|"]
    for name, (count, origin) in sorted(operators.items()):
        lines.append(f"| {name} | {count} | {origin} |")
    if passes:
        lines += ["", "## Optimiser", "", "| pass | nodes before | nodes after | changes |", "|---|---|---|---|"]
        for one in passes:
            lines.append(f"| {one.name} | {one.nodes_before} | {one.nodes_after} | {one.changes} |")
        lines += [text for one in passes if one.remark for text in ("", f"{one.name}: {one.remark}.")]
    return lines


def _function_lines(functions: Functions) -> list[str]:
    if not functions.made and not functions.left:
        return []
    lines = ["", "## Functions", "", "| function | class | calls | nodes |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.kind} | {len(one.calls)} | {one.nodes} |" for one in functions.made]
    return [*lines, *(text for call, why in functions.left.items() for text in ("", f"{call} is none: {why}."))]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
