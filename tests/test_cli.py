"""batch_export.cli and config.compose: verbs, flags, exit codes; in this process where possible, as that is faster."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from sweeping import cells, model

from batch_export.cli import cache, completion
from batch_export.cli import main as cli
from batch_export.cli.known import verbs
from batch_export.config.compose import arrange
from batch_export.config.schema import known_keys
from batch_export.errors import RunError, UsageError
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record
from batch_export.report.run_folder import write_run
from batch_export.runner.reporter import Reporter
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import MatrixSpec, RunnerSpec, RunSpec
from batch_export.store import open_store
from batch_export.sweeps import planned

SMALL = ("matrix.models=[mlp_nested]", "matrix.opsets=[18,20]")


def command(*arguments: str) -> int:
    return cli.main(["batch_export", *arguments])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in an empty folder of its own, so that outputs/ never lands in the checkout."""
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Result:
    """What a stand-in for the runner returns; the shape of `runner.sweep.RunResult`."""

    records: tuple[Record, ...]
    interrupted: bool = False
    unfinished: int = 0
    wall_s: float = 1.0
    counts: Any = None


def stand_in(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[tuple[RunSpec, Sequence[PlannedCell], str]]:
    """Replaces the runner by one that passes every cell at once; returns what it was called with."""
    from batch_export.runner import sweep

    calls: list[tuple[RunSpec, Sequence[PlannedCell], str]] = []

    def run_sweep(
        spec: RunSpec, cells: Sequence[PlannedCell], *, reporter: Reporter, run_folder: Path, command: str
    ) -> Result:
        calls.append((spec, cells, command))
        assert (run_folder / "run.json").is_file(), "the plan is written before the first cell starts"
        if "error" in changes:
            raise changes["error"]
        reporter.started([item.cell for item in cells])
        records = tuple(
            Record(item.cell, "skip", message=item.skip)
            if item.skip
            else Record(item.cell, changes.get("verdict", "pass"))
            for item in cells
        )[: changes.get("keep")]
        for record in records:
            reporter.record(record)
        reporter.finished()
        counts = {"ran": 2, "cached": 3, "rerun_failures": 1}
        return Result(records, changes.get("interrupted", False), len(cells) - len(records), counts=counts)

    monkeypatch.setattr(sweep, "run_sweep", run_sweep)
    return calls


# the sweep


def test_a_run_leaves_its_files_and_latest_points_at_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    calls = stand_in(monkeypatch)
    assert command(*SMALL) == 0
    (spec, cells, again) = calls[0]
    assert [item.cell.opset for item in cells] == [18, 20]
    assert spec.overrides == SMALL
    assert " resume outputs/" in again
    latest = tmp_path / "outputs" / "latest"
    assert {"run.json", "records.jsonl", "summary.json", "summary.md", "summary.csv"} <= set(os.listdir(latest))
    summary = json.loads((latest / "summary.json").read_text())
    assert {key: summary[key] for key in ("planned", "pass", "ran", "cached", "rerun_failures")} == {
        "planned": 2,
        "pass": 2,
        "ran": 2,
        "cached": 3,
        "rerun_failures": 1,
    }
    assert len((latest / "records.jsonl").read_text().splitlines()) == 2
    out, err = capsys.readouterr()
    assert "2 cells: 2 pass; ran 2 actions, 3 cached, 1 failure of a kind that is never cached" in out
    assert "[2/2] 2 pass" in err
    first = latest.resolve()
    assert first.parent.parent == tmp_path / "outputs"
    assert command(*SMALL) == 0
    assert latest.resolve() != first


@pytest.mark.parametrize(("verdict", "code"), [("fail", 1), ("xpass", 1), ("xfail", 0)])
def test_exit_codes_follow_the_records(monkeypatch: pytest.MonkeyPatch, verdict: str, code: int) -> None:
    stand_in(monkeypatch, verdict=verdict)
    assert command(*SMALL) == code


def test_a_sweep_in_which_nothing_was_tested_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    words = (*SMALL, "matrix.providers=[cuda]", "matrix.exclude=[{model: mlp, reason: slow}]")
    assert command("plan", *words) == 0
    stale = "stale exclusion: model mlp (slow): matches no cell; the matrix has no model 'mlp'"
    assert stale in capsys.readouterr().out
    assert command(*words) == 1
    out = capsys.readouterr().out
    assert "nothing was tested: all 2 cells were skipped" in out
    assert stale in out
    summary = json.loads(Path("outputs/latest/summary.json").read_text())
    assert (summary["skip"], summary["nothing_tested"]) == (2, True)
    assert summary["stale_exclusions"] == [stale.removeprefix("stale exclusion: ")]
    assert "**Nothing was tested: all 2 cells were skipped.**" in Path("outputs/latest/summary.md").read_text()
    assert "nothing was tested" in Path("outputs/latest/report.html").read_text()
    assert command("report", "latest") == 1
    assert "nothing was tested" in capsys.readouterr().out
    assert command("baseline", "accept", "latest", "--to", "base.json") == 0
    assert command(*SMALL, "matrix.providers=[cpu,cuda]") == 0, "one cell that ran is enough"


def test_an_exclusion_of_another_shards_model_is_not_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    excluded = "matrix.exclude=[{model: mlp_nested, reason: slow},{model: mlp, reason: slow}]"
    words = ("matrix.models=[cnn,mlp_nested]", "runner.shard=1/2", excluded)
    said = "stale exclusion: model mlp (slow): matches no cell; the matrix has no model 'mlp'"
    assert command("plan", *words) == command(*words) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "stale" in line] == [said, said]
    asked = json.loads(Path("outputs/latest/run.json").read_text())["spec"]["matrix"]
    assert ([one["name"] for one in asked["models"]], asked["chosen"]) == (["cnn"], ["cnn", "mlp_nested"])


