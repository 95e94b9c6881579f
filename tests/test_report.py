"""batch_export.report: counts, exit code, table, failures, Markdown, CSV, the run's folder and progress."""

from __future__ import annotations

import csv
import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from batch_export.errors import RunError, UsageError
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, OnnxFacts, Outcome, Record
from batch_export.report import run_folder
from batch_export.report.failures import group_failures
from batch_export.report.formats import SUMMARIES, Subject, write
from batch_export.report.markdown import markdown
from batch_export.report.pace import Pace, left_text
from batch_export.report.progress import LineReporter, LiveReporter, reporter_for
from batch_export.report.spreadsheet import COLUMNS, csv_text
from batch_export.report.summary import Counts, complete, summarise
from batch_export.report.table import legend, tables
from batch_export.report.terminal import counts_line, tell
from batch_export.report.wording import ASCII_GLYPHS, GLYPHS, cell_text, error_text, latency_text
from batch_export.runner.reporter import Lane
from batch_export.runtime.measuring import LatencyFacts, MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import ExporterSpec, MatrixSpec, ModelSpec, RunnerSpec, RunSpec
from batch_export.words import one_line

MODEL = ModelSpec("bert_tiny", "models.text.bert", {}, ())
CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
CORE = ExporterSpec("core", "batch_export.exporter")
LATENCY = LatencyFacts(median=1.234, p95=1.5, ci_low=1.2, ci_high=1.3, runs=40, contended=False)


def cell(
    model: str = "bert_tiny", dynamic: str = "static", opset: int = 18, provider: str = "cpu", exporter: str = "core"
) -> Cell:
    return Cell(model, dynamic, opset, provider, exporter)


def passed(where: Cell, **changes: Any) -> Record:
    return replace(Record(where, "pass", max_abs=2.3e-6, max_rel=1e-3, latency_ms=LATENCY, eager_ms=2.468), **changes)


def failed(where: Cell, message: str = "output 'y' is off by 0.5", **changes: Any) -> Record:
    return replace(Record(where, "fail", "mismatch", "ValueMismatch", message, log="logs/bert.log"), **changes)


