"""Since when a cause fails: in the table, Markdown, HTML and the history, from nights that were written to disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording import cell, circumstances, failed, passed, write_run

from batch_export.cli.main import main
from batch_export.record import Record
from batch_export.report.history import HISTORY_FILE, open_history
from batch_export.report.html import html_report
from batch_export.report.html_data import ReportContext, report_data
from batch_export.report.since import since_when
from batch_export.report.summary import Counts, summarise
from batch_export.report.wording import latency_ms
from batch_export.runner.surroundings import Surroundings
from batch_export.sources.toolchain import Toolchain

BAD, OTHER, FINE = cell("bert"), cell("gpt"), cell("cnn")


def _night(outputs: Path, day: int, records: list[Record], commit: str, torch: str) -> Path:
    made = Surroundings(
        "a run", Toolchain({"torch": torch}, {}, {}, {}), started=f"2026-11-{day:02}T03:00:00.000+00:00", commit=commit
    )
    folder = outputs / f"2026-11-{day:02}" / "03-00-00-000"
    write_run(folder, records, made=made)
    with open_history(outputs / HISTORY_FILE) as history:
        history.add(folder.relative_to(outputs).as_posix(), made, "run", records)
    return folder


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five nights: all good, good, then one cell breaks with a new torch, and stays broken."""
    monkeypatch.chdir(tmp_path)
    outputs = tmp_path / "outputs"
    broken = failed(BAD, "load", "LoadError", "cannot be loaded")
    for day in (1, 2, 3):
        _night(outputs, day, [passed(BAD), passed(FINE), failed(OTHER)], f"c{day}", "2.12")
    _night(outputs, 4, [broken, passed(FINE), failed(OTHER)], "c4", "2.13")
    _night(outputs, 5, [broken, passed(FINE), failed(OTHER)], "c5", "2.13")
    return outputs


SENTENCE = "since 2026-11-04/03-00-00-000 (2 runs), after 3 good runs; commit c3..c4; torch 2.12 -> 2.13"


def test_terminal_markdown_and_html_say_since_when(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch-export", "report", "latest"]) == 1
    assert f"  {SENTENCE}\n" in capsys.readouterr().out
    folder = outputs / "2026-11-05" / "03-00-00-000"
    assert SENTENCE.replace(">", "\\>") in (folder / "summary.md").read_text()
    html = (folder / "report.html").read_text()
    assert "after 3 good runs; commit c3..c4" in html


def test_a_run_that_is_not_the_newest_knows_nothing_of_later_ones(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch-export", "report", "latest~1"]) == 1
    assert "  new in this run, after 3 good runs; commit c3..c4; torch 2.12 -> 2.13\n" in capsys.readouterr().out


def test_a_cell_that_always_failed_says_so_and_one_without_a_past_says_nothing(outputs: Path) -> None:
    folder = outputs / "2026-11-05" / "03-00-00-000"
    records = [failed(OTHER), failed(cell("unheard_of"))]
    found = since_when(folder, records)
    assert found[OTHER].sentence() == "since 2026-11-01/03-00-00-000 (5 runs), in every run so far"
    assert found[cell("unheard_of")].sentence() == ""


def test_another_failure_before_is_named(outputs: Path) -> None:
    folder = outputs / "2026-11-05" / "03-00-00-000"
    (found,) = since_when(folder, [failed(BAD, "crash", "SIGSEGV")]).values()
    assert found.sentence() == "new in this run, before that fail load LoadError; commit c4..c5"


def test_without_a_history_nothing_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "2026-11-01" / "1"
    write_run(folder, [failed(BAD)], made=circumstances("2026-11-01T00:00:00"))
    assert since_when(folder, [failed(BAD)]) == {}
    (tmp_path / "outputs" / HISTORY_FILE).write_text("no database")
    assert since_when(folder, [failed(BAD)]) == {}


def test_history_of_a_glob_is_a_line_for_each_cell_the_bad_ones_first(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch-export", "history", "*/static/*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == [BAD.name, OTHER.name, FINE.name]
    assert "✓✓✓✗✗  bad since 2026-11-04/03-00-00-000 (c4)" in lines[0]
    assert "✗✗✗✗✗" in lines[1]
    assert lines[3] == "3 cells, 5 runs: 2026-11-01/03-00-00-000 to 2026-11-05/03-00-00-000"


def test_history_alone_is_all_cells_and_a_run_ends_it(outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(outputs / "latest~2")
    assert main(["batch-export", "history", "--run", run]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(OTHER.name)  # the other one was good until then
    assert lines[3].startswith("3 cells, 3 runs")
    assert main(["batch-export", "history", BAD.name, "--run", run]) == 0
    assert "2026-11-04" not in capsys.readouterr().out
    assert main(["batch-export", "history", "nothing*"]) == 2
    assert "The history has no cell 'nothing*'" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "text"), [(0.005, "5 us"), (1.234, "1.23 ms"), (2500.0, "2.5 s"), (None, "")])
def test_a_latency_in_a_sentence_has_one_unit(value: float | None, text: str) -> None:
    assert latency_ms(value) == text


def test_the_page_s_head_says_when_of_what_where_and_how_long() -> None:
    page = ReportContext(provenance=[("started", "2026-11-05T03:00:01.5+00:00"), ("name", "<box>")])
    records = [passed(FINE)]
    data = report_data(records, summarise(records, Counts(wall_s=252.0)), page)
    assert data["when"] == [["started", "2026-11-05 03:00 UTC"], ["host", "<box>"], ["took", "4 min"]]
    text = html_report(records, summarise(records, Counts(wall_s=1.25)), page)
    assert "<span>started <b>2026-11-05 03:00 UTC</b></span>" in text
    assert "<b>&lt;box&gt;</b>" in text
    assert "<span>took <b>1.2 s</b></span>" in text
