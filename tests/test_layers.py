"""Environments of models and exporters, layered over this one, and `bisect-version`: all of it without a network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
import served_package as package

from batch_export.action import ModelArtifact
from batch_export.cli.main import main
from batch_export.config.compose import arrange
from batch_export.config.model import model_spec
from batch_export.config.run import exporter_spec, provider_spec
from batch_export.contract import Contract
from batch_export.environments import layers, releases, shelf
from batch_export.environments.making import EnvironmentUnavailableError, environment_for, wanted_for
from batch_export.environments.releases import releases_between
from batch_export.environments.request import replaced, request
from batch_export.errors import UsageError
from batch_export.plan.keys import capture_action, check_action
from batch_export.plan.matrix import Installed, PlannedCell, expand
from batch_export.record import Cell
from batch_export.runner.launchers import Launchers
from batch_export.runner.units import by_model
from batch_export.sources import distributions
from batch_export.sources.toolchain import toolchain_for
from batch_export.spec import CORE_EXPORTER_TARGET, ExporterSpec, MatrixSpec, ModelSpec
from batch_export.sweeps import release_probe, release_search
from batch_export.sweeps.planned import installed
from batch_export.sweeps.release_search import Tried, search

SOUND = "def scaled(x):\n    return x * 2\n"
BROKEN = "def scaled(x):\n    return x * 2 if x.sum() > 0 else x.sum()\n"
RELEASES = {"1.0": SOUND, "1.1": SOUND, "1.2": BROKEN, "1.3": BROKEN, "2.0rc1": SOUND}
BUILDER = """
import torch
import scales

class Scale(torch.nn.Module):
    def forward(self, x):
        return scales.scaled(x)

def scale():
    return Scale()
"""
CONFIG = """
_target_: scaling.scale
requires: [scales]
inputs:
  x: {dtype: float32, shape: [2], range: [0, 1]}
"""
CELL = "scale/static/opset20/cpu/core"
CORE = ExporterSpec("core", CORE_EXPORTER_TARGET)
MODEL = ModelSpec("scale", "scaling.scale", {}, (), requires=("scales",))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index that there is here: releases of `scales`, one of which cannot be installed."""
    folder = tmp_path_factory.mktemp("index")
    for version, text in RELEASES.items():
        package.wheel(folder, "scales", version, {"scales.py": text.encode()})
    package.wheel(folder, "scales", "1.1.1", {"scales.py": b""}, requires="Requires-Dist: no-such-package-anywhere\n")
    package.wheel(folder, "torch_lover", "1.0", {"lover.py": b""}, requires="Requires-Dist: torch<2\n")
    package.wheel(folder, "alone", "1.0", {"alone.py": b"raise ImportError('no libalone.so')\n"})
    return folder


