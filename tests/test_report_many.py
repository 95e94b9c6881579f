"""`report merge` and `report world`: shards put together, and the table of architectures."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from batch_export.cli.report import run as report
from batch_export.errors import UsageError
from batch_export.numbers.tolerances import Tolerance
from batch_export.plan.matrix import Installed, PlannedCell, expand
from batch_export.record import Cell, Failure, Record
from batch_export.report import run_folder
from batch_export.report.rerun import only_cell, settings
from batch_export.report.world import About, markdown, totals
from batch_export.report.world_page import page
from batch_export.runner.surroundings import Surroundings, read_surroundings, write_surroundings
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.sources.toolchain import Layer, Toolchain
from batch_export.spec import AxisSpec, ExporterSpec, InputSpec, MatrixSpec, ModelSpec, RunnerSpec, RunSpec

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
CORE = ExporterSpec("core", "batch_export.exporter")
HERE = Installed({"onnxruntime": {"CPUExecutionProvider"}}, lambda name: True)


def model(name: str, skip: str = "") -> ModelSpec:
    inputs = (InputSpec(("x",), "float32", ("batch", 8)),)
    return ModelSpec(name, f"models.{name}", {}, inputs, (AxisSpec("batch", 2, (1,)),), skip=skip)


WHOLE = ("toys:good", "toys:bad", "toys:none")


def spec(
    *models: ModelSpec,
    shard: str = "",
    opset: int = 20,
    chosen: tuple[str, ...] = WHOLE,
    env: tuple[str, ...] | None = (),
) -> RunSpec:
    whole = chosen if shard else ()
    return RunSpec(
        matrix=MatrixSpec(models, (opset,), ("static", "full"), (CPU,), (CORE,), chosen=whole, env=env),
        runner=RunnerSpec(shard=shard),
        measure=MeasureSpec(),
        tolerances={"float32": Tolerance(1e-4, 1e-3)},
        store_path="store",
        output_path="out",
    )


def record(planned: PlannedCell) -> Record:
    if planned.skip:
        return Record(planned.cell, "skip", message=planned.skip)
    if planned.cell.model == "toys:bad" and planned.cell.dynamic == "full":
        failure = Failure("capture", "CaptureError", "a | b")
        return Record(planned.cell, "fail", "capture", "CaptureError", "a | b", failure=failure)
    return Record(planned.cell, "pass")


MADE = Surroundings(
    "token",
    Toolchain({"python": "3.11.9", "torch": "2.13.0"}, {"eager": "e1"}, {"mine.build": "s1"}, {"name": "one"}),
    started="2026-11-29T01:00:00.000+00:00",
)


def written(folder: Path, asked: RunSpec, made: Surroundings | None = MADE) -> Path:
    folder.mkdir(parents=True)
    if made is not None:
        write_surroundings(folder, made)
    cells = expand(asked.matrix, HERE)
    shard = f" runner.shard={asked.runner.shard}" if asked.runner.shard else ""
    asked = replace(asked, overrides=("+sweep=world", *shard.split()))
    run_folder.write_run(folder, asked, cells, f"batch_export +sweep=world{shard}")
    run_folder.write_records(folder, map(record, cells))
    run_folder.write_whole(folder / run_folder.SUMMARY_FILE, b'{"wall_s": 1.5, "ran": 3, "cached": 1}')
    return folder


UNBUILT = model("toys:none", "it cannot be built: it wants <a file>")


def test_shards_become_the_run_that_one_machine_would_have_made(tmp_path: Path) -> None:
    one = written(tmp_path / "one", spec(model("toys:good"), UNBUILT, shard="1/2"))
    two = written(tmp_path / "two", spec(model("toys:bad"), shard="2/2"))
    assert report(["merge", str(one), str(two), "--to", str(tmp_path / "all")]) == 0
    stored = run_folder.read_run(tmp_path / "all")
    assert [item.name for item in stored.spec.matrix.models] == ["toys:good", "toys:none", "toys:bad"]
    assert (stored.spec.runner.shard, stored.spec.matrix.chosen) == ("", ())
    assert len(stored.cells()) == len(run_folder.read_records(tmp_path / "all")) == 6
    assert stored.command == "batch_export +sweep=world"
    assert stored.spec.overrides == ("+sweep=world",)
    counts = run_folder.read_counts(tmp_path / "all")
    assert (counts.wall_s, counts.ran, counts.cached, counts.interrupted) == (3.0, 6, 2, False)
    assert report([str(tmp_path / "all"), "--format", "csv", "-o", str(tmp_path / "all.csv")]) == 0
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 7


def test_a_shard_that_is_missing_is_said_and_may_be_meant(tmp_path: Path) -> None:
    first = written(tmp_path / "first", spec(model("toys:good"), shard="1/3"))
    third = written(tmp_path / "third", spec(model("toys:bad"), shard="3/3"))
    words = ["merge", str(first), "--to", str(tmp_path / "all")]
    with pytest.raises(UsageError, match=r"The shards 2/3, 3/3 of this sweep are in none of these runs\. .*--partial"):
        report(words)
    with pytest.raises(UsageError, match=r"The shard 2/3 of this sweep is in none of these runs\."):
        report(["merge", str(third), *words[1:]])
    assert not (tmp_path / "all").exists()
    assert report([*words, "--partial"]) == 0
    stored = run_folder.read_run(tmp_path / "all")
    assert (stored.spec.matrix.chosen, len(stored.cells())) == (WHOLE, 2), "what it lacks is known"


def test_shards_of_different_lists_are_refused(tmp_path: Path) -> None:
    one = written(tmp_path / "one", spec(model("toys:good"), UNBUILT, shard="1/2"))
    two = written(tmp_path / "two", spec(model("toys:bad"), shard="2/2", chosen=("toys:good", "toys:bad")))
    words = ["merge", "--to", str(tmp_path / "all"), "--partial", str(one)]
    lists = r"one and .*two are shards of different lists of models: only the first has toys:none\. Next step: run the"
    with pytest.raises(UsageError, match=lists):
        report([*words, str(two)])
    turned = written(tmp_path / "turned", spec(model("toys:bad"), shard="2/2", chosen=WHOLE[::-1]))
    with pytest.raises(UsageError, match="different lists of models: they have another order"):
        report([*words, str(turned)])
    assert not (tmp_path / "all").exists()


def verified(one: ModelSpec, *variants: str, oracle: str = "auto") -> ModelSpec:
    return replace(one, variants=variants, oracle=oracle)


GOOD, BAD = verified(model("toys:good"), "seed1", "zeros"), verified(model("toys:bad"), "seed1", "zeros")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("verify.seeds", spec(verified(BAD, "seed1", "seed2", "zeros"), shard="2/2")),
        ("verify.special", spec(verified(BAD, "seed1"), shard="2/2")),
        ("verify.oracle", spec(verified(BAD, "seed1", "zeros", oracle="never"), shard="2/2")),
        ("matrix.env", spec(replace(BAD, env=("torch==2.11.*",)), shard="2/2", env=("torch==2.11.*",))),
        ("runner.timeout_s", replace(spec(BAD), runner=RunnerSpec(shard="2/2", timeout_s=3.0))),
        ("runner.memory_gb", replace(spec(BAD), runner=RunnerSpec(shard="2/2", memory_gb=3.0))),
        ("runner.threads", replace(spec(BAD), runner=RunnerSpec(shard="2/2", threads=3))),
        ("runner.retries", replace(spec(BAD), runner=RunnerSpec(shard="2/2", retries=3))),
        ("runner.allow_flaky", replace(spec(BAD), runner=RunnerSpec(shard="2/2", allow_flaky=True))),
    ],
)
def test_shards_that_were_judged_differently_are_refused(tmp_path: Path, name: str, other: RunSpec) -> None:
    one = written(tmp_path / "one", spec(GOOD, shard="1/2", chosen=("toys:good", "toys:bad")))
    matrix = replace(other.matrix, chosen=("toys:good", "toys:bad"))
    two = written(tmp_path / "two", replace(other, matrix=matrix))
    with pytest.raises(UsageError, match=rf"two were asked for different things: '{name}' differs\. Next step: merge"):
        report(["merge", str(one), str(two), "--to", str(tmp_path / "all"), "--partial"])
    assert not (tmp_path / "all").exists()


def test_where_and_how_many_at_once_shards_ran_may_differ(tmp_path: Path) -> None:
    names = ("toys:good", "toys:bad")
    one = written(tmp_path / "one", spec(GOOD, shard="1/2", chosen=names))
    elsewhere = RunnerSpec(shard="2/2", n_jobs=3, engine="dask", address="tcp://there:1", keep_alive="1m")
    there = replace(spec(verified(BAD, "zeros", "seed1"), shard="2/2", chosen=names), runner=elsewhere, store_path="x")
    two = written(tmp_path / "two", there)
    assert report(["merge", str(one), str(two), "--to", str(tmp_path / "all")]) == 0


def test_runs_that_do_not_say_which_environment_they_gave_are_merged_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [replace(one, env=("torch==2.11.*",)) for one in (GOOD, BAD)]
    one = written(tmp_path / "one", spec(own[0]))
    two = written(tmp_path / "two", spec(own[1], env=None))
    assert report(["merge", str(one), str(two), "--to", str(tmp_path / "all")]) == 0
    told = capsys.readouterr().err
    assert f"{two} does not say which requirements matrix.env gave its models" in told
    assert str(one) not in told
    bare = written(tmp_path / "bare", spec(BAD, env=None))
    assert report(["merge", str(one), str(bare), "--to", str(tmp_path / "both")]) == 0
    assert "matrix.env" not in capsys.readouterr().err, "a model without an environment says that none was given"


def test_shards_of_an_older_version_are_merged_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one", spec(model("toys:good"), UNBUILT, shard="1/2"))
    two = written(tmp_path / "two", spec(model("toys:bad"), shard="2/2", chosen=()))
    assert report(["merge", str(one), str(two), "--to", str(tmp_path / "all")]) == 0
    assert f"{two} does not say which list of models it is a shard of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "first", "second", "said"),
    [
        ("versions", {"torch": "2.13.0"}, {"torch": "2.12.1"}, "version of torch 2.13.0 -> 2.12.1"),
        ("own", {"eager": "e1"}, {"eager": "e2"}, "our own sources of eager"),
        ("targets", {"mine.build": "s1"}, {"mine.build": "s2"}, "sources of mine.build"),
        ("named", {"weights.pt": "w1"}, {"weights.pt": "w2"}, "file or sources named weights.pt"),
        ("environments", {"openvino": "a==1"}, {"openvino": "a==2"}, "environment of openvino a==1 -> a==2"),
        ("layers", {"timm": Layer("timm==1")}, {"timm": Layer("timm==2")}, "environment of timm timm==1 -> timm==2"),
    ],
)
def test_shards_that_were_made_with_different_things_are_refused_unless_that_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, first: object, second: object, said: str
) -> None:
    asked = [spec(model("toys:good"), UNBUILT, shard="1/2"), spec(model("toys:bad"), shard="2/2")]
    made = [replace(MADE, toolchain=replace(MADE.toolchain, **{field: value})) for value in (first, second)]
    one, two = (written(tmp_path / name, *each) for name, *each in zip(("one", "two"), asked, made, strict=True))
    words = ["merge", str(one), str(two), "--to", str(tmp_path / "all")]
    with pytest.raises(UsageError, match=rf"one and .*two were made with different things: {said}\. .* say --mixed"):
        report([*words, "--partial"])
    assert not (tmp_path / "all").exists()
    assert report([*words, "--mixed"]) == 0
    assert said in capsys.readouterr().err


def test_where_shards_ran_and_what_only_one_of_them_used_may_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = replace(
        MADE.toolchain,
        versions={**MADE.toolchain.versions, "timm": "1.0"},
        targets={"mine.other": "o1"},
        host={"name": "two"},
        environments={"openvino": "not made yet"},
        roots=("/elsewhere",),
    )
    theirs = replace(MADE.toolchain, environments={"openvino": "a==1"})
    one = written(
        tmp_path / "one", spec(model("toys:good"), UNBUILT, shard="1/2"), replace(MADE, toolchain=ours, commit="c1")
    )
    two = written(
        tmp_path / "two",
        spec(model("toys:bad"), shard="2/2"),
        replace(MADE, toolchain=theirs, commit="c2", started="3"),
    )
    assert report(["merge", str(one), str(two), "--to", str(tmp_path / "all")]) == 0
    assert "are of different commits (c1 and c2); of their sources only those" in capsys.readouterr().err
    made = read_surroundings(tmp_path / "all")
    assert made is not None
    assert made.toolchain.versions == {"python": "3.11.9", "torch": "2.13.0", "timm": "1.0"}
    assert made.toolchain.targets == {"mine.build": "s1", "mine.other": "o1"}
    assert (made.toolchain.host, made.commit, made.started) == ({}, "", MADE.started)


def test_shards_that_do_not_say_what_they_were_made_with_are_merged_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one", spec(model("toys:good"), UNBUILT, shard="1/2"))
    two = written(tmp_path / "two", spec(model("toys:bad"), shard="2/2"), None)
    assert report(["merge", str(one), str(two), "--to", str(tmp_path / "all")]) == 0
    told = capsys.readouterr().err
    assert f"{two} does not say what it was made with" in told
    assert str(one) not in told
    assert read_surroundings(tmp_path / "all") is None


def test_a_run_of_what_failed_last_is_no_part(tmp_path: Path) -> None:
    one = written(tmp_path / "one", spec(model("toys:good"), UNBUILT, shard="1/2"))
    asked = spec(model("toys:bad"), shard="2/2")
    two = written(tmp_path / "two", asked)
    run_folder.write_run(two, asked, expand(asked.matrix, HERE)[:1], "")
    words = ["merge", str(one), str(two), "--to", str(tmp_path / "all")]
    with pytest.raises(UsageError, match=r"two has 1 of the 2 cells of its matrix, .* --last-failed .* --partial"):
        report(words)
    assert report([*words, "--partial"]) == 0


def test_a_command_about_one_cell_takes_no_shard_of_the_run() -> None:
    asked = replace(spec(), overrides=("runner.shard=2/2", "runner.n_jobs=1"))
    assert settings(asked) == ["runner.n_jobs=1"]
    line = only_cell("batch_export matrix.models=[a,b] runner.shard=2/2 runner.n_jobs=1", "a/full/opset20/cpu/core")
    assert "shard" not in line
    assert "runner.n_jobs=1" in line


def test_runs_that_do_not_fit_together_are_one_sentence(tmp_path: Path) -> None:
    one = written(tmp_path / "one", spec(model("toys:good")))
    other = written(tmp_path / "other", spec(model("toys:bad"), opset=18))
    with pytest.raises(
        UsageError, match=r"were asked for different things: 'opsets' differs\. Next step: merge shards"
    ):
        report(["merge", str(one), str(other), "--to", str(tmp_path / "all")])
    with pytest.raises(
        UsageError, match=r"The cell toys:good/static/opset20/cpu/core is in .* and in .*different shards"
    ):
        report(["merge", str(one), str(one), "--to", str(tmp_path / "all")])
    with pytest.raises(UsageError, match=r"is not empty\. Next step: name a folder that does not exist"):
        report(["merge", str(one), "--to", str(other)])
    with pytest.raises(UsageError, match=r"run\.json is a file\. Next step: name a folder that does not exist"):
        report(["merge", str(one), "--to", str(other / "run.json")])
    with pytest.raises(UsageError, match=r"cannot be made \(Not a directory\)\. Next step: name another folder"):
        report(["merge", str(one), "--to", str(other / "run.json" / "all")])
    assert not (tmp_path / "all").exists()


def test_the_share_is_of_what_was_asked_and_every_skip_is_seen(tmp_path: Path) -> None:
    cells = expand(spec(model("toys:good"), model("toys:bad"), UNBUILT).matrix, HERE)
    records = [record(cell) for cell in cells]
    static, full = totals(records).values()
    assert (static.named, static.unbuilt, static.asked, static.passed, static.failed) == (3, 1, 2, 2, {})
    assert (full.named, full.asked, full.passed, full.failed) == (3, 2, 1, {"capture": 1})
    page = markdown(records, About({"torch": "2.13"}, {"toys": 1419}, "batch_export +sweep=world"))
    assert "| core | full | 3 | 1 | 2 | 1 | 50.0 % | capture 1 |" in page
    assert "A sample: 3 of the 1,419 names of toys." in page
    assert "| `toys:bad/full/opset20/cpu/core` | capture | CaptureError | a \\| b |" in page
    assert "| `toys:none` | it cannot be built: it wants &lt;a file> |" in page
    assert "| `toys:bad` | 0.0 s | **capture** |" in page


def test_a_model_that_eager_does_not_run_is_not_the_exporters() -> None:
    cell = Cell("toys:odd", "static", 20, "cpu", "core")
    failure = Failure("model", "ModelError", "model toys:odd fails in eager PyTorch")
    broken = Record(cell, "fail", "model", "ModelError", failure.message, failure=failure)
    (total,) = totals(
        [broken, replace(broken, cell=replace(cell, model="toys:good"), verdict="pass", stage="")]
    ).values()
    assert (total.named, total.unbuilt, total.asked, total.passed) == (2, 1, 1, 1)


def test_the_table_is_written_to_a_file_or_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(tmp_path / "run", spec(model("toys:good")))
    assert report(["world", str(run)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# Architectures that nobody chose")
    assert report(["world", str(run), "-o", str(tmp_path / "world.md")]) == 0
    assert (tmp_path / "world.md").read_text() == shown


def test_a_file_that_is_neither_markdown_nor_a_page_is_refused(tmp_path: Path) -> None:
    run = written(tmp_path / "run", spec(model("toys:good")))
    for name in ("world.pdf", "world"):
        with pytest.raises(UsageError, match=r"name a file that ends in \.md or \.html"):
            report(["world", str(run), "-o", str(tmp_path / name)])
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("words", [["worl"], ["worl", "latest"], ["wrld", "latest", "-o", "x.md"]])
def test_a_mistyped_word_of_report_is_told_which_one_it_is_near(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean `report world`"):
        report([*words, "--outputs", str(tmp_path)])


def test_the_table_names_a_command_that_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(tmp_path / "run", spec(model("toys:good")))
    stored = run_folder.read_run(run)
    chosen = ("matrix.models=['timm:resnet*']", "runner.shard=1/2", "tolerances.float32.atol=1")
    asked = replace(stored.spec, overrides=(*chosen, "runner.n_jobs=2", "store.path=here", "output.path=there"))
    typed = ["batch_export", "--config-dir", "my conf", "-cd=other", *asked.overrides]
    run_folder.write_run(run, asked, stored.cells(), shlex.join(typed))
    assert report(["world", str(run)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("The run: "))
    told = ["python", "-m", "batch_export", "--config-dir", "my conf", "-cd=other", *chosen]
    assert shlex.split(line.removeprefix("The run: ").strip("`")) == told


def test_a_report_is_in_the_format_that_its_file_asks_for(tmp_path: Path) -> None:
    run = written(tmp_path / "run", spec(model("toys:good")))
    assert report([str(run), "-o", str(tmp_path / "all.csv")]) == 0
    assert (tmp_path / "all.csv").read_text().startswith("schema_version,model,")
    with pytest.raises(UsageError, match=r"no report ends in \.pdf; there are \.csv, \.html"):
        report([str(run), "-o", str(tmp_path / "all.pdf")])


def test_records_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    run = written(tmp_path / "run", spec(model("toys:good")))
    records = run / run_folder.RECORDS_FILE
    records.write_bytes(records.read_bytes() + b'{"cell": 5}\n')
    with pytest.raises(UsageError, match=r"line 3 is not a record: .* Next step: take that line out"):
        report([str(run)])
    records.unlink()
    records.mkdir()
    with pytest.raises(UsageError, match=r"records\.jsonl cannot be read \(Is a directory\)"):
        report([str(run)])


def test_opsets_have_columns_of_their_own() -> None:
    cell = Cell("toys:good", "static", 20, "cpu", "core")
    records = [Record(cell, "pass"), Record(replace(cell, opset=18), "fail", "load", "LoadError", "no")]
    assert list(totals(records)) == [("core", "static", "opset20"), ("core", "static", "opset18")]
    assert "| `toys:good` | 0.0 s | **load** |" in markdown(records, About({}))


def test_the_page_has_every_row_as_data_and_names_the_repro_of_a_failure(tmp_path: Path) -> None:
    cells = expand(spec(model("toys:good"), model("toys:bad"), UNBUILT).matrix, HERE)
    records = [record(cell) for cell in cells]
    told = [replace(one, message="</script><b>no") if one.verdict == "fail" else one for one in records]
    failing = next(one.cell.name for one in told if one.verdict == "fail")
    text = page(told, About({"torch": "2.13"}, {"toys": 3}), {failing: "repro/x.py"})
    assert "All 3 names of toys." in text
    assert "1 of 2 right; 1 of 3 skipped" in text
    assert "<b>no" not in text
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert [row[0] for row in data["rows"]] == ["toys:bad", "toys:good", "toys:none"]
    assert data["rows"][0][2] == [
        "fail", "capture", "CaptureError", "</script><b>no", f"batch-export repro {failing}", "repro/x.py",
    ]  # fmt: skip
    assert data["rows"][2][1][:2] == ["skip", "skip"]


def test_the_page_is_written_where_the_file_is_one_of_html(tmp_path: Path) -> None:
    run = written(tmp_path / "run", spec(model("toys:good")))
    assert report(["world", str(run), "-o", str(tmp_path / "world.html")]) == 0
    assert (tmp_path / "world.html").read_text().startswith("<!doctype html>")