def test_a_cell_without_a_record_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, keep=1)
    assert command(*SMALL) == 1
    lines = Path("outputs/latest/records.jsonl").read_text().splitlines()
    assert [json.loads(line)["verdict"] for line in lines] == ["pass", "missing"]


def test_an_interruption_keeps_what_there_is_and_prints_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, keep=1, interrupted=True)
    assert command(*SMALL) == 130
    out, err = capsys.readouterr()
    assert "1 cell to go" in err
    assert " resume outputs/" in err.splitlines()[-1]
    assert "1 pass, 1 missing" in out
    assert json.loads(Path("outputs/latest/summary.json").read_text())["interrupted"] is True


def test_a_run_that_cannot_finish_is_3_and_still_has_a_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, error=RunError("the disk is full"))
    assert command(*SMALL) == 3
    assert capsys.readouterr().err.endswith("error: the disk is full [BE102]\n")
    assert json.loads(Path("outputs/latest/summary.json").read_text())["missing"] == 2


def test_a_mistake_of_ours_is_3_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, error=ZeroDivisionError("ours"))
    assert command(*SMALL) == 3
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_before_the_run_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, error=KeyboardInterrupt())
    assert command(*SMALL) == 130


def test_a_usage_error_leaves_no_run_folder_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("matrix.models=[bert_tny]") == 2
    err = capsys.readouterr().err
    assert err.startswith("error: Unknown model 'bert_tny' (nearest: bert_tiny")
    assert err.count("\n") == 1
    assert list(Path("outputs").iterdir()) == []


