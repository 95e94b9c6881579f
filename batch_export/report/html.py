"""The HTML report: one file that needs no network, made of the templates beside this module and the report's data.

Records and their context arrive, the text of the file leaves. Styles, script and data are written into it; the data is
JSON in which `<` is escaped, so that no text of a record can end the element that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import jinja2
import msgspec

from batch_export.record import Record
from batch_export.report.html_data import ReportContext, report_data
from batch_export.report.summary import Summary
from batch_export.version import __version__

TEMPLATES = "batch_export.report"


def html_report(records: Sequence[Record], summary: Summary, context: ReportContext | None = None) -> str:
    """Returns the whole file."""
    data = report_data(records, summary, context or ReportContext(), pack=_packed)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("report.html.j2").render(
        data=data, payload=safe_json(data), style=template("report.css"), script=template("report.js"),
        version=__version__,
    )  # fmt: skip


def safe_json(value: object) -> str:
    """JSON that may stand inside a script element."""
    text = msgspec.json.encode(value).decode()
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):  # fmt: skip  # noqa: E501
        text = text.replace(character, escape)
    return text


def _packed(row: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(row))


def template(name: str) -> str:
    """Returns the text of a file beside this module's templates."""
    return (files(TEMPLATES) / "templates" / name).read_text(encoding="utf-8")
