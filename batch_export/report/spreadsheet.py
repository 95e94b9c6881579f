"""summary.csv: one line per cell. Records go in, text comes out; no text in it acts as a formula in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from batch_export.record import AXES, Record
from batch_export.report.redact import shorten
from batch_export.report.wording import speed_up
from batch_export.words import one_line

COLUMNS = (
    *("schema_version", *AXES),
    *("verdict", "stage", "error_class", "message", "max_abs", "max_rel"),
    *("latency_median_ms", "latency_p95_ms", "latency_ci_low_ms", "latency_ci_high_ms", "latency_runs", "contended"),
    *("eager_ms", "speed_up", "onnx_path", "onnx_sha256", "onnx_bytes", "nodes", "log", "by_distribution"),
    "by_ties",
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # and their full-width forms

Value = str | int | float | bool | None


def csv_text(records: Iterable[Record]) -> str:
    """Returns the whole file; the first line names the columns."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerow([_field(value) for value in values_of(record)])
    return stream.getvalue()


def values_of(record: Record) -> tuple[Value, ...]:
    """A record's value in each of `COLUMNS`."""
    latency, onnx = record.latency_ms, record.onnx
    return (
        *(record.schema_version, *(getattr(record.cell, axis) for axis in AXES)),
        *(record.verdict, record.stage, record.error_class, record.message, record.max_abs, record.max_rel),
        *(
            (latency.median, latency.p95, latency.ci_low, latency.ci_high, latency.runs, latency.contended)
            if latency
            else (None,) * 6
        ),
        *(record.eager_ms, speed_up(record)),
        *((onnx.path, onnx.sha256, onnx.bytes, onnx.nodes) if onnx else (None,) * 4),
        *(record.log, record.by_distribution, record.by_ties),
    )


def _field(value: Value) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        line = shorten(one_line(value))  # a tab or a line break could start a formula as well
        return "'" + line if line.startswith(_FORMULA_STARTS) else line
    return value