@pytest.mark.parametrize("key", ["output.path", "store.path"])
def test_a_folder_that_is_not_writable_is_3_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    calls = stand_in(monkeypatch)
    Path("in_the_way").write_text("")
    assert command(*SMALL, f"{key}=in_the_way/x") == 3
    assert f"choose another with {key}=" in capsys.readouterr().err
    assert calls == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["store.path=other"], 3, "has format '99'; this program reads and writes"),
        (["store.remote=zz://bucket/x"], 2, "store.remote=zz://bucket/x: "),
    ],
)
def test_a_store_that_is_refused_leaves_no_run_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    calls = stand_in(monkeypatch)
    assert command(*SMALL) == 0
    before = Path("outputs/latest").resolve(), sorted(Path("outputs").glob("*/*/run.json"))
    Path("other").mkdir()
    Path("other/version").write_text("99\n")
    assert command(*SMALL, *words) == code
    assert said in capsys.readouterr().err
    assert (Path("outputs/latest").resolve(), sorted(Path("outputs").glob("*/*/run.json"))) == before
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (".", "error: store.path: the current folder "),
        ("..", "error: store.path: the current folder "),
        ("mine", "error: store.path: the config folder "),
        ("lib", "error: store.path: the source of model tiny "),
        ("lib/linked", "error: store.path: the source of model tiny "),
        ("data", "is no store, and there is 'w.bin' in it"),
        ("outputs", "is no store, and there is "),
    ],
)
def test_a_store_that_is_somebody_elses_folder_is_2_and_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], store: str, said: str
) -> None:
    calls = stand_in(monkeypatch)
    for name in ("mine/model", "lib", "data"):
        Path(name).mkdir(parents=True)
    Path("lib/tiny_models.py").write_text("def build(): ...\n")
    Path("lib/linked").symlink_to(".")
    Path("data/w.bin").write_text("1")
    Path("mine/model/tiny.yaml").write_text(
        "_target_: tiny_models.build\ninputs: {x: {dtype: float32, shape: [batch, 8]}}\naxes: {batch: {example: 2}}\n"
    )
    monkeypatch.syspath_prepend("lib")
    words = ("matrix.models=[tiny]", "--config-dir", "mine")
    assert command(*words) == 0
    before = sorted(Path().rglob("*"))
    for verb in ((), ("plan",)):
        assert command(*verb, *words, f"store.path={store}") == 2
        err = capsys.readouterr().err
        assert said in err
        assert "Next step: name a" in err
    assert [path for path in sorted(Path().rglob("*")) if path not in before and "outputs" not in path.parts] == []
    assert len(calls) == 1


def test_a_runs_folder_may_lie_where_no_outputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    command(*SMALL, "hydra.run.dir=elsewhere/run", "output.path=none_yet")
    assert Path("none_yet/latest").resolve() == Path("elsewhere/run").resolve()


def test_a_users_model_needs_a_config_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("mine/model")
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text(
        "_target_: my_models.tiny\ninputs: {x: {dtype: float32, shape: [batch, 8]}}\naxes: {batch: {example: 2}}\n"
    )
    assert command("plan", "matrix.models=[tiny]", "--config-dir", "mine") == 0
    assert "tiny/static/opset20/cpu/core\n" in capsys.readouterr().out
    assert command("plan", "matrix.models=['zzz*']", "--config-dir", "mine") == 2
    assert "Unknown model 'zzz*' (known: tiny, albert, " in capsys.readouterr().err  # the user's own come first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("matrix: {modles: [cnn]}", "Unknown key 'matrix.modles' in sweep/mine (nearest: models)"),
        ("runner: {n_jobs: many}", "sweep/mine: runner.n_jobs: Value 'many' of type 'str' could not"),
    ],
)
def test_a_users_sweep_with_a_mistake(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/sweep").mkdir(parents=True)
    Path("mine/sweep/mine.yaml").write_text(f"# @package _global_\n{text}\n")
    assert command("plan", "+sweep=mine", "--config-dir", "mine") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["matrix: {}\nmatrix: {}\n", "matrix:\n\tmodels: [cnn]\n", "a: [1\n", "a: \0\n"])
@pytest.mark.parametrize(
    ("group", "chosen"), [("sweep", "+sweep=mine"), ("expect", "expect=mine"), ("runner", "runner=mine")]
)
def test_a_users_file_that_is_not_valid_yaml(
    group: str, chosen: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"mine/{group}").mkdir(parents=True)
    Path(f"mine/{group}/mine.yaml").write_text(f"# @package _global_\n{text}")
    assert command("plan", chosen, "--config-dir", "mine") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: The config {group}/mine.yaml is not valid YAML: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("group", "chosen"), [("sweep", "+sweep=mine"), ("expect", "expect=mine")])
def test_a_users_file_without_its_first_line(group: str, chosen: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"mine/{group}").mkdir(parents=True)
    Path(f"mine/{group}/mine.yaml").write_text("matrix: {models: [cnn]}\n")
    assert command("plan", chosen, "--config-dir", "mine") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {group}/mine.yaml says {group}.*, and there is no such key: ")
    assert "`# @package _global_`" in err


# verbs


