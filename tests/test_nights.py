"""The page of many runs: `history --html FILE`."""

from __future__ import annotations

import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from recording import cell, circumstances, failed, passed, write_run

from batch_export.cli.main import main
from batch_export.report.history import HISTORY_FILE, open_history
from batch_export.report.rerun import only_cell
from batch_export.report.since import since
from batch_export.runner.config_folders import folders_of_run
from batch_export.runner.surroundings import surroundings_of, versions_of
from batch_export.sources.toolchain import Toolchain

BAD, FINE = cell("bert"), cell("cnn")
COMMAND = (
    "python -m batch_export --config-dir conf +sweep=mine 'matrix.opsets=[18,20]' baseline=x.json measure.budget_s=1"
)


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four nights; one cell breaks in the third and stays broken, the other becomes slower and larger."""
    monkeypatch.chdir(tmp_path)
    outputs = tmp_path / "outputs"
    for day in (1, 2, 3, 7):
        broken = day >= 3
        records = [failed(BAD, "load", "LoadError") if broken else passed(BAD), passed(FINE, ms=float(day))]
        made = circumstances(f"2026-11-{day:02}T03:00:00.000+00:00", f"c{day}", "host")
        folder = outputs / f"2026-11-{day:02}" / "03-00-00-000"
        write_run(folder, records, made=made)
        if day != 2:
            (folder / "report.html").write_text("a report")
        with open_history(outputs / HISTORY_FILE) as history:
            history.add(folder.relative_to(outputs).as_posix(), made, COMMAND, records)
    return outputs


class Page(HTMLParser):
    """What the tests ask a page about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []
        self.curves: list[list[tuple[float, float]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag == "polyline":
            pairs = (pair.split(",") for pair in (given["points"] or "").split())
            self.curves.append([(float(x), float(y)) for x, y in pairs])


def test_the_page_is_static_and_links_every_run_that_is_there(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pages").mkdir()
    assert main(["batch-export", "history", "--html", "pages/nights.html"]) == 0
    assert "wrote pages/nights.html: 2 cells, 4 runs" in capsys.readouterr().out
    text = Path("pages/nights.html").read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert "http" not in text.replace("http-equiv", "")
    assert "1 cell not as expected" in text
    assert text.index(">bert ") < text.index(">cnn:"), "what is bad comes first"
    assert "bad since 2026-11-03/03-00-00-000 (c3); last good in 2026-11-02/03-00-00-000" in text
    there = {link.partition("#")[0] for link in page.links}
    assert there == {f"../outputs/2026-11-{day:02}/03-00-00-000/report.html" for day in (1, 3, 7)}
    assert all((Path("pages") / link).resolve().is_file() for link in there)
    assert "#cell=bert%2Fstatic%2Fopset20%2Fcpu%2Fcore" in text


def test_curves_have_an_axis_of_time(outputs: Path) -> None:
    assert main(["batch-export", "history", "cnn/*", "--html", "nights.html"]) == 0
    page = Page(Path("nights.html").read_text())
    latency = next(curve for curve in page.curves if len({y for _, y in curve}) > 1)
    gaps = [round(b[0] - a[0], 1) for a, b in pairwise(latency)]
    assert gaps[0] == pytest.approx(gaps[1], abs=0.2)
    assert gaps[2] == pytest.approx(4 * gaps[0], abs=0.5), "four days are four times as wide as one"
    assert [y for _, y in latency] == sorted((y for _, y in latency), reverse=True), "slower is higher"


def test_every_cell_has_the_command_that_runs_it_again(outputs: Path) -> None:
    assert main(["batch-export", "history", "--html", "nights.html"]) == 0
    text = Path("nights.html").read_text().replace("&#39;", "'")
    again = "python -m batch_export --config-dir conf +sweep=mine measure.budget_s=1 'matrix.models=[{}]'"
    assert again.format("bert") in text
    assert again.format("cnn") in text
    assert "python -m batch_export bisect bert/static/opset20/cpu/core --run " in text
    assert "bisect cnn/" not in text
    words = only_cell("batch-export +sweep=smoke", FINE.name)
    assert words == (
        "python -m batch_export +sweep=smoke 'matrix.models=[cnn]' 'matrix.dynamic=[static]' 'matrix.opsets=[20]' "
        "'matrix.providers=[cpu]' 'matrix.exporters=[core]'"
    )


def test_since_when_tells_commits_of_the_models_and_of_batch_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], cwd=tmp_path, check=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("batch_export.runner.surroundings.models_dir", lambda: tmp_path / "package" / "models")
    (tmp_path / "package" / "models").mkdir(parents=True)
    git("init", "-q", ".")
    git("commit", "-q", "--allow-empty", "-m", "models")
    git("init", "-q", "package")
    git("-C", "package", "commit", "-q", "--allow-empty", "-m", "package")
    runs = []
    for number in (1, 2):
        git("-C", "package", "commit", "-q", "--allow-empty", "-m", f"package {number}")
        (tmp_path / f"run{number}").mkdir()
        runs.append(surroundings_of(tmp_path / f"run{number}", Toolchain({"torch": "2.13"}, {}, {}, {}))[0])
    first, second = runs
    assert first.commit == second.commit
    assert first.own_commit != second.own_commit
    with open_history(tmp_path / "h.sqlite") as history:
        history.add("one", first, "", [passed(BAD)])
        found = since(failed(BAD), history.entries(BAD.name), second)
    assert found.versions == (f"batch_export's commit {first.own_commit} -> {second.own_commit}",)
    assert found.commits == second.commit
    assert "torch" in versions_of(first)


def test_the_commit_is_of_the_models_wherever_a_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def repository(name: str) -> tuple[Path, str]:
        folder = tmp_path / name
        folder.mkdir()
        git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", name], check=True)
        said = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True)
        return folder, said.stdout.strip()

    (sources, of_sources), (configs, of_configs), (own, of_own), (here, of_here) = map(
        repository, ("sources", "configs", "own", "here")
    )
    (sources / "nets").mkdir()
    (sources / "nets" / "mine.py").write_text("def build(): ...\n")
    (here / "weights.pt2").write_text("")
    (own / "models").mkdir()
    (own / "models" / "zoo.py").write_text("def build(): ...\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr("batch_export.runner.surroundings.models_dir", lambda: own / "models")
    numbers = iter(range(9))

    def found(target: str, *folders: Path, **named: str) -> tuple[str, str]:
        run = tmp_path / f"run{next(numbers)}"
        run.mkdir()
        roots = (str(sources), str(own))
        toolchain = Toolchain({}, {}, {target: "d"} if target else {}, {}, roots=roots, named=named)
        made = surroundings_of(run, toolchain, folders)[0]
        return made.commit, made.own_commit

    assert found("nets.mine.build", configs) == (of_sources, of_own)
    assert found("torch.nn.Linear", configs) == (of_configs, of_own)
    assert found("torch.export.load", **{str(here / "weights.pt2"): "d"}) == (of_here, of_own)
    assert found("models.zoo.build") == (of_own, "")
    assert found("models.zoo.build", configs) == (of_configs, of_own)
    assert found("") == (of_here, of_own)
    outside = tmp_path / "outside"
    outside.mkdir()
    assert found("", outside) == ("", of_own), "batch_export's commit says nothing of models in no repository"
    (own / "batch_export").mkdir()
    (own / "batch_export" / "peer.py").write_text("def export(): ...\n")
    assert found("batch_export.peer.export", outside) == ("", of_own)


def test_the_config_folders_of_a_run_are_those_of_its_command_line(tmp_path: Path) -> None:
    assert folders_of_run(tmp_path) == []
    plan = tmp_path / "run.json"
    plan.write_text(
        '{"command": "batch-export --config-dir \'my conf\' -cd /there +sweep=x --config-dir=b", "spec": {}}'
    )
    assert folders_of_run(tmp_path) == [Path.cwd() / "my conf", Path("/there"), Path.cwd() / "b"]
    for text in ("{", '{"command": "batch-export \'"}'):
        plan.write_text(text)
        assert folders_of_run(tmp_path) == []