def rendered(records: list[Record], width: int = 80, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    tell(console, records, summarise(records, Counts(wall_s=61.23, ran=12, cached=800)), Path("outputs/x"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def grid(
    models: int = 3, opsets: tuple[int, ...] = (18, 20, 21, 23), providers: tuple[str, ...] = ("cpu",)
) -> list[Record]:
    return [
        passed(cell(f"a_rather_long_model_name_{number}", dynamic, opset, provider))
        for number in range(models)
        for dynamic in ("static", "full")
        for opset in opsets
        for provider in providers
    ]


# wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0"),
        (2.34e-6, "2e-6"),
        (0.5, "5e-1"),
        (123.0, "1e2"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_errors_are_short(value: float | None, text: str) -> None:
    assert error_text(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, ""),
        (0.0012, "1us"),
        (0.0994, "99us"),
        (0.0996, "0.10"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (999.6, "1.0s"),
        (12345, "12s"),
    ],
)
def test_latencies_have_four_characters_at_most(milliseconds: float | None, text: str) -> None:
    assert latency_text(milliseconds) == text


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (passed(cell()), "✓ 2e-6 1.23"),
        (passed(cell(), latency_ms=replace(LATENCY, contended=True)), "✓ 2e-6~1.23"),
        (passed(cell(), latency_ms=None), "✓ 2e-6"),
        (passed(cell(), max_abs=None, latency_ms=None), "✓ -"),
        (failed(cell()), "✗ mismatch"),
        (replace(failed(cell()), verdict="xfail"), "x mismatch"),
        (replace(passed(cell()), verdict="xpass"), "! 2e-6 1.23"),
        (Record(cell(), "skip", message="no"), "– skip"),  # noqa: RUF001
        (Record(cell(), "missing"), "? missing"),
    ],
)
def test_a_cell_in_eleven_characters(record: Record, text: str) -> None:
    assert cell_text(record, GLYPHS) == text
    assert len(cell_text(record, ASCII_GLYPHS)) == len(text) <= 11


def test_one_line_drops_control_codes() -> None:
    assert one_line("\n\n \x1b[31mbad\tnews\r\nmore") == "bad news"
    assert one_line("") == ""


# summary


def test_a_planned_cell_without_a_record_is_missing_and_a_skip_keeps_its_reason() -> None:
    here, skipped, lost = cell(opset=18), cell(opset=19), cell(opset=20)
    planned = [
        PlannedCell(here, MODEL, CPU, CORE),
        PlannedCell(skipped, MODEL, CPU, CORE, "not installed"),
        PlannedCell(lost, MODEL, CPU, CORE),
    ]
    records = complete(planned, [passed(here)])
    assert [(r.cell, r.verdict) for r in records] == [(here, "pass"), (skipped, "skip"), (lost, "missing")]
    assert records[1].message == "not installed"
    summary = summarise(records, Counts())
    assert summary.exit_code == 1
    assert summary.skip_reasons == {"not installed": 1}


@pytest.mark.parametrize(
    ("verdict", "code"), [("pass", 0), ("skip", 0), ("xfail", 0), ("fail", 1), ("xpass", 1), ("missing", 1)]
)
def test_exit_codes(verdict: Outcome, code: int) -> None:
    records = [passed(cell()), Record(cell(opset=20), verdict)]
    assert summarise(records, Counts()).exit_code == code
    assert summarise(records, Counts(interrupted=True)).exit_code == 130


def test_summary_json_is_the_contract() -> None:
    records = [passed(cell()), failed(cell(opset=20))]
    content = summarise(
        records, Counts(wall_s=1.23456, ran=3, cached=4, rerun_failures=1), "python -m batch_export"
    ).as_json()
    assert {key: content[key] for key in ("planned", "pass", "fail", "skip", "xfail", "xpass", "missing")} == {
        **dict.fromkeys(("skip", "xfail", "xpass", "missing"), 0),
        "planned": 2,
        "pass": 1,
        "fail": 1,
    }
    assert (content["schema_version"], content["wall_s"], content["ran"], content["cached"]) == (1, 1.235, 3, 4)
    assert (content["rerun_failures"], content["interrupted"], content["speed_up"]) == (1, False, 2.0)


# table


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("opsets", [(18,), (18, 20, 21, 23), tuple(range(18, 26))])
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_cut(width: int, opsets: tuple[int, ...]) -> None:
    records = grid(opsets=opsets)
    text = rendered(records, width)
    table = text.split("\n✓")[0].splitlines()
    assert max(map(len, table)) <= width
    assert text.count("✓ 2e-6 1.23") == len(records)
    for opset in opsets:
        assert f"opset {opset}" in text
    assert "2.00x" in text


def test_a_table_per_provider_and_exporter() -> None:
    records = grid(1, (18,), ("cpu", "reference"))
    titles = [table.title for table in tables(records, width=80)]
    assert titles == ["cpu · core", "reference · core"]
    assert [table.title for table in tables(grid(1), width=80)] == [None]
    skipped = [Record(cell(provider="cuda"), "skip", message="not installed")]
    assert [table.title for table in tables([*records, *skipped], width=80)] == titles
    assert len(list(tables(skipped, width=80))) == 1, "a run of nothing but skips still has its table"


def test_a_run_without_latencies_has_neither_their_column_nor_their_legend() -> None:
    measured = grid(1)
    unmeasured = [replace(record, latency_ms=None) for record in measured]
    heads = [[column.header for column in next(iter(tables(one, width=80))).columns] for one in (measured, unmeasured)]
    assert [head[-1] == "speed-up" for head in heads] == [True, False]
    assert ["median ms" in legend(one)[0] for one in (measured, unmeasured)] == [True, False]


def test_a_long_name_goes_on_in_the_models_next_row() -> None:
    names = ("transformer_decoder", "scan_of_a_very_long_state_space", "whisper_encoder")
    records = [passed(cell(name, dynamic, opset)) for name in names for dynamic in ("static", "full")
               for opset in (18, 20, 21, 23)][:-4]  # fmt: skip
    lines = [line[:16].rstrip() for line in rendered(records).splitlines()[1:7]]
    assert lines == ["transformer_", "decoder", "scan_of_a_very_", "long_state_", "space", "whisper_encoder"]


def test_colours_follow_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [passed(cell()), failed(cell(opset=20))]
    assert "\x1b[" not in rendered(records)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in rendered(records, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in rendered(records, force_terminal=True, color_system="standard")


def test_a_terminal_without_unicode_gets_ascii() -> None:
    class Plain(io.StringIO):
        encoding = "ascii"

    console = Console(file=Plain(), width=80)
    records = [passed(cell()), failed(cell(opset=20, provider="reference"))]
    tell(console, records, summarise(records, Counts()), Path("x"))
    assert console.file.getvalue().isascii()  # type: ignore[attr-defined]


# failures and what is printed


def test_the_terminal_has_table_then_failures_then_counts_then_files() -> None:
    records = [passed(cell()), failed(cell(opset=20)), Record(cell("cnn"), "skip", message="cuda is not installed")]
    text = rendered(records)
    order = [
        text.index("opset 18"),
        text.index("✗ bert_tiny static opset 20 cpu: mismatch ValueMismatch"),
        text.index("  output 'y' is off by 0.5"),
        text.index("  log: outputs/x/logs/bert.log"),
        text.index("skipped 1: cuda is not installed"),
        text.index("3 cells: 1 pass, 1 fail, 1 skip; ran 12 actions, 800 cached; 61.2 s"),
        text.index("outputs/x: summary.md"),
    ]
    assert order == sorted(order)


def test_failures_with_the_same_cause_are_told_once() -> None:
    records = [
        failed(cell(opset=18)),
        failed(cell(opset=20, dynamic="full")),
        failed(cell(opset=21), "another cause"),
        failed(cell("cnn")),
        replace(passed(cell("gpt")), verdict="xpass"),
    ]
    groups = group_failures(records, name_exporter=True)
    assert [group.title for group in groups] == [
        "bert_tiny static,full opset 18,20 cpu core",
        "bert_tiny static opset 21 cpu core",
        "cnn static opset 18 cpu core",
        "gpt static opset 18 cpu core",
    ]
    assert groups[3].kind == "xpass"
    assert len(groups[0].cells) == 2


def test_expected_failures_are_told_with_their_reason_and_link() -> None:
    record = replace(failed(cell()), verdict="xfail", extra={"reason": "a bug of theirs", "link": "https://x.test/1"})
    assert "failed as expected 1: a bug of theirs (https://x.test/1)" in rendered([record])
    assert "## Failed as expected" in markdown([record], summarise([record], Counts()))


def test_square_brackets_in_a_message_are_not_markup() -> None:
    assert "shape [/2, bold] is not [red]" in rendered([failed(cell(), "shape [/2, bold] is not [red]")])


def test_an_empty_run_is_told_too() -> None:
    assert "0 cells" in rendered([])
    assert str(counts_line(summarise([], Counts(rerun_failures=2)))).endswith(
        "2 failures of a kind that is never cached; 0.0 s"
    )


def test_markdown_escapes_what_would_be_markup() -> None:
    records = [passed(cell()), failed(cell(opset=20), "a | b <script> [x](y) *z* `q`")]
    text = markdown(records, summarise(records, Counts(), "python -m batch_export `x`"))
    assert "| bert\\_tiny | static | ✓ 2e-6 1.23 | ✗ mismatch | 2.00x |" in text
    assert "a \\| b \\<script\\> \\[x\\](y) \\*z\\* \\`q\\`" in text
    assert "## Unexpected" in text


# CSV


def test_csv_has_a_line_per_cell() -> None:
    facts = OnnxFacts("models/ab/cd.onnx", "cd" * 32, 1234, 18, 56)
    rows = list(csv.DictReader(io.StringIO(csv_text([passed(cell(), onnx=facts), failed(cell(opset=20))]))))
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["latency_median_ms"], rows[0]["contended"], rows[0]["speed_up"]) == ("1.234", "false", "2.0")
    assert (rows[0]["onnx_sha256"], rows[1]["stage"], rows[1]["latency_p95_ms"]) == ("cd" * 32, "mismatch", "")


@given(st.text())
def test_no_text_in_the_csv_acts_as_a_formula(message: str) -> None:
    record = failed(cell(), message, error_class=message, log=message)
    (row,) = csv.DictReader(io.StringIO(csv_text([record]), newline=""))
    for value in row.values():
        assert not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")), value


def test_formulas_are_quoted() -> None:
    (row,) = csv.DictReader(io.StringIO(csv_text([failed(cell(), "=HYPERLINK(1)")])))
    assert row["message"] == "'=HYPERLINK(1)"


# the run's folder


def spec() -> RunSpec:
    matrix = MatrixSpec((MODEL,), (18, 20), ("static",), (CPU,), (CORE,))
    return RunSpec(matrix, RunnerSpec(), MeasureSpec(), {}, "outputs/store", "outputs/x")


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    cells = (PlannedCell(cell(), MODEL, CPU, CORE), PlannedCell(cell(opset=20), MODEL, CPU, CORE, "why"))
    run_folder.write_run(tmp_path, spec(), cells, "python -m batch_export")
    stored = run_folder.read_run(tmp_path)
    assert (stored.spec, stored.cells(), stored.command) == (spec(), cells, "python -m batch_export")
    records = (passed(cell()), failed(cell(opset=20)))
    run_folder.write_records(tmp_path, records)
    assert run_folder.read_records(tmp_path) == records
    summary = summarise(records, Counts(wall_s=1.5, ran=2, cached=3, rerun_failures=1))
    write(Subject(tmp_path, records, summary), SUMMARIES)
    assert run_folder.read_counts(tmp_path) == summary.counts
    assert json.loads((tmp_path / "summary.json").read_text())["planned"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {
        *("run.json", "records.jsonl", "summary.json", "summary.md", "summary.csv"),
    }


def test_a_record_that_an_interruption_cut_off_is_left_out(tmp_path: Path) -> None:
    line = msgspec.json.encode(passed(cell()))
    (tmp_path / "records.jsonl").write_bytes(line + b"\n" + line[:40])
    assert run_folder.read_records(tmp_path) == (passed(cell()),)
    (tmp_path / "records.jsonl").write_bytes(line[:40] + b"\n" + line + b"\n")
    with pytest.raises(UsageError, match=r"records\.jsonl line 1 is not a record"):
        run_folder.read_records(tmp_path)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not the folder of a run.*outputs/latest"):
        run_folder.read_run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot be read by this version"):
        run_folder.read_run(tmp_path)
    assert run_folder.read_counts(tmp_path) == Counts(interrupted=True)


def test_latest_is_a_relative_link_that_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1", "2"):
        (tmp_path / "day" / name).mkdir(parents=True)
        run_folder.point_latest(tmp_path, tmp_path / "day" / name)
    assert (tmp_path / "latest").readlink() == Path("day/2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day", "latest"]

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    run_folder.point_latest(tmp_path, tmp_path / "day" / "1")
    assert (tmp_path / "latest.txt").read_text() == "day/1\n"


def test_a_folder_that_cannot_be_written_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"file/x is not writable .*choose another with store\.path="):
        run_folder.require_writable(tmp_path / "file" / "x", "store.path")


# progress


def lines_of(console: Console) -> list[str]:
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_plain_progress_is_throttled_but_names_every_failure() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=80)
    reporter = LineReporter(console, clock=lambda: now[0])
    cells = [cell(opset=opset) for opset in range(18, 24)]
    reporter.started(cells)
    for index, where in enumerate(cells):
        now[0] = index * 0.9
        reporter.group_started("bert_tiny/static/core")
        reporter.record(failed(where) if where.opset == 19 else passed(where))
    reporter.message("measuring")
    reporter.finished()
    assert lines_of(console) == [
        "6 cells",
        "fail bert_tiny/static/opset19/cpu/core: mismatch ValueMismatch",
        "[4/6] 3 pass, 1 fail; last: bert_tiny/static/opset21/cpu/core",
        "[6/6] 5 pass, 1 fail; last: bert_tiny/static/opset23/cpu/core",
        "measuring",
    ]