def test_plan_lists_the_cells_and_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command("plan", *SMALL, "matrix.providers=[cpu,cuda]", "matrix.dynamic=[static,full]") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mlp_nested/static/opset18/cpu/core"
    assert lines[1].startswith("mlp_nested/static/opset18/cuda/core  skip: provider cuda is not installed")
    assert "8 cells: 4 would run (1 model, 2 captures), 4 skipped" in lines
    assert list(tmp_path.iterdir()) == []


def test_report_tells_an_old_run_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch, keep=0)
    assert command(*SMALL) == 1
    Path("outputs/latest/summary.md").unlink()
    capsys.readouterr()
    assert command("report", "outputs/latest") == 1
    assert "2 cells: 2 missing; ran 2 actions, 3 cached" in capsys.readouterr().out
    assert Path("outputs/latest/summary.md").is_file()


def test_a_disk_that_is_full_before_the_first_cell_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stand_in(monkeypatch)
    monkeypatch.setattr("hydra.core.utils._save_config", full)
    assert command(*SMALL) == 3
    said = capsys.readouterr().err
    assert said.startswith("error: The run's folder cannot be made (No space left on device). Next step:")
    assert "Traceback" not in said


def test_cache_info_and_gc(capsys: pytest.CaptureFixture[str]) -> None:
    open_store(Path("here"))
    assert command("cache", "info", "store.path=here") == 0
    assert "actions  0" in capsys.readouterr().out
    assert command("cache", "gc", "--max-size", "10G", "store.path=here") == 0
    assert "removed 0 action results" in capsys.readouterr().out


