"""Baselines: the few facts of a run that later runs are compared with, one sorted line per cell, fit to be reviewed.

Records go in and come out again, reduced to what `compare` looks at. A baseline is a JSON file; nothing in it names a
machine's folders or environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from batch_export.errors import UsageError
from batch_export.files import whole_file
from batch_export.record import ActionFacts, Cell, OnnxFacts, Outcome, Record
from batch_export.report.compare import export_seconds, rounding
from batch_export.runtime.measuring import LatencyFacts

BASELINE_FORMAT = "batch_export baseline"
BASELINE_VERSION = 1
"""Raised when a baseline changes incompatibly. 1 (2026-11): first."""


@dataclass(frozen=True, slots=True)
class BaselineCell:
    """One line of a baseline; fields without a value are left out of the file."""

    verdict: Outcome
    stage: str | None = None
    error_class: str | None = None
    max_abs: float | None = None
    rounding: float | None = None
    latency_ms: tuple[float, float, float] | None = None
    contended: bool | None = None
    bytes: int | None = None
    nodes: int | None = None
    onnx: str | None = None
    reference: str | None = None
    export_s: float | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline file: cells by name, and where it came from in one line."""

    cells: dict[str, BaselineCell] = field(default_factory=dict)
    made_from: str = ""
    format: str = BASELINE_FORMAT
    schema_version: int = BASELINE_VERSION


def baseline_of(records: Iterable[Record], made_from: str) -> Baseline:
    """Reduces a run to a baseline; skipped cells are left out."""
    cells = {record.cell.name: _reduced(record) for record in records if record.verdict != "skip"}
    return Baseline(dict(sorted(cells.items())), made_from)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Writes the file, one cell per line.

    Raises:
        UsageError: it cannot be written.
    """
    lines = []
    for name, cell in baseline.cells.items():
        values = {key: value for key, value in msgspec.to_builtins(cell).items() if value is not None}
        lines.append(f"    {_json(name)}: {_json(values)}")
    text = (
        "{\n"
        f'  "format": {_json(baseline.format)},\n  "schema_version": {baseline.schema_version},\n'
        f'  "made_from": {_json(baseline.made_from)},\n'
        '  "cells": {\n' + ",\n".join(lines) + "\n  }\n}\n"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise UsageError(
            f"The baseline {path} could not be written ({error.strerror or error}). Next step: choose another with --to"
        ) from error


def read_baseline(path: Path) -> tuple[Record, ...]:
    """Reads a baseline file as records.

    Raises:
        UsageError: it is not a baseline, or one of a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The baseline {path} cannot be read ({error.strerror or error})") from error
    try:
        head = msgspec.json.decode(data)
        if not isinstance(head, dict) or head.get("format") != BASELINE_FORMAT:
            raise UsageError(f"{path} is not a baseline. Next step: make one with `baseline accept RUN --to {path}`")
        version = head.get("schema_version")
        if version != BASELINE_VERSION:
            raise UsageError(
                f"The baseline {path} has schema version {version}, this program reads {BASELINE_VERSION}. "
                "Next step: make a new one with `baseline accept`, or update batch_export"
            )
        baseline = msgspec.convert(head, Baseline)
        return tuple(_record(name, cell) for name, cell in baseline.cells.items())
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(
            f"The baseline {path} is damaged: {error}. Next step: restore it, or make a new one with `baseline accept`"
        ) from error


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _reduced(record: Record) -> BaselineCell:
    latency, onnx = record.latency_ms, record.onnx
    seconds = export_seconds(record)
    return BaselineCell(
        verdict=record.verdict,
        stage=record.stage or None,
        error_class=record.error_class or None,
        max_abs=None if record.max_abs is None else float(f"{record.max_abs:.3g}"),
        rounding=float(f"{rounding(record):.3g}") or None,
        latency_ms=(round(latency.median, 4), round(latency.ci_low, 4), round(latency.ci_high, 4)) if latency else None,
        contended=True if latency is not None and latency.contended else None,
        bytes=onnx.bytes if onnx else None,
        nodes=onnx.nodes if onnx else None,
        onnx=onnx.sha256 if onnx else None,
        reference=next((action.key for action in record.actions if action.mnemonic == "Reference"), None),
        export_s=None if seconds is None else round(seconds, 2),
    )


def _record(name: str, cell: BaselineCell) -> Record:
    latency = None
    if cell.latency_ms is not None:
        median, low, high = cell.latency_ms
        latency = LatencyFacts(median, high, low, high, 0, bool(cell.contended))
    actions = [ActionFacts("Capture", "", "cached", cell.export_s)] if cell.export_s is not None else []
    if cell.reference:
        actions.append(ActionFacts("Reference", cell.reference, "cached", 0.0))
    where = Cell.parse(name)
    return Record(
        where,
        cell.verdict,
        cell.stage or "",
        cell.error_class or "",
        max_abs=cell.max_abs,
        latency_ms=latency,
        onnx=OnnxFacts("", cell.onnx or "", cell.bytes or 0, where.opset, cell.nodes or 0) if cell.onnx else None,
        actions=tuple(actions),
        extra={"rounding": cell.rounding} if cell.rounding else {},
    )