def test_plain_progress_tells_of_units_while_no_cell_has_its_record() -> None:
    console, now = Console(file=io.StringIO(), width=80), [0.0]
    reporter = LineReporter(console, clock=lambda: now[0])
    names = [f"bert_tiny/{setting}/core" for setting in ("static", "full", "batch", "seq")]
    reporter.started([cell(opset=opset) for opset in range(6)])
    reporter.scheduled([Lane(tuple((name, 3.0) for name in names), 1), Lane((("bert_tiny/measure", 4.0),), 1)])
    for name in names[:3]:
        reporter.group_started(name)
        now[0] += 3.0 if name != names[1] else 0.5
        reporter.group_finished(name)
    assert lines_of(console) == [
        "6 cells",
        "[0/6]; 1 of 4 units done; last: bert_tiny/static/core; about 15 s left",
        "[0/6]; 3 of 4 units done; last: bert_tiny/batch/core; about 5 s left",
    ]


def test_plain_progress_has_no_control_codes_and_counts_every_thread() -> None:
    console = Console(file=io.StringIO(), width=80)
    reporter = reporter_for(console)
    assert isinstance(reporter, LineReporter)
    reporter.started([cell(opset=opset) for opset in range(40)])
    threads = [threading.Thread(target=reporter.record, args=(passed(cell(opset=opset)),)) for opset in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(line.startswith("[40/40] 40 pass") for line in lines_of(console))
    assert "\x1b" not in "".join(lines_of(console))


def test_a_terminal_gets_a_live_view_that_leaves_only_failures_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    reporter = reporter_for(console)
    assert isinstance(reporter, LiveReporter)
    reporter.started([cell(), cell(opset=20)])
    reporter.group_started("bert_tiny/[static]/core")
    reporter.record(passed(cell()))
    reporter.record(failed(cell(opset=20)))
    reporter.message("measuring 1 cell")
    reporter.finished()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "fail bert_tiny/static/opset20/cpu/core" in text
    assert "bert_tiny/[static]/core" in text
    assert "2/2" in text


def test_the_live_view_shows_counts_the_time_left_and_what_runs() -> None:
    now = [100.0]
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    reporter = LiveReporter(console, clock=lambda: now[0])
    reporter.started([cell(opset=opset) for opset in range(18, 22)])
    reporter.scheduled(
        [
            Lane((("bert/full/core", 60.0), ("gpt/full/core", 40.0), ("cnn/full/core", None)), 2),
            Lane((("bert/measure", 30.0),), 1),
        ]
    )
    reporter.group_started("bert/full/core")
    reporter.group_started("gpt/full/core")
    reporter.working("bert/full/core", cell("bert", dynamic="full", opset=18), "")
    reporter.working("bert/full/core", cell("bert", dynamic="full", opset=18), "Translate")
    now[0] = 107.0
    reporter.working("gpt/full/core", cell("gpt_" + "long_" * 20, dynamic="full", opset=18), "Run")
    now[0] = 110.0
    reporter.record(passed(cell()))

    def shown() -> list[str]:
        plain = Console(file=io.StringIO(), width=80)
        plain.print(reporter.picture())
        return [line.rstrip() for line in lines_of(plain)]

    head, *units = shown()
    assert head.endswith("1/4 1 pass 0:10, about 2 min left")
    assert units == [
        "  bert/full/opset18/cpu/core                  Translate 0:10  0:10 of about 1:00",
        "  gpt_long_long_lon.../full/opset18/cpu/core  Run 0:03        0:10 of about 0:40",
    ]
    assert max(map(len, (head, *units))) <= 80
    reporter.working("gpt/full/core", cell("gpt", dynamic="full", opset=20), "")
    assert shown()[2].split() == ["gpt/full/opset20/cpu/core", "waiting", "0:00", "0:10", "of", "about", "0:40"]
    for number in range(9):
        reporter.group_started(f"more/{number}")
    assert shown()[-1] == "  and 4 more"
    assert len(shown()) == 9
    assert "0/4" in "".join(lines_of(console))
    reporter.group_finished("bert/full/core")
    assert not any("bert/full" in line for line in shown())
    reporter.finished()


def test_the_time_left_follows_workers_lanes_and_what_is_late() -> None:
    lanes = (Lane((("a", 60.0), ("b", 40.0), ("c", 30.0)), 2), Lane((("m", 10.0),), 1))
    pace = Pace(lanes)
    assert pace.left_s(0.0) == 70.0 + 10.0
    pace = pace.began("a", 0.0).began("b", 0.0)
    assert pace.left_s(20.0) == 50.0 + 10.0
    assert pace.ended("b", 40.0).began("c", 40.0).left_s(40.0) == 30.0 + 10.0
    late = Pace((Lane((("a", 10.0),), 1),)).began("a", 0.0)
    assert late.left_s(100.0) == 10.0
    assert late.ended("a", 100.0).left_s(100.0) == 0.0
    new = Pace((Lane((("a", None), ("b", None)), 1),))
    assert new.left_s(0.0) is None
    assert new.began("a", 0.0).ended("a", 7.0).left_s(7.0) == 7.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0.0, "about 5 s left"),
        (42.0, "about 40 s left"),
        (57.0, "about 1 min left"),
        (200.0, "about 3 min left"),
        (4800.0, "about 1 h 20 min left"),
    ],
)
def test_the_time_left_is_said_roughly(seconds: float | None, text: str) -> None:
    assert left_text(seconds) == text


def test_plain_lines_say_how_long_it_takes() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=80)
    reporter = LineReporter(console, clock=lambda: now[0])
    reporter.started([cell(), cell(opset=20)])
    reporter.scheduled([Lane((("a", 10.0), ("b", 20.0)), 1)])
    reporter.group_started("a")
    now[0] = 10.0
    reporter.group_finished("a")
    assert lines_of(console)[-1] == "[0/2]; 1 of 2 units done; last: a; about 20 s left"
    now[0] = 12.0
    reporter.record(passed(cell()))
    assert lines_of(console)[-1] == "[1/2] 1 pass; last: bert_tiny/static/opset18/cpu/core; about 20 s left"