def test_looking_after_a_store_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["info"], ["verify"], ["gc", "--max-size", "10G"]):
        assert command("cache", *words, "store.path=mistyped") == 0
        assert "there is no store at mistyped yet" in capsys.readouterr().out
    assert command("cache", "export", "all.tar", "store.path=mistyped") == 2
    assert "there is no store at mistyped yet" in capsys.readouterr().err
    assert not Path("mistyped").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plam"], "Unknown verb 'plam' (did you mean plan?)"),
        (["frobnicate"], "Unknown verb 'frobnicate' (verbs: baseline, bisect, bisect-version, cache,"),
        (
            ["matrix.opsets=[18]", "wibble", "plan"],
            "'wibble' is not an override (key=value); a verb is one of those",
        ),
        (["plan", "--last-failed"], "--last-failed is for a sweep and does not go with the verb 'plan'"),
        (["cache"], "cache needs a command: info, verify, gc, export, import"),
        (["cache", "inf"], "did you mean info?"),
        (["cache", "gc"], "cache gc needs the size to shrink to"),
        (["cache", "gc", "--max-size", "ten"], "'ten' is not a size"),
        (["cache", "info", "--max-size", "1G"], "cache info takes no --max-size"),
        (["compare", "--error", "-1", "latest", "latest"], "argument --error: '-1' is no factor of growth"),
        (["compare", "--size", "nan", "latest", "latest"], "argument --size: 'nan' is no factor of growth"),
        (["compare", "--nodes", "x", "latest", "latest"], "argument --nodes: 'x' is no factor of growth"),
        (["history", "--runs", "0", "cnn"], "argument --runs: '0' is no number of 1 or more"),
        (["history", "--runs", "x", "cnn"], "argument --runs: 'x' is no number of 1 or more"),
        (["report"], "report takes the folder of one run"),
        (["report", "nowhere"], "is neither the folder of a run"),
        (["--multirun", "matrix.opsets=18,20"], "--multirun is not used here"),
        (["+hydra.mode=MULTIRUN"], "--multirun is not used here"),
        *(
            ([f"~{key}"], f"{key!r} is a key that every run needs")
            for key in known_keys()
            if key != "runner" and "." not in key
        ),
        (["plan", "~tolerances.float32=1"], "'tolerances.float32' is a key that every run needs"),
        (["cache", "info", "~store"], "'store' is a key that every run needs"),
        (["--confg-dir", "x"], "Unknown flag '--confg-dir' (nearest: --config-dir"),
        (["plan", "--config-dir", "nowhere"], "nowhere' not found"),
        (["+sweep=al"], "Unknown sweep 'al' (nearest: all)"),
        (["plan", "matrix.providers=[cuda]", "matrix.require_providers=true"], "provider cuda is not installed"),
    ],
)
def test_usage_errors_are_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--version") == 0
    assert capsys.readouterr().out == "batch_export 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "overrides", "flags"),
    [
        (["a=1", "--cfg", "job", "b=2"], ["a=1", "b=2"], ["--cfg", "job"]),
        (["--info", "+sweep=all"], ["+sweep=all"], ["--info=all"]),
        (["--info", "searchpath", "a=1"], ["a=1"], ["--info", "searchpath"]),
        (["--config-dir=x", "~a", "-cn", "other"], ["~a"], ["--config-dir=x", "-cn", "other"]),
        (["--help"], [], ["--help"]),
        (["baseline=latest~1", "baseline=a"], ["baseline='latest~1'", "baseline=a"], []),
    ],
)
def test_flags_may_stand_anywhere(arguments: list[str], overrides: list[str], flags: list[str]) -> None:
    assert arrange(arguments) == (overrides, flags)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("10G", 10 << 30), ("1.5 KiB", 1536), ("2mb", 2 << 20), ("1T", 1 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert cache.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "1X", "1G2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        cache.parse_size(text)


@pytest.mark.parametrize(("count", "text"), [(0, "0 bytes"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")])
def test_size_text(count: int, text: str) -> None:
    assert cache.size_text(count) == text


# as a program


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(cli.__file__).parents[2])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_help_is_ours() -> None:
    done = program("-m", "batch_export", "--help")
    assert done.returncode == 0
    for word in ("+sweep=all", "Exit codes: 0", "matrix.opsets", "sweep: all, nightly, opsets, runtimes, smoke"):
        assert word in done.stdout
    for verb in verbs().values():
        assert f"\n  {verb.usage}" in done.stdout
        assert verb.summary.split(",")[0] in " ".join(done.stdout.split())


def test_help_copies_hydras_configs_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = []

    class Counted(CachingConfigRepository):
        def __init__(self, delegate: IConfigRepository) -> None:
            made.append(delegate)
            super().__init__(delegate)

    monkeypatch.setattr("hydra._internal.config_loader_impl.CachingConfigRepository", Counted)
    with pytest.raises(SystemExit):
        command("--help")
    assert "== Configuration groups ==" in capsys.readouterr().out
    assert len(made) <= 3


def test_every_module_that_runs_is_a_verb_with_a_line_of_help() -> None:
    for path in (Path(cli.__file__).parent / "verbs").glob("*.py"):
        runs = "\ndef run(arguments: list[str]) -> int:" in path.read_text(encoding="utf-8")
        assert runs == (path.stem in verbs()), path
    assert {"plan", "list", "bisect", "doctor"} <= set(verbs())


def test_list_prints_plain_columns_and_counts_a_config_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("_target_: my.build\ntags: [home, small]\n")
    (tmp_path / "model" / "broken.yaml").write_text("a: [1\n")
    assert command("list", "models", "--config-dir", str(tmp_path)) == 2
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["mine"] == ["tag:home,tag:small", "my.build"]
    assert rows["broken"] == []
    assert "tag:text" in rows["bert_tiny"][0]
    assert "model/broken.yaml is not valid YAML" in err


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("sweeps", ["smoke", "models=[tag:smoke]", "opsets=[18,23]"]),
        ("providers", ["reference", "reference", "-"]),
        ("providers", ["openvino", "openvino", "CPU", "openvino==2026.4.*"]),
        ("exporters", ["core", "batch_export.exporter"]),
        ("verbs", ["doctor", "[OVERRIDES]"]),
    ],
)
def test_list_knows_every_kind_of_choice(what: str, line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list", what) == 0
    assert any(row.split()[: len(line)] == line for row in capsys.readouterr().out.splitlines())


def test_list_of_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list", "opsets") == 2
    assert "choose from" in capsys.readouterr().err


def test_cfg_job_prints_the_composed_configuration() -> None:
    done = program("-m", "batch_export", "+sweep=smoke", "--cfg", "job", "--package", "matrix")
    assert (done.returncode, done.stderr) == (0, "")
    assert "- cpu_unoptimised" in done.stdout


def test_completion_offers_the_sweeps() -> None:
    done = program("-m", "batch_export", "-sc", "query=bash", COMP_LINE="batch-export +sweep=", COMP_POINT="20")
    sweeps = sorted(path.stem for path in (Path(__file__).parents[1] / "conf" / "sweep").glob("*.yaml"))
    assert {"all", "smoke"} <= set(sweeps)
    assert done.stdout.split() == [f"+sweep={name}" for name in sweeps]


def test_completion_offers_verbs_beside_keys_and_leaves_the_verb_out_of_hydras_line() -> None:
    done = program("-m", "batch_export", "-sc", "query=bash", COMP_LINE="batch-export re")
    assert done.stdout.split() == ["report", "repro", "resume"]
    done = program("-m", "batch_export", "-sc", "query=bash", COMP_LINE="batch-export plan +sweep=s")
    assert done.stdout.split() == ["+sweep=smoke"]


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("batch-export plan matrix.mo", "batch-export matrix.mo"),
        ("batch-export -q --last-failed matrix.mo", "batch-export matrix.mo"),
        ("batch-export try a:b --input x=float32[2] runner=dask ru", "batch-export runner=dask ru"),
        ("batch-export explain bert/full -cd here measure.", "batch-export -cd here measure."),
        ("batch-export cache gc --max-size 1G st", "batch-export st"),
        ("batch-export cache gc --max-size st", "batch-export -"),
        ("batch-export compare latest ma", "batch-export -"),
        ("batch-export plan --co", "batch-export -"),
    ],
)
def test_hydra_gets_of_a_line_what_it_knows_of(line: str, rest: str) -> None:
    assert completion.rest_of(line) == rest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("batch-export list ", ["models", "tags", "sweeps", "cells", "providers", "exporters", "runs", "verbs"]),
        ("python -m batch_export bis", ["bisect", "bisect-version"]),
        ("batch-export cache v", ["verify"]),
        ("batch-export export bert_t", ["bert_tiny"]),
        ("batch-export matrix.models=[cnn,bert_t", ["matrix.models=[cnn,bert_tiny"]),
        ("batch-export plan matrix.exporters=[torchs", ["matrix.exporters=[torchscript"]),
        ("batch-export --config-dir here matrix.models=mine", ["matrix.models=mine_too"]),
        ("batch-export report l", ["latest", "latest~1"]),
        ("batch-export bisect --run latest~", ["latest~1"]),
        ("batch-export matrix.models=[tag:control_f", ["matrix.models=[tag:control_flow"]),
        ("batch-export bisect b", ["bert/static/opset18/cpu/core"]),
        ("batch-export bisect bert/static/opset18/cpu/core b", []),
        ("batch-export cache gc --", ["--config-dir", "--help", "--max-size", "--older-than"]),
        ("batch-export cache --", []),
        ("batch-export plan --c", ["--config-dir"]),
        ("batch-export report latest --format j", ["json", "junit"]),
        ("batch-export report merge --p", ["--partial"]),
        ("batch-export --l", ["--last-failed", "--lf"]),
        ("batch-export matrix.models=[cnn] --q", ["--quiet"]),
        ("batch-export bisect --outputs ma", []),
        ("batch-export bisect-version onnxscr", ["onnxscript"]),
        ("batch-export bisect-version onnxscript 0.6..0.7 b", ["bert/static/opset18/cpu/core"]),
        ("batch-export bisect-version onnxscript 0.6..0.7 --pr", ["--pre"]),
    ],
)
def test_completion_knows_what_a_verb_takes(
    line: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "model").mkdir(parents=True)
    (tmp_path / "here" / "model" / "mine_too.yaml").write_text("")
    run = tmp_path / "outputs" / "2026-01-01" / "00-00"
    run.mkdir(parents=True)
    (planned,) = cells([model("bert")], opsets=(18,))
    spec = RunSpec(MatrixSpec((), (), (), (), ()), RunnerSpec(), MeasureSpec(), {}, "store", "outputs")
    write_run(run, spec, [planned], "batch-export")
    assert completion.offered(*completion.split(line)) == words


