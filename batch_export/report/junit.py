"""junit.xml: one test case per cell, one suite per model. Records go in, XML text comes out.

The format is the common subset that Jenkins, GitLab and GitHub's reporters read: `testsuites`, `testsuite` with counts,
`testcase` with `failure`, `error` or `skipped`, and `system-out`. Expected failures are skipped with their reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from xml.etree import ElementTree

from batch_export.record import UNCACHED_STAGES, Record
from batch_export.report.redact import shorten
from batch_export.words import one_line

_CONTROL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_DETAILS = 8000


def junit_xml(records: Iterable[Record], *, name: str = "batch_export", timestamp: str = "") -> str:
    """Returns the whole file.

    Args:
        records: one per planned cell.
        name: of the outermost element.
        timestamp: start of the run, ISO 8601 without a zone, if it is known.
    """
    models: dict[str, tuple[ElementTree.Element, Counter[str]]] = {}
    for record in records:
        suite, counts = models.setdefault(record.cell.model, (ElementTree.Element("testsuite"), Counter()))
        _case(suite, record)
        counts[_outcome(record)] += 1
        counts["ms"] += round(_seconds(record) * 1000)
    everything = sum((counts for _, counts in models.values()), Counter[str]())
    root = ElementTree.Element("testsuites", {"name": name, **_counts(everything)})
    for model, (suite, counts) in models.items():
        suite.attrib = {"name": _clean(model), **_counts(counts), "skipped": str(counts["skipped"])}
        if timestamp:
            suite.set("timestamp", timestamp)
        root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, record: Record) -> None:
    cell = record.cell
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=_clean("/".join(word for axis, word in cell.path.items() if axis != "model")),
        classname=_clean(f"batch_export.{cell.model}"),
        time=f"{_seconds(record):.3f}",
    )
    outcome, message = _outcome(record), _clean(shorten(one_line(record.message)))
    if outcome in ("failure", "error"):
        kind = _clean(f"{record.stage} {record.error_class}".strip() or record.verdict)
        found = ElementTree.SubElement(case, outcome, message=message or kind, type=kind)
        details = record.failure.details if record.failure is not None else ""
        found.text = _clean(shorten(details[-_MOST_DETAILS:] or record.message))
    elif outcome == "skipped":
        reason = record.extra.get("reason", "") if record.verdict == "xfail" else record.message
        prefix = "expected to fail: " if record.verdict == "xfail" else ""
        ElementTree.SubElement(case, "skipped", message=_clean(shorten(prefix + one_line(str(reason)))))
    if record.log:
        ElementTree.SubElement(case, "system-out").text = _clean(f"log: {record.log}")


def _outcome(record: Record) -> str:
    if record.verdict == "missing" or (record.verdict == "fail" and record.stage in UNCACHED_STAGES):
        return "error"
    if record.verdict in ("fail", "xpass", "flaky"):
        return "failure"
    return "skipped" if record.verdict in ("skip", "xfail") else "passed"


def _counts(outcomes: Counter[str]) -> dict[str, str]:
    return {
        "tests": str(outcomes.total() - outcomes["ms"]),
        "failures": str(outcomes["failure"]),
        "errors": str(outcomes["error"]),
        "time": f"{outcomes['ms'] / 1000:.3f}",
    }


def _seconds(record: Record) -> float:
    """What the cell's own actions took in this run."""
    return sum(action.seconds for action in record.actions if action.origin == "ran")


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
