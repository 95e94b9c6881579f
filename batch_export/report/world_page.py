"""The public table as one HTML file that needs no network: totals, then a row for each architecture.

Judged records arrive, the text of the file leaves. The rows are data (`safe_json`), of which the page shows as many as
are looked at, so that thousands cost nothing; nothing of them is ever read as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jinja2

from batch_export.record import Record
from batch_export.report.html import safe_json, template
from batch_export.report.redact import shorten
from batch_export.report.wording import (
    DISTRIBUTION_MARK,
    RANGE_MARK,
    TIES_MARK,
    UNTRIED_MARK,
    is_restricted,
    is_untried,
    legends,
)
from batch_export.report.world import About, export_seconds, extent, is_right, is_unbuilt, message_of, rows_of, totals
from batch_export.version import __version__

_MOST_WORDS = 600

Field = str | float | int


def page(records: Sequence[Record], about: About, repros: Mapping[str, str] | None = None) -> str:
    """Returns the whole file.

    Args:
        records: of one run, judged.
        about: what they are of.
        repros: where the repro of a failure lies, by the cell's name; the others have the command that makes one.
    """
    columns = list(totals(records))
    data = {
        "columns": [" ".join(column) for column in columns],
        "rows": [
            [model, *(_cell(row.get(column), repros or {}) for column in columns)]
            for model, row in rows_of(records).items()
        ],
    }
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template), autoescape=True, undefined=jinja2.StrictUndefined
    )
    stages = sorted({record.stage for record in records if not is_right(record) and not is_unbuilt(record)})
    return environment.get_template("world.html.j2").render(
        payload=safe_json(data), totals=[(" ".join(column), total) for column, total in totals(records).items()],
        style=template("report.css") + template("world.css"), script=template("world.js"), stages=stages,
        versions=about.versions, extent=extent(records, about), command=shorten(about.command), version=__version__,
        notes=[shorten(note) for note in legends(records)],
    )  # fmt: skip


def _cell(record: Record | None, repros: Mapping[str, str]) -> list[Field] | int:
    """Kind, what the cell shows, class, message, and how a failure is seen again; 0 where there is no such cell."""
    if record is None:
        return 0
    if is_unbuilt(record):
        return ["skip", "skip", record.error_class, message_of(record, _MOST_WORDS)]
    nodes = record.onnx.nodes if record.onnx is not None else 0
    seconds = round(export_seconds(record), 1)
    if is_right(record):
        marks = (
            (DISTRIBUTION_MARK, record.by_distribution),
            (TIES_MARK, record.by_ties),
            (RANGE_MARK, is_restricted(record)),
            (UNTRIED_MARK, is_untried(record)),
        )
        mark = "".join(mark for mark, is_set in marks if is_set)
        return ["pass", f"{seconds} s, {nodes} nodes{mark}", "", message_of(record, _MOST_WORDS)]
    name = record.cell.name
    message = [record.error_class, message_of(record, _MOST_WORDS)]
    return ["fail", record.stage or record.verdict, *message, f"batch-export repro {name}", repros.get(name, "")]
