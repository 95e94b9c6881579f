"""Failures by cause: what is merged, what stays apart, and that the terminal tells each of them once."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recording import cell, circumstances, failed, passed, write_run
from rich.console import Console

from batch_export.cli.main import main
from batch_export.cli.sweep_flags import taken_out
from batch_export.errors import UsageError
from batch_export.findings.diagnostic import OTHERWISE, without_numbers
from batch_export.record import Record
from batch_export.report.annotations import github_lines
from batch_export.report.clusters import clusters
from batch_export.report.compare import compare, confirmed, suspects
from batch_export.report.compare_text import comparison_markdown
from batch_export.report.markdown import markdown
from batch_export.report.progress import LineReporter, LiveReporter
from batch_export.report.summary import Counts, summarise
from batch_export.report.terminal import counts_line, tell
from batch_export.report.wording import GLYPHS, cell_text
from batch_export.runtime.paired import PairedFacts
from batch_export.stages.failures import short_line
from batch_export.words import class_and_line, telling_line

CACHE = "{} returns a Cache at '0'; its forward must return tensors"


def _raised(model: str, text: str, exporter: str = "core", opset: int = 20, stage: str = "model") -> Record:
    return failed(cell(model, exporter=exporter, opset=opset), stage, "ModelError", text.format(model))


def test_one_cause_is_one_entry_whatever_the_model_the_exporter_and_the_opset() -> None:
    records = [
        _raised(model, CACHE, exporter, opset)
        for model in ("llama", "gpt")
        for exporter in ("core", "torchscript")
        for opset in (18, 20)
    ]
    (cluster,) = clusters(records)
    assert len(cluster.records) == 8
    assert cluster.models == ("llama", "gpt")


def test_addresses_and_run_dependent_numbers_do_not_part_a_cause() -> None:
    first = _raised("m", "object at 0x7f56e72cb310 has no size after 12 s")
    second = _raised("m", "object at 0xDEADBEEF has no size after 9.5 s", opset=18)
    assert len(clusters([first, second])) == 1
    assert len({cluster.fingerprint for one in (first, second) for cluster in clusters([one])}) == 1


def test_what_was_expected_in_place_of_a_failure_does_not_part_it() -> None:
    text = "no such op"
    declared = f"{text}{OTHERWISE}stage load, class X: a bug of the runtime)"
    assert without_numbers(declared) == text
    assert len(clusters([_raised("a", text), _raised("b", declared)])) == 1


@pytest.mark.parametrize("stage", ["mismatch", "crash", "timeout", "check", "dynamic"])
def test_symptoms_of_two_models_or_exporters_are_not_taken_for_one_cause(stage: str) -> None:
    apart = [_raised("a", "off by 1", stage=stage), _raised("b", "off by 2", stage=stage)]
    assert len(clusters(apart)) == 2
    assert len(clusters([apart[0], _raised("a", "off by 1", "torch", stage=stage)])) == 2
    assert len(clusters([apart[0], _raised("a", "off by 3", opset=18, stage=stage)])) == 1


def _at_line(exporter: str, error_class: str, source: str, operator: str = "", stage: str = "capture") -> Record:
    found = failed(cell("m", exporter=exporter), stage, error_class, f"{exporter} says it so")
    assert found.failure is not None
    return replace(found, failure=replace(found.failure, source=source, operator=operator or None))


def test_one_source_line_is_one_cause_in_the_words_of_every_exporter() -> None:
    core = _at_line("core", "CaptureError", "/home/a/net.py:7")
    torch = _at_line("torch", "TorchCaptureError", "/home/a/net.py:7")
    script = _at_line("torchscript", "RuntimeError", "/home/a/net.py:7")
    assert [len(one.records) for one in clusters([core, torch, script])] == [3]
    elsewhere = _at_line("torch", "TorchCaptureError", "/home/a/net.py:8")
    assert len(clusters([core, elsewhere])) == 2
    assert len(clusters([core, _at_line("core", "DynamicShapeError", "/home/a/net.py:7")])) == 2
    two = [_at_line(one, "X" + one, "/home/a/net.py:7", f"aten::{one}") for one in ("core", "torch")]
    assert len(clusters(two)) == 2, "two operators of one line are two causes"
    wrong = [_at_line(one, "X" + one, "/home/a/net.py:7", stage="mismatch") for one in ("core", "torch")]
    assert len(clusters(wrong)) == 2


def test_other_words_are_another_cause() -> None:
    assert len(clusters([_raised("a", "needs the argument 'width'"), _raised("b", "needs the argument 'depth'")])) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Found the following conflicts from tracing:\n\n- Received a dynamic hint\n- more", "Found the following "
         "conflicts from tracing: - Received a dynamic hint"),
        ("first\nsecond", "first"),
        ("a:\nb:\nc:\nd:\ne", "a: b: c: d:"),
        ("\n\nonly:\n", "only:"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_line_that_announces_is_told_with_what_follows(text: str, line: str) -> None:
    assert telling_line(text) == line
    assert short_line(text) == (line or "(no message)")
    if text:
        assert class_and_line(ValueError(text)) == f"ValueError: {line}"


def test_what_an_exporter_is_called_with_wrongly_is_no_question_for_bisect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = failed(cell("a"), "translate", "UsageError", "exporter 'core' has no argument 'guard'")
    _outputs(tmp_path, bad)
    assert "next: " not in _told([bad])
    for verb in ("bisect", "repro"):
        assert main(["batch-export", verb, bad.cell.name]) == 2
        said = f"there is nothing to {verb}: exporter 'core' has no argument 'guard'"
        assert said in capsys.readouterr().err


def test_cells_without_a_record_have_one_cause() -> None:
    text = "the run ended before this cell had a record"
    lost = [Record(cell(name), "missing", message=text) for name in ("bert", "gpt", "vit")]
    assert [len(one.records) for one in clusters(lost)] == [3]


def test_a_long_sentence_ends_its_lines_between_words_on_a_terminal_and_is_one_line_in_a_log() -> None:
    words = "so many words that no line of a terminal could hold them all " * 4
    long = failed(cell("d"), "load", "LoadError", words.strip())
    assert f"\n  {words.strip()}\n" in _told([long])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", _told([long], terminal=True))
    lines = [
        line.rstrip() for line in shown[shown.index("  so many") :].split("\n\n")[0].splitlines() if "next:" not in line
    ]
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  ") and not line.startswith("   ") for line in lines)
    assert " ".join(" ".join(lines).split()) == words.strip()


def _told(records: list[Record], base: list[Record] | None = None, *, terminal: bool = False, **how: bool) -> str:
    comparison = compare(base, records) if base is not None else None
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal)
    tell(console, records, summarise(records, Counts()), Path("run"), comparison, **how)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_tells_each_failure_once_and_new_ones_first() -> None:
    old = [_raised(name, "an old cause") for name in ("a", "b", "c")]
    new = failed(cell("d"), "load", "LoadError", "a new cause")
    text = _told([*old, new], base=[*old, passed(cell("d"))])
    assert text.count("an old cause") == text.count("a new cause") == 1
    assert text.index("a new cause") < text.index("an old cause")
    assert "✗ new d static opset 20 cpu: load LoadError" in text
    assert "1 new failure, 3 still failing" in text
    assert "✗ new load" in text  # the table keeps the stage
    assert "new, fixed: against the base" in text
    assert max(map(len, text.splitlines())) <= 80


def test_new_causes_come_first_in_markdown_and_annotations_too() -> None:
    old = [_raised(name, "an old cause") for name in ("a", "b", "c")]
    new = failed(cell("d"), "load", "LoadError", "a new cause")
    records = [*old, new]
    marks = compare([*old, passed(cell("d"))], records).marks()
    text = markdown(records, summarise(records, Counts()), marks=marks)
    assert text.index("a new cause") < text.index("an old cause")
    assert "- ✗ **new** **d static opset 20 cpu core**: load LoadError" in text
    first, second = github_lines(records, marks)
    assert first.startswith("::error title=new d static opset 20 cpu%3A load LoadError::a new cause")
    assert second.startswith("::warning title=3 cells")


def test_a_failure_that_no_store_keeps_is_not_called_an_earlier_one() -> None:
    record = failed(cell("d"), "crash", "Crash")
    counted = summarise([record], Counts(ran=2, rerun_failures=1))
    assert "ran 2 actions, 0 cached, 1 failure of a kind that is never cached" in counts_line(counted).plain
    assert "Ran 2 actions, 0 cached, 1 failure of a kind that is never cached, 0.0 s." in markdown([record], counted)


def test_a_failure_keeps_its_stage_beside_the_mark_and_an_old_one_has_none() -> None:
    record = failed(cell("d"), "capture")
    assert cell_text(record, GLYPHS, "new") == "✗ new capture"
    assert cell_text(record, GLYPHS, "still") == "✗ capture"
    assert cell_text(passed(cell("d")), GLYPHS, "fixed") == "✓ fixed"


def test_brief_tells_only_what_is_not_as_expected() -> None:
    records = [_raised("a", "a cause"), passed(cell("b")), Record(cell("c"), "skip", message="not installed")]
    text = _told(records, brief=True)
    assert "a cause" in text
    assert "speed-up" not in text
    assert "not installed" not in text
    assert "3 cells: 1 pass, 1 fail, 1 skip" in text
    assert _told([passed(cell("b"))], brief=True).splitlines()[0].startswith("1 cell: 1 pass")


@pytest.mark.parametrize("kind", [LineReporter, LiveReporter])
def test_progress_has_a_line_for_each_cause_no_wider_than_the_terminal(kind: type) -> None:
    long = "a cause that takes many words, " * 10
    console = Console(file=io.StringIO(), width=80, force_terminal=kind is LiveReporter)
    reporter = kind(console)
    for name in ("gpt", "llama"):
        reporter.record(_raised(name, long))
    reporter.record(failed(cell("c" * 90), "load", "LoadError", long))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "fail gpt/static/opset20/cpu/core: model ModelError" in said
    assert "fail llama/" not in said
    assert "many words" not in said
    if kind is LiveReporter:
        assert "\n" not in said.split("ccc")[-1].rstrip("\n")  # one line, cut


def _outputs(tmp_path: Path, *records: Record) -> Path:
    write_run(tmp_path / "outputs" / "2026-11-22" / "01-00-00-000", records)
    return tmp_path / "outputs"


def test_last_failed_chooses_the_cells_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="outputs holds no run"):
        taken_out(["--last-failed"])
    bad = failed(cell("a"))
    _outputs(tmp_path, bad, passed(cell("b")))
    found = taken_out(["-q", "--last-failed", "matrix.models=[a,b]"])
    assert (found.words, found.brief, found.only) == (("matrix.models=[a,b]",), True, {bad.cell})
    assert found.typed[-1] == "--last-failed"
    assert taken_out(["-q", "a=1"]).only is None


def test_last_failed_takes_the_last_runs_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = _outputs(tmp_path, failed(cell("a")))
    file = next(outputs.glob("*/*/run.json"))
    for command in ("python -m batch_export --config-dir 'my conf' +sweep=x --last-failed", "batch-export +sweep=x"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "command": command}))
        assert taken_out(["--last-failed"]).words[-1] == "+sweep=x"
    file.write_text(json.dumps({**json.loads(file.read_text()), "command": "batch-export --config-dir 'my conf'"}))
    assert taken_out(["--lf"]).words == ("--config-dir", "my conf")


def test_last_failed_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", list(sys.path))
    bad = failed(cell("a"))
    made = replace(circumstances("2026-11-22T01:00:00", "c", "host"), folder=str(home))
    write_run(home / "outputs" / "2026-11-22" / "01-00-00-000", [bad], made=made)
    for flag in (f"--last-failed={home}/outputs/latest", f"--lf={home}/outputs/2026-11-22/01-00-00-000"):
        monkeypatch.chdir(elsewhere)
        found = taken_out(["matrix.models=[a]", flag])
        assert (found.words, found.only) == (("matrix.models=[a]",), {bad.cell})
        assert Path.cwd() == home, "models and store are where the run was started"
    monkeypatch.chdir(elsewhere)
    with pytest.raises(UsageError, match="name the run: --last-failed=/path/to/outputs/latest"):
        taken_out(["--last-failed"])
    with pytest.raises(UsageError, match="'nowhere' is not the folder of a run"):
        taken_out(["--last-failed=nowhere"])


def test_nothing_is_run_when_nothing_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _outputs(tmp_path, passed(cell("b")))
    assert main(["batch-export", "--last-failed"]) == 0
    assert "nothing failed in outputs/2026-11-22/01-00-00-000; nothing is run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("records", "interrupted", "said"),
    [
        ([Record(cell(one), "skip") for one in "ab"], False, "nothing was tested in .* .all 2 cells skipped"),
        ([], True, "nothing was tested in .* .there is no cell"),
        ([passed(cell("a"))], True, "nothing failed in .* so far, which is not finished; .*resume outputs/2026-11-22"),
    ],
)
def test_last_failed_of_a_run_that_proves_nothing_is_no_success(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    records: list[Record],
    interrupted: bool,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = next(_outputs(tmp_path, *records).glob("*/*"))
    (folder / "summary.json").write_text(json.dumps({"interrupted": interrupted}))
    assert main(["batch-export", "--last-failed"]) == 1
    assert re.search(said, capsys.readouterr().out)


def test_last_failed_of_another_matrix_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _outputs(tmp_path, failed(cell("a")))
    assert main(["batch-export", "--last-failed", "matrix.models=[cnn]"]) == 2
    assert "none of the 1 cell that failed last is in this matrix" in capsys.readouterr().err


def test_rendering_a_red_run_to_a_file_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _outputs(tmp_path, failed(cell("a")))
    words = ["batch-export", "report", "latest", "--format", "html"]
    assert main([*words, "-o", "red.html"]) == 0
    assert main([*words, "-o", "red.html", "--exit-code"]) == 1
    assert main(words) == 1


# progress


def test_verified_cells_count_before_they_are_timed() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    reporter = LiveReporter(console)
    where = [cell(opset=opset) for opset in (18, 19, 20)]
    reporter.started(where)
    reporter.verified(where[0])
    reporter.verified(where[1])
    assert "2 verified" in _picture(console, reporter)
    reporter.record(passed(where[0]))
    shown = _picture(console, reporter)
    reporter.finished()
    assert "1/3" in shown
    assert "1 pass, 1 verified" in shown


def test_what_starting_does_is_said() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    reporter = LiveReporter(console)
    reporter.started([cell(), cell("b")])
    reporter.group_started("bert static core")
    assert "bert static core  importing torch" in _picture(console, reporter)
    reporter.working("bert static core", cell(), "Capture")
    reporter.group_started("b static core")
    shown = _picture(console, reporter)
    reporter.finished()
    assert "Capture 0:00" in shown
    assert re.search(r"b static core +starting a process", shown)


def test_plain_progress_counts_them_too() -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), width=100)
    reporter = LineReporter(console, clock=lambda: now[0])
    reporter.started([cell(), cell("b")])
    now[0] = 3.0
    reporter.verified(cell())
    assert isinstance(console.file, io.StringIO)
    assert "[0/2] 1 verified; last: bert/static/opset20/cpu/core" in console.file.getvalue()


def test_without_colours_the_bar_still_shows_how_far_the_run_is() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, no_color=True)
    reporter = LiveReporter(console)
    reporter.started([cell(opset=opset) for opset in range(18, 22)])
    reporter.record(passed(cell(opset=18)))
    shown = _picture(console, reporter)
    reporter.finished()
    assert f"[{'#' * 6}{'.' * 18}]" in shown


def _picture(console: Console, reporter: LiveReporter) -> str:
    with console.capture() as capture:
        console.print(reporter.picture())
    return capture.get()


# what was measured on a busy machine; what a baseline accepts


def test_a_slowdown_on_a_busy_machine_is_named_with_what_decides() -> None:
    base = [passed(cell(), ms=1.0, contended=True), passed(cell("gpt"), ms=1.0, contended=True)]
    now = [passed(cell(), ms=2.4), passed(cell("gpt"), ms=1.1)]
    found = compare(base, now, base_name="latest~1", new_name="latest")
    assert [(change.kind, change.cell.model, change.text) for change in found.changes] == [
        ("busy", "bert", "1.00 ms to 2.40 ms (+140 %); the file is the same, so the runtime or the machine changed")
    ]
    assert found.exit_code == 0
    assert suspects(found) == ()
    assert suspects(found, busy=True) == (cell(),)
    text = _told(now, base)
    assert "Perhaps slower, measured on a busy machine (1)" in text
    assert "what decides: python -m batch_export compare base new --busy" in text
    assert "`python -m batch_export compare latest~1 latest --busy`" in comparison_markdown(found).replace("'", "")
    measured = PairedFacts(2.4, 2.3, 2.5, 9)
    assert [change.kind for change in confirmed(found, {cell(): measured}, 1.05).changes] == ["slower"]


def test_a_baseline_says_what_it_accepts_and_wants_failures_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _outputs(tmp_path, failed(cell("a")), passed(cell("b")))
    words = ["batch-export", "baseline", "accept", "latest", "--to", "base.json"]
    assert main(words) == 2
    assert "has 1 cell that did not end as expected (fail a/static/opset20/cpu/core)" in capsys.readouterr().err
    assert not Path("base.json").exists()
    assert main([*words, "--with-failures"]) == 0
    said = capsys.readouterr().out
    assert "base.json: 2 cells of 2026-11-22/01-00-00-000: 1 pass, 1 fail" in said
    assert "accepted as they are: fail a/static/opset20/cpu/core" in said
