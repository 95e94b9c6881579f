"""judge/untried.py: a free axis of which no second size was compared is said in tables, summaries and pages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recording import cell, passed

from batch_export.judge.untried import untried_axes
from batch_export.judge.verdict import judge
from batch_export.numbers.facts import OutputFacts
from batch_export.record import Record, RunFacts
from batch_export.report.html import html_report
from batch_export.report.html_context import ReportContext
from batch_export.report.markdown import markdown
from batch_export.report.rows import row_of
from batch_export.report.summary import Counts, summarise
from batch_export.report.table import legend
from batch_export.report.wording import GLYPHS, cell_text
from batch_export.spec import AxisSpec, InputSpec, ModelSpec

MODEL = ModelSpec(
    "net",
    "models.x.y",
    {},
    inputs=(InputSpec(("x",), "float32", ("batch", "seq")),),
    axes=(AxisSpec("batch", 2, (1,)), AxisSpec("seq", 8, ())),
)
OUTPUT = OutputFacts("y", "float32", "float32", (2,), (2,), hull=((1.0, 1e-7),), max_abs=1e-7, max_rel=1e-7, count=2)


def ran(batch: int, seq: int = 8, variant: str = "") -> RunFacts:
    return RunFacts({"batch": batch, "seq": seq}, (OUTPUT,), variant=variant)


def refused(batch: int) -> RunFacts:
    return RunFacts({"batch": batch, "seq": 8}, rejected="ValueError: two rows only")


def record(setting: str, *runs: RunFacts) -> Record:
    return replace(passed(cell("net", setting)), runs=runs, extra={})


@pytest.mark.parametrize(
    ("setting", "runs", "untried"),
    [
        ("full", (ran(2), ran(1)), ["seq"]),
        ("full", (ran(2), ran(1, 9)), []),
        ("full", (ran(2), ran(2, variant="zeros"), ran(0, variant="empty")), ["batch", "seq"]),
        ("batch", (ran(2), ran(1)), []),
        ("batch", (ran(2), refused(1)), ["batch"]),
        ("auto", (ran(2),), ["batch", "seq"]),
        ("static", (ran(2),), []),
        ("full", (), []),
        ("full", (refused(2),), []),
    ],
)
def test_free_axes_of_one_size_are_named(setting: str, runs: tuple[RunFacts, ...], untried: list[str]) -> None:
    assert untried_axes(record(setting, *runs), MODEL) == untried


def test_a_cell_that_passes_says_which_axes_were_not_tried_at_another_size() -> None:
    judged = judge(record("full", ran(2), ran(1)), MODEL, {}, ())
    assert (judged.verdict, judged.message) == ("pass", "not tried at another size: seq")
    assert judge(judged, MODEL, {}, ()) == judged, "judging twice changes nothing"
    whole = judge(record("batch", ran(2), ran(1)), MODEL, {}, ())
    assert cell_text(judged, GLYPHS).startswith("✓ 1e-7# ")
    assert "#" not in cell_text(whole, GLYPHS)
    said = "# of a free axis only the example's size was compared: net full not tried at another size: seq"
    records = [judged, whole]
    assert said in legend(records)
    assert said in legend([row_of(one) for one in records]), "tables are made of rows"
    assert len(legend([whole])) == 1
    counted = summarise(records, Counts())
    assert "net full not tried at another size: seq" in html_report(records, counted, ReportContext())
    assert "net full not tried at another size: seq" in markdown(records, counted)


def test_a_cell_whose_other_sizes_were_refused_says_so_too() -> None:
    judged = judge(record("batch", ran(2), refused(1)), MODEL, {}, ())
    assert (judged.verdict, judged.error_class) == ("fail", "ModelGuard")
    assert judged.message.endswith("change axes.*.check; not tried at another size: batch")