def test_planning_never_imports_torch() -> None:
    code = (
        "import sys; from batch_export.cli.main import main; "
        "code = main(['batch_export', 'plan', '+sweep=all']); "
        "heavy = {'torch', 'onnxscript', 'transformers'} & set(sys.modules); "
        "print('imported', heavy, code)"
    )
    done = program("-c", code)
    assert done.stdout.splitlines()[-1] == "imported set() 0", done.stderr


def test_the_parent_of_a_run_does_without_what_only_children_and_open_cells_need() -> None:
    code = (
        "import sys; import batch_export.runner.sweep; "
        "print({'worker', 'evidence', 'dispatch', 'forkserver'} & {name.rpartition('.')[2] for name in sys.modules})"
    )
    done = program("-c", code)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_the_package_alone_imports_nothing_heavy_and_offers_the_exporter() -> None:
    code = (
        "import sys, batch_export; assert {'export', 'ONNXProgram'} <= set(dir(batch_export)); "
        "assert issubclass(batch_export.CaptureError, batch_export.BatchExportError); batch_export.UsageError; "
        "print({'torch', 'onnx', 'hydra', 'joblib', 'rich'} & set(sys.modules))"
    )
    assert program("-c", code).stdout == "set()\n"


@pytest.mark.parametrize("line", ["plan +sweep=all", "list models", "+sweep=all --cfg job"])
def test_an_output_pipe_that_closes_early_ends_as_other_tools_do(line: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    line = f"{sys.executable} -m batch_export {line} | true; exit ${{PIPESTATUS[0]}}"
    root = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        [bash, "-c", line], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (cli.EXIT_BROKEN_PIPE, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
@pytest.mark.parametrize(
    ("words", "redirection", "code"),
    [
        ("--version", ">/dev/full", 3),
        ("--help", ">/dev/full", 3),
        ("plan matrix.models=[cnn]", ">/dev/full", 3),
        ("plan matrix.models=[cnn]", ">&-", 0),
        ("--version", "<&- >&-", 0),
    ],
)
def test_output_that_cannot_be_written_is_one_sentence_and_a_closed_one_is_none(
    words: str, redirection: str, code: int
) -> None:
    line = f"{sys.executable} -m batch_export {words} {redirection}"
    root = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        ["/bin/sh", "-c", line], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=60
    )
    said = done.stderr.splitlines()
    assert (done.returncode, len(said)) == (code, 1 if code else 0), done.stderr
    assert not code or "the output cannot be written: No space left on device. Next step:" in said[0]


def test_a_sweep_that_includes_itself_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.yaml").write_text("# @package _global_\ndefaults: [mine]\n")
    assert command("plan", "--config-dir", str(tmp_path), "+sweep=mine") == 2
    assert "a config includes itself" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
def test_a_run_does_not_end_for_messages_that_cannot_be_written(tmp_path: Path) -> None:
    words = "matrix.models=[mlp_nested] matrix.opsets=[20] measure.enabled=false matrix.dynamic=[static]"
    line = f"{sys.executable} -m batch_export {words} 2>/dev/full"
    root = str(Path(cli.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "1 cell: 1 pass" in done.stdout


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("matrix.opsets=[${oc.env:NO_SUCH}]", "matrix.opsets[0]"),
        ("runner.timeout_s=${oc.env:NO_SUCH}", "runner.timeout_s"),
        ("store.path=${oc.env:NO_SUCH}", "store.path"),
    ],
)
def test_an_environment_variable_that_is_not_set_is_one_sentence(
    override: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    assert command("plan", override) == 2
    assert capsys.readouterr().err == (
        f"error: {key}: the environment variable 'NO_SUCH' is not set. Next step: set it, or say what counts "
        "otherwise: ${oc.env:NO_SUCH,VALUE} [BE101]\n"
    )


def test_cache_says_which_commands_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command("cache", "--help")
    assert ended.value.code == 0
    assert "{info,verify,gc,export,import}" in capsys.readouterr().out
    assert command("cache") == 2
    assert "cache needs a command: info, verify" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        ImportError("import numpy failed"),  # what onnxruntime's extension makes of it
        UsageError("Unknown key 'expectations'"),  # what reading a configuration does
    ],
)
def test_ctrl_c_while_something_is_imported_is_an_interruption_and_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def installed(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(planned, "installed", installed)
    before = signal.getsignal(signal.SIGINT)
    assert command(*SMALL) == cli.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"
    assert not list(Path("outputs").glob("*/*"))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_flag_without_its_value_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("matrix.opsets=[18]", "--config-dir") == 2
    assert capsys.readouterr().err == "error: The flag '--config-dir' needs a value after it [BE101]\n"