@pytest.fixture(autouse=True)
def offline(index: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(kept))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model that stands on `scales`, which is not installed here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/model").mkdir(parents=True)
    (tmp_path / "conf/model/scale.yaml").write_text(CONFIG)
    (tmp_path / "scaling.py").write_text(BUILDER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def command(*words: str) -> int:
    return main(["batch_export", *words])


# What a layered environment is


def test_a_layer_holds_what_was_asked_for_and_finds_the_rest_below() -> None:
    made = environment_for(["scales==1.2"], layered=True)
    assert made.content == ("scales==1.2",)
    script = "import scales, torch, batch_export; print(scales.__file__); print(torch.__file__)"
    said = subprocess.run([made.program, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert Path(said[0]).is_relative_to(made.packages)
    assert not Path(said[1]).is_relative_to(made.folder)
    assert environment_for(["scales==1.2"], layered=True, tell=pytest.fail) == made
    assert wanted_for(["scales==1.2"]).key != wanted_for(["scales==1.2"], layered=True).key, "alone it is another one"


def test_a_package_may_not_ask_for_another_torch_unless_that_is_asked_for() -> None:
    with pytest.raises(EnvironmentUnavailableError, match=r"the environment \(torch_lover\) cannot be made: pip says"):
        environment_for(["torch_lover"], layered=True)
    assert layers.constraints(request(["scales"])) == f"torch=={metadata.version('torch').partition('+')[0]}\n"
    assert layers.constraints(request(["torch==2.12.0", "scales"])) == ""


def test_what_is_evidence_is_what_lies_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    above, below = tmp_path / "env/site-packages", tmp_path / "site-packages"
    for folder, names in ((above, ("mine-1.0",)), (below, ("mine-0.9", "theirs-2.0"))):
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(above), str(below)])
    seen = (("mine", "1.0"), ("theirs", "2.0"), (distributions.ALL, distributions.state(distributions.ALL)))
    kept = dict(distributions.outside(seen, str(tmp_path / "env")))
    monkeypatch.setattr(sys, "path", [str(below)])
    assert kept == {"theirs": "2.0", distributions.ALL: distributions.state(distributions.ALL)}


# What keys, plans and configs make of it


def planned(model: ModelSpec, exporter: ExporterSpec = CORE) -> PlannedCell:
    return PlannedCell(Cell(model.name, "static", 20, "cpu", exporter.name), model, None, exporter)  # type: ignore[arg-type]


@pytest.mark.ops
def test_keys_know_of_the_environment_and_are_as_ever_without_one(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shelf.ROOT_VARIABLE, str(project / "environments"))
    plain, within = MODEL, replace(MODEL, env=("scales==1.2",))
    tools = toolchain_for([plain, within], [CORE])
    made = environment_for(within.env, layered=True)
    after = toolchain_for([plain, within], [CORE])
    assert tools.layers["scales==1.2"].content == "not made yet"
    assert after.layers["scales==1.2"].content == made.resolved
    assert after.folder_of(within.env) == str(made.folder)
    without = dict(capture_action(planned(plain), after.within(planned(plain).environment)).entries)
    entries = dict(capture_action(planned(within), after.within(planned(within).environment)).entries)
    assert "environment" not in without
    assert without["version.scales"] == "absent"
    assert (entries["environment"], entries["version.scales"]) == (made.resolved, "1.2")
    assert after.within(()) is after
    contract = Contract(20, (), ())
    actions = [check_action(ModelArtifact("f"), contract, after.within(some)) for some in ((), within.env)]
    assert actions[0].key == actions[1].key, "what the environment leaves alone is not done again"


def test_cells_are_skipped_whose_environment_cannot_be_had() -> None:
    exporter = replace(CORE, name="other", env=("scales==1.3",), requires=("elsewhere",))
    gone = replace(MODEL, name="gone", env=("no-such-package-anywhere",))
    here = replace(MODEL, env=("scales==1.2",))
    environments = [gone.env, here.env, ("scales==1.2", "scales==1.3"), exporter.env]
    found = installed([], environments, start=True)
    assert set(found.unmade) == {gone.env, environments[2]}
    assert "asks for scales twice" in found.unmade[environments[2]]
    looked = replace(found, execution_providers={"onnxruntime": {"CPUExecutionProvider"}})
    provider = provider_spec("cpu", {"kind": "onnxruntime", "execution_provider": "CPUExecutionProvider"})
    matrix = MatrixSpec((gone, here), (20,), ("static",), (provider,), (CORE, exporter))
    skips = {(cell.cell.model, cell.cell.exporter): cell.skip for cell in expand(matrix, looked)}
    assert skips["gone", "core"].startswith("the environment (no-such-package-anywhere) cannot be made: pip says:")
    assert "asks for scales twice" in skips["scale", "other"]
    assert expand(replace(matrix, models=(here,)), looked)[0].skip == "", "the package is in the environment"
    alone = expand(replace(matrix, models=(MODEL,)), looked)
    assert alone[0].skip == "the model needs the package scales, which is not installed"
    assert alone[1].skip == "exporter other needs the package elsewhere, which is not installed"
    far = installed([], [here.env], elsewhere=True).unmade
    assert far == {here.env: "the environment (scales==1.2) is made on this machine only: run it with runner=local"}


def test_an_exporters_missing_package_is_the_reason() -> None:
    exporter = exporter_spec("far", {"_target_": "far.export", "requires": ["far"], "env": "scales", "option": 1})
    assert (exporter.requires, exporter.env, exporter.arguments) == (("far",), ("scales",), {"option": 1})
    nothing = Installed({"onnxruntime": {"CPUExecutionProvider"}}, lambda name: name == "scales")
    provider = provider_spec("cpu", {"kind": "onnxruntime", "execution_provider": "CPUExecutionProvider"})
    matrix = MatrixSpec((MODEL,), (20,), ("static",), (provider,), (replace(exporter, env=()),))
    assert expand(matrix, nothing)[0].skip == "exporter far needs the package far, which is not installed"


def test_cells_of_one_model_in_two_environments_are_measured_apart() -> None:
    units = by_model([planned(MODEL), planned(MODEL, replace(CORE, name="x", env=("scales==1.3",))), planned(MODEL)])
    assert [(unit.name, len(unit.cells)) for unit in units] == [("scale/measure", 2), ("scale/scales==1.3/measure", 1)]


@pytest.mark.parametrize("value", ["-r file", ["scales", "scales==1.2"], [3]])
def test_an_environment_that_cannot_be_meant_is_refused(value: object) -> None:
    config = {"_target_": "scaling.scale", "inputs": {"x": {"dtype": "float32", "shape": [2]}}, "env": value}
    with pytest.raises(UsageError, match="env"):
        model_spec("scale", config)
    with pytest.raises(UsageError, match="exporter/far: "):
        exporter_spec("far", {"_target_": "far.export", "env": value})


def test_the_matrix_environment_takes_the_place_of_the_models_own() -> None:
    assert replaced(("Scales_x==1", "other"), ("scales-x==2",)) == ("other", "scales-x==2")
    words, _ = arrange(["matrix.env=[torch>=2.11,<2.13,scales==1.2]", "matrix.env=scales==1.2", "matrix.env=['a==1']"])
    assert words == [
        "matrix.env=['torch>=2.11,<2.13','scales==1.2']",
        "matrix.env=['scales==1.2']",
        "matrix.env=['a==1']",
    ]


def test_a_library_that_cannot_be_imported_is_for_a_child_to_say(tmp_path: Path) -> None:
    made = environment_for(["alone"], layered=True)
    launchers = Launchers(tmp_path, ("alone",), [])
    try:
        launcher = launchers._other(str(made.folder))
        launcher.start()
        assert launcher._preload == ()
        assert "no libalone.so" in launcher.log.read_text()
    finally:
        launchers.close()


# Releases of a package


@pytest.mark.parametrize(
    ("text", "pre", "expected"),
    [
        ("1.0..1.2", False, ("1.0", "1.1", "1.1.1", "1.2")),
        ("1.1..1.1", False, None),
        ("1.0..1.1", False, ("1.0", "1.1", "1.1.1")),
        ("1.1.1..", False, ("1.1.1", "1.2", "1.3")),
        ("..1.1", False, ("1.0", "1.1", "1.1.1")),
        ("1.3..2.0rc1", True, ("1.3", "2.0rc1")),
    ],
)
def test_a_range_holds_both_its_ends(text: str, pre: bool, expected: Sequence[str] | None) -> None:
    if expected is None:
        with pytest.raises(UsageError, match="from an earlier release to a later one"):
            releases_between("scales", text, pre=pre)
    else:
        assert releases_between("scales", text, pre=pre) == expected


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("scales", "1.0-1.2", "'1.0-1.2' is not a range of releases; write it as in '5.20..5.23'"),
        ("scales", "..", "is not a range of releases"),
        ("scales", "one..two", "'one' in 'one..two' is not a version"),
        ("scales", "1.0..7.5", "scales has no release 7.5; nearest: "),
        ("scales", "1.3..", "has the one release 1.3, so there is nothing to search"),
        ("torhc", "1..2", "pip's index has no release of a package 'torhc' for this Python; did you mean 'torch'?"),
        ("--pre", "1..2", "'--pre' is not the name of a package"),
    ],
)
def test_a_range_or_package_that_cannot_be_meant(name: str, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        releases_between(name, text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("links", [False, True])
def test_an_index_out_of_reach_is_said(links: bool, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index) if links else "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(releases, "_PATIENCE", ("--retries", "1", "--timeout", "5"))
    with pytest.raises(
        EnvironmentUnavailableError, match=r"does not reach its package index \(http://127.*refused"
    ) as no:
        releases_between("scales", "1.0..9.0")
    assert "PIP_INDEX_URL" in str(no.value)
    assert (no.value.exit_code, no.value.unreached) == (3, True)


def test_a_release_that_an_unreached_index_would_have_is_not_called_bad(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The index is lost after it listed the releases."""

    def lost(*_: object, **__: object) -> shelf.Environment:
        raise EnvironmentUnavailableError("pip does not reach its package index", unreached=True)

    monkeypatch.setattr(release_probe, "environment_for", lost)
    assert command("bisect-version", "scales", "1.0..1.2", CELL, "--config-dir=conf") == 3
    assert "error: pip does not reach its package index" in capsys.readouterr().err


def test_what_an_installer_refused_is_kept_until_it_is_removed_or_pip_looks_elsewhere(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*, again: bool) -> str:
        with pytest.raises(EnvironmentUnavailableError, match="no-such-package-anywhere") as error:
            environment_for(["scales==1.1.1"], layered=True, again=again)
        return str(error.value)

    name = wanted_for(["scales==1.1.1"], layered=True).folder_name
    assert "as tried before" not in refused(again=True)
    assert not shelf.refusal(shelf.root() / name)
    assert "as tried before" not in refused(again=False)
    assert f"as tried before (`env remove {name}`" in refused(again=False)
    command("env", "list")
    assert f"{name}  the environment (scales==1.1.1) cannot be made" in capsys.readouterr().out
    monkeypatch.setenv("PIP_FIND_LINKS", f"{index} {index}")
    assert "as tried before" not in refused(again=False)
    assert command("env", "remove", name) == 0
    assert not shelf.refusal(shelf.root() / name)


# The search


def outcomes(text: str) -> tuple[release_search.Found, list[str]]:
    """Searches releases 0, 1, 2, ... that come out as the characters say: + good, - bad, ? cannot be tried."""
    asked: list[str] = []

    def attempt(version: str) -> Tried:
        asked.append(version)
        return Tried(version, {"+": True, "-": False, "?": None}[text[int(version)]], "")

    return search([str(number) for number in range(len(text))], attempt), asked


@pytest.mark.parametrize(
    ("text", "before", "first", "unsure", "at_most"),
    [
        ("+-", "0", "1", (), 2),
        ("++++---", "3", "4", (), 5),
        ("-----++", "4", "5", (), 5),
        ("+" * 40 + "-" * 24, "39", "40", (), 8),
        ("?+++--?", "3", "4", (), 7),
        ("++??--", "1", "4", ("2", "3"), 6),
        ("+?-", "0", "2", ("1",), 3),
        ("+++", None, None, (), 2),
        ("-?-", None, None, (), 3),
        ("???", None, None, (), 3),
        ("?+?", None, None, (), 3),
        ("?" * 30 + "++--", "31", "32", (), 13),
        ("+-" + "?" * 40, "0", "1", (), 13),
    ],
)
def test_the_change_is_found_between_two_neighbours(
    text: str, before: str | None, first: str | None, unsure: tuple[str, ...], at_most: int
) -> None:
    found, asked = outcomes(text)
    assert (found.before and found.before.version, found.first and found.first.version) == (before, first)
    assert found.unsure == unsure
    assert len(asked) == len(set(asked)) <= at_most
    assert [one.version for one in found.tried] == sorted(asked, key=int)


# The verb


@pytest.mark.ops
def test_the_release_that_broke_a_cell_is_found_and_a_repeated_search_runs_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bisect-version", "scales", "1.0..1.2", CELL, "--config-dir=conf", "runner.n_jobs=1"]
    assert command(*words, f"--json={project}/found.json") == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    rows = [line.split()[:2] for line in lines[1:5]]
    assert rows == [["1.0", "pass"], ["1.1", "pass"], ["1.1.1", "left"], ["1.2", "fail"]]
    assert "no-such-package-anywhere" in lines[3]
    assert "capture" in lines[4]
    assert lines[5] == f"first release of scales with which {CELL} fails: 1.2 (1.1 passes)"
    assert lines[6] == "left out between them, so that one of these may be the first: 1.1.1"
    assert lines[7].endswith("'matrix.env=[scales==1.2]'")
    assert lines[8].endswith("'matrix.env=[scales==1.1]'")
    assert "4 releases of scales, 1.0 to 1.2; at most 4 to try" in said.err
    found = msgspec.json.decode((project / "found.json").read_bytes(), type=release_search.Found)
    assert found.first is not None
    assert found.first.version == "1.2"
    assert sum(one.ran for one in found.tried) > 0

    assert command(*words) == 0
    again = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in (again[1], again[2], again[4])] == ["0"] * 3
    assert "as tried before (`env remove scales-" in again[3]
    assert again[5:] == lines[5:]

    assert command("bisect-version", "scales", "1.0..1.1", *words[3:]) == 1
    ends = capsys.readouterr().out
    assert f"{CELL} passes with scales 1.0 and with 1.1, so no release between them is searched for" in ends

    assert command("explain", CELL, *words[4:], "matrix.env=[scales==1.2]") == 0
    assert "python " in capsys.readouterr().out.partition("environment")[2].splitlines()[0]
    assert not list((project / "outputs").glob("20*")), "no run is left behind"


def test_sources_of_our_own_are_not_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("bisect-version", "batch-export", "1..2", CELL) == 2
    assert "are searched by `git bisect`" in capsys.readouterr().err


@pytest.mark.ops
def test_the_verb_env_knows_of_models_and_exporters(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "conf/model/scale.yaml").write_text(CONFIG + "env: ['scales==1.0']\n")
    assert command("env", "create", "scale", "--config-dir=conf") == 0
    assert capsys.readouterr().out.startswith("ok    scale: scales-")
    assert command("env", "create", "skale", "--config-dir=conf") == 2
    assert "No provider, model or exporter is called 'skale'; did you mean 'scale'?" in capsys.readouterr().err
    assert command("env", "create", "core") == 2
    assert "model or exporter core has no environment of its own" in capsys.readouterr().err
    command("env", "doctor", "--config-dir=conf")
    assert "over this environment (scales==1.0)" in capsys.readouterr().out
    command("doctor", "--config-dir=conf", "matrix.models=[scale]")
    assert "ok    environment of scales==1.0: scales-" in capsys.readouterr().out
