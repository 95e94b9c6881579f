"""`explain` and `doctor`, `resume` and `cache` as they are typed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeping import CORE, cells, model, sweep

from batch_export.cli import resume
from batch_export.cli.main import main
from batch_export.digest import digest_file
from batch_export.errors import RunError, UsageError
from batch_export.numbers.tolerances import Tolerance
from batch_export.plan.explain import differences, explain, lines
from batch_export.plan.walk import PlanSettings
from batch_export.report import run_folder
from batch_export.runner.surroundings import read_surroundings
from batch_export.runtime.measuring import MeasureSpec
from batch_export.sources.toolchain import toolchain_for
from batch_export.spec import MatrixSpec, RunnerSpec, RunSpec
from batch_export.store import open_store, read_entry
from batch_export.store.entry import encode_entry

SETTINGS = PlanSettings(1, MeasureSpec(enabled=False))


def command(*arguments: str) -> int:
    return main(["batch-export", *arguments])


def test_every_action_shows_its_entries_and_whether_it_is_cached(tmp_path: Path) -> None:
    item = cells([model("m")], opsets=(18,))[0]
    sweep(tmp_path, [item])
    toolchain = toolchain_for([item.model], [CORE])
    store = open_store(tmp_path / "store", tuple(map(Path, toolchain.roots)))
    found = explain(item, toolchain, SETTINGS, store, {})
    assert [step.action.mnemonic for step in found] == ["Reference", "Capture", "Translate", "Check", "Run"]
    text = list(lines(item, found))
    assert text[0] == "m/static/opset18/cpu/core"
    assert all("cached" in line for line in text if line.startswith("  ") and line[2] != " ")
    assert any(line.split()[0] == "version.torch" for line in text[1:])


def test_what_differs_from_the_nearest_earlier_key_is_named(tmp_path: Path) -> None:
    before = cells([model("m", width=8)], opsets=(18,))[0]
    sweep(tmp_path, [before])
    now = cells([model("m", width=9)], opsets=(18,))[0]
    toolchain = toolchain_for([now.model], [CORE])
    store = open_store(tmp_path / "store", tuple(map(Path, toolchain.roots)))
    found = explain(now, toolchain, SETTINGS, store, {})
    assert len(found) == 1
    assert [difference.name for difference in found[0].differences] == ["model.arguments"]
    text = "\n".join(lines(now, found))
    assert "would be executed" in text
    assert "differs from" in text
    assert '"width":8' in "\n".join(lines(now, found, full=True))
    assert "what follows depends on that result" in text


def test_the_files_behind_a_digest_that_differs_are_named(tmp_path: Path) -> None:
    before = cells([model("m", width=8)], opsets=(18,))[0]
    key = sweep(tmp_path, [before]).records[0].actions[0].key
    now = cells([model("m", width=9)], opsets=(18,))[0]
    toolchain = toolchain_for([now.model], [CORE])
    source = tmp_path / "part.py"
    source.write_text("width = 8\n")
    store = open_store(tmp_path / "store", (*map(Path, toolchain.roots), tmp_path))
    entry = read_entry(store.entry_path(key))
    assert entry is not None
    seen = replace(entry.result, sources=((source.name, digest_file(source)), ("gone.py", "0" * 64)))
    store.entry_path(key).write_bytes(encode_entry(replace(entry, result=seen)))
    last = {entry.result.mnemonic: [key]}

    def said() -> list[str]:
        text = list(lines(now, explain(now, toolchain, SETTINGS, store, last)))
        return text[text.index("    of what that action saw:") + 1 : -1]

    assert said() == ["      file gone.py is gone"]
    source.write_text("width = 9\n")
    assert said() == ["      file part.py has changed", "      file gone.py is gone"]


def test_a_key_that_is_as_before_says_that_its_result_is_gone(tmp_path: Path) -> None:
    item = cells([model("m")], opsets=(18,))[0]
    record = sweep(tmp_path, [item]).records[0]
    toolchain = toolchain_for([item.model], [CORE])
    store = open_store(tmp_path / "store", tuple(map(Path, toolchain.roots)))
    for path in store.content.blobs.glob("*/*"):
        path.unlink()
    last = {action.mnemonic: [action.key] for action in record.actions}
    text = "\n".join(lines(item, explain(item, toolchain, SETTINGS, store, last)))
    assert "the key is as before: the stored result is gone, damaged or flaky" in text


def test_differences_are_by_name() -> None:
    found = differences((("a", "1"), ("b", "2")), (("b", "3"), ("c", "4")))
    assert [(item.name, item.before, item.now) for item in found] == [
        ("a", "1", None),
        ("b", "2", "3"),
        ("c", None, "4"),
    ]


def test_explain_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"store.path={tmp_path}/store"
    assert command("explain", "mlp_nested/static/opset20/cpu/core", store) == 0
    out = capsys.readouterr().out
    assert "Reference" in out
    assert "would be executed" in out
    assert "there is no earlier key to compare with" in out
    assert command("explain", "mlp_nested", store) == 2
    assert "is not a cell's name, nor an error's code or class. Next step: " in capsys.readouterr().err
    assert command("explain", "mlp_nestd/static/opset20/cpu/core", store) == 2
    assert "mlp_nested" in capsys.readouterr().err


def test_doctor_looks_at_everything_and_leaves_no_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "batch_export", "doctor", f"store.remote={tmp_path}/shared", "output.path=out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("python 3", "torch ", "execution providers: ", "output.path", "locks work", "writes and reads"):
        assert words in done.stdout
    assert "children: the server that they are forked from was ready in" in done.stdout
    assert not list((tmp_path / "out").glob("*/*/run.json"))


def test_doctor_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert command("doctor", f"store.path={tmp_path}/file/store", f"output.path={tmp_path}/out") == 1
    out = capsys.readouterr().out
    assert "fail  " in out
    assert "Next step: choose another with store.path=" in out


def stored(folder: Path, outputs: Path) -> None:
    """A run of fake cells, as the command line would have begun it."""
    work = cells([model("a"), model("b")], opsets=(18,))
    matrix = MatrixSpec(
        tuple({item.cell.model: item.model for item in work}.values()), (18,), ("static",), (work[0].provider,), (CORE,)
    )
    spec = RunSpec(
        matrix,
        RunnerSpec(),
        MeasureSpec(enabled=False),
        {"float32": Tolerance(0.01, 0)},
        str(outputs / "store"),
        str(folder),
    )
    folder.mkdir(parents=True)
    run_folder.write_run(folder, spec, work, "python -m batch_export +sweep=fake")


def test_resume_takes_the_newest_run_that_is_not_finished(tmp_path: Path) -> None:
    older, newer = tmp_path / "2026-01-01" / "00-00-01", tmp_path / "2026-01-02" / "00-00-01"
    stored(older, tmp_path)
    assert resume.newest_unfinished(tmp_path) == older.resolve()
    stored(newer, tmp_path)
    assert resume.newest_unfinished(tmp_path) == newer.resolve()
    (newer / "summary.json").write_text('{"interrupted": false, "missing": 0}')
    assert resume.newest_unfinished(tmp_path) == older.resolve()
    (older / "summary.json").write_text('{"interrupted": false, "missing": 0}')
    with pytest.raises(UsageError, match=r"no run below .* is unfinished. Next step: name a folder"):
        resume.newest_unfinished(tmp_path)
    (older / "summary.json").write_text("{")
    assert resume.newest_unfinished(tmp_path) == older.resolve()


def test_resume_finishes_a_run_and_says_so_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sweeping import STAGES

    from batch_export.runner import sweep as runner

    real = runner.run_sweep
    monkeypatch.setattr(runner, "run_sweep", lambda *a, **k: real(*a, **k, stages=STAGES, preload=()))
    folder = tmp_path / "2026-01-01" / "00-00-01"
    stored(folder, tmp_path)
    assert command("resume", "--outputs", str(tmp_path)) == 0
    assert "2 cells: 2 pass" in capsys.readouterr().out
    assert run_folder.read_summary(folder)["command"] == "python -m batch_export +sweep=fake"  # type: ignore[index]
    surroundings = read_surroundings(folder)
    assert surroundings is not None
    assert surroundings.folder == os.getcwd()
    assert command("resume", str(folder)) == 0
    assert "is finished (ran 10 actions, 0 cached); nothing is left" in capsys.readouterr().out


def test_the_rest_of_a_run_may_be_run_somewhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from batch_export.runner import sweep as runner

    asked: list[RunnerSpec] = []

    def refuse(spec: RunSpec, *_: Any, **__: Any) -> Any:
        asked.append(spec.runner)
        raise RunError("enough")

    monkeypatch.setattr(runner, "run_sweep", refuse)
    stored(tmp_path / "2026-01-01" / "00-00-01", tmp_path)
    for words in ([], ["--runner", "dask"], ["--address", "tcp://other:1"], ["--runner", "local"], ["--address", ""]):
        assert command("resume", "--outputs", str(tmp_path), *words) == 3
    found = [(runner.engine, runner.address) for runner in asked]
    assert found == [("local", ""), ("dask", ""), ("dask", "tcp://other:1"), ("local", ""), ("dask", "")]
    there = RunnerSpec(engine="dask", address="tcp://one:1")
    assert resume.elsewhere(there, None, None) == there
    assert resume.elsewhere(there, "dask", None) == there
    assert resume.elsewhere(there, "local", None).address == ""
    assert command("resume", "--outputs", str(tmp_path), "--runner", "local", "--address", "tcp://x:1") == 2
    assert "--address is a dask scheduler's" in capsys.readouterr().err


def test_cache_verify_export_and_import_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = cells([model("m")])
    sweep(tmp_path, planned)
    spec = RunSpec(MatrixSpec((), (), (), (), ()), RunnerSpec(), MeasureSpec(), {}, str(tmp_path / "store"), "outputs")
    run_folder.write_run(tmp_path / "run0", spec, planned, "batch-export")
    store, file = f"store.path={tmp_path}/store", str(tmp_path / "x.tar")
    assert command("cache", "verify", store) == 0
    assert "sound    8 action results" in capsys.readouterr().out
    assert command("cache", "export", file, "--run", str(tmp_path / "run0"), store) == 0
    assert "8 action results" in capsys.readouterr().out
    assert command("cache", "import", file, f"store.path={tmp_path}/other") == 0
    assert "took over 8 action results" in capsys.readouterr().out
    victim = next(path for path in (tmp_path / "store" / "blobs").glob("*/*") if not path.suffix)
    victim.write_bytes(b"other")
    assert command("cache", "verify", store) == 1
    assert "moved to quarantine/; the next run that needs it makes it again" in capsys.readouterr().out
    assert command("cache", "gc", "--older-than", "1d", store) == 0
    assert command("cache", "gc", "--older-than", "soon", store) == 2
    assert "'soon' is not an age" in capsys.readouterr().err
