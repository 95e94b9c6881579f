"""batch_export.config.folders: configs of the user come before the shipped ones, all folders count, none is a guess."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest

from batch_export.cli import main as cli
from batch_export.config.groups import ConfigGroups
from batch_export.errors import UsageError
from batch_export.sources.places import conf_dir

MODEL = (
    "_target_: {target}\ninputs: {{input: {{dtype: float32, shape: [batch, 8]}}}}\naxes: {{batch: {{example: 2}}}}\n"
)
SWEEP = "# @package _global_\nmatrix: {models: [own], opsets: [19]}\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def made(name: str, text: str | None = None, target: str = "my_zoo.slow") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MODEL.format(target=target) if text is None else text)
    return path.absolute()


def command(*arguments: str) -> int:
    return cli.main(["batch_export", *arguments])


def hides(what: str, folder: str) -> str:
    return f"{what} is the one of {Path(folder).absolute()}, which hides the shipped one"


CASES: list[tuple[dict[str, str | None], list[str], list[str], list[tuple[str, str]]]] = [
    ({"a/model/cnn.yaml": None}, ["--config-dir", "a"], ["cnn"], [("model 'cnn'", "a")]),
    ({"a/model/cnn.yaml": None}, ["--config-dir=a"], ["cnn"], [("model 'cnn'", "a")]),
    ({"a/model/cnn.yaml": None}, ["-cd", "a"], ["cnn"], [("model 'cnn'", "a")]),
    ({"a/model/cnn.yaml": None}, ["hydra.searchpath=[a]"], ["cnn"], [("model 'cnn'", "a")]),
    ({"a/model/cnn.yaml": None}, ["hydra.searchpath=['file://a']"], ["cnn"], [("model 'cnn'", "a")]),
    ({"a/model/mine.yaml": None, "b/model/other.yaml": None}, ["-cd", "a", "-cd", "b"], ["mine", "other"], []),
    ({"a/model/mine.yaml": None, "b/model/other.yaml": None}, ["-cd", "a", "hydra.searchpath=[b]"],
     ["mine", "other"], []),
    ({"a/model/mine.yaml": None, "b/model/other.yaml": None}, ["hydra.searchpath=[a]", "hydra.searchpath=[b]"],
     ["mine", "other"], []),
    ({"a/model/mine.yaml": None}, ["--config-dir", "a", "--config-dir", "./a/"], ["mine"], []),
    ({"a/model/mine.yaml": None}, ["--config-dir", "a", "--config-dir", str(conf_dir())], ["mine"], []),
    ({"a/model/mine.yaml": "defaults: [cnn]\n", "b/model/cnn.yaml": None}, ["-cd", "a", "-cd", "b"],
     ["cnn", "mine"], [("model 'cnn'", "b")]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "flags", "own", "hidden"), CASES)
def test_own_models_are_found_and_the_plan_says_what_they_hide(
    files: dict[str, str | None],
    flags: list[str],
    own: list[str],
    hidden: list[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in files.items():
        made(name, text)
    assert command("plan", "matrix.models=[own]", *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("/")[0] for line in lines if "/opset" in line] == own
    assert [line for line in lines if "hides" in line] == [hides(what, folder) for what, folder in hidden]


def test_a_hidden_config_that_a_run_does_not_use_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    made("a/model/cnn.yaml")
    assert command("plan", "matrix.models=[mlp_nested,'tag:smoke']", "--config-dir", "a") == 0
    assert "hides" not in capsys.readouterr().out


def test_every_group_of_the_users_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    made("a/model/mine.yaml")
    made("a/sweep/smoke.yaml", SWEEP)
    made("b/expect/default.yaml", "# @package _global_\nexpectations: [{model: mine, reason: known}]\n")
    made("b/provider/cpu.yaml", "kind: onnxruntime\nexecution_provider: CPUExecutionProvider\nopsets: [20, 21]\n")
    made("b/exporter/core.yaml", "_target_: batch_export.exporter\n")
    made("b/runner/local.yaml", "n_jobs: 7\n")
    assert command("plan", "+sweep=smoke", "--config-dir", "a", "--config-dir", "b") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mine/static/opset19/cpu/core  skip: provider cpu loads opsets 20 to 21, not 19"
    assert set(lines[3:]) == {
        hides("sweep 'smoke'", "a"),
        hides("expect 'default'", "b"),
        hides("provider 'cpu'", "b"),
        hides("exporter 'core'", "b"),
        hides("runner 'local'", "b"),
    }


def test_many_hidden_ones_are_one_sentence() -> None:
    for name in ("bert_tiny", "cnn", "gpt2", "gru", "lstm", "llama", "swin", "t5", "unet", "vit"):
        made(f"a/model/{name}.yaml")
    groups = ConfigGroups([("main", f"file://{conf_dir()}"), ("own", f"folder://{Path('a').absolute()}")])
    (sentence,) = groups.hidden(("model", name) for name in groups.own("model"))
    assert sentence.startswith("models 'bert_tiny', 'cnn', 'gpt2', ")
    assert sentence.endswith(f" and 2 more are those of {Path('a').absolute()}, which hide the shipped ones")


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        (["a/model/cnn.yaml", "b/model/cnn.yaml"], ["matrix.models=[cnn]", "-cd", "a", "-cd", "b"],
         "Two of your folders have a model called 'cnn': {here}/a/model/cnn.yaml and {here}/b/model/cnn.yaml"),
        (["a/model/x.yaml", "b/model/x.yaml"], ["matrix.models=[cnn]", "-cd", "a", "hydra.searchpath=[b]"],
         "{here}/a/model/x.yaml and {here}/b/model/x.yaml"),
        (["a/sweep/team/x.yaml", "b/sweep/team/x.yaml"], ["-cd", "a", "-cd", "b"], "called 'x'"),
        (["a/model/own.yaml"], ["matrix.models=[own]", "-cd", "a"], "A model cannot be called 'own'"),
        (["a/sweep/x.yaml"], ["matrix.models=[own]", "-cd", "a"], "and {here}/a has none. Next step: --config-dir DIR"),
        ([], ["matrix.models=[own]"], "'own' stands for each model of your folders, and no folder is given"),
        ([], ["-cd", "nowhere"], "-cd: the folder '{here}/nowhere' not found"),
        ([], ["hydra.searchpath=[nowhere]"], "hydra.searchpath: the folder '{here}/nowhere' not found"),
        (["a/model/cnn.yaml"], ["matrix.models=[cnn]", "--config-dir=a/model"],
         "cnn.yaml in '{here}/a/model' lies in no group, so nothing can choose it. Next step: name {here}/a [BE101]"),
        (["a/cnn.yaml"], ["matrix.models=[cnn]", "-cd", "a"], "Next step: move it to {here}/a/model/cnn.yaml"),
        (["a/model/cnn.yml"], ["matrix.models=[cnn]", "-cd", "a"], "a/model/cnn.yml is not read"),
        ([], ["hydra.searchpath=nowhere"], "hydra.searchpath must be a list of strings"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused(
    files: list[str], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in files:
        made(name)
    assert command("plan", *words) == 2
    err = capsys.readouterr().err
    assert said.format(here=Path.cwd()) in err
    assert err.count("\n") == 1


def test_a_primary_config_of_the_users_is_told_to_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    made("a/model/mine.yaml")
    made("a/config.yaml", "matrix: {models: [nothing]}\n")
    assert command("plan", "matrix.models=[own]", "--config-dir", "a") == 0
    out = capsys.readouterr().out
    assert "mine/static/opset20/cpu/core" in out
    assert f"{Path('a/config.yaml').absolute()} is not read" in out


def test_a_package_may_hold_configs_too(capsys: pytest.CaptureFixture[str]) -> None:
    made("collected/__init__.py", "")
    made("collected/model/cnn.yaml")
    made("collected/config.yaml", "matrix: {models: [nothing]}\n")
    assert command("plan", "matrix.models=[own]", "hydra.searchpath=['pkg://collected']") == 0
    assert "model 'cnn' is the one of collected, which hides the shipped one" in capsys.readouterr().out


def test_a_builder_that_the_zoo_has_too_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made("a/model/mine.yaml", target="models.torch_basic.cnn")
    assert command("plan", "matrix.models=[mine]", "--config-dir", "a") == 0, "the zoo's alone"
    made("models/torch_basic.py", "def cnn(): ...\n")
    capsys.readouterr()
    assert command("plan", "matrix.models=[mine]", "--config-dir", "a") == 2
    assert "or write batch_export.zoo.torch_basic.cnn for the zoo's" in capsys.readouterr().err
    assert command("plan", "matrix.models=[cnn]", "--config-dir", "a") == 0, "a shipped config means the zoo"


def test_own_and_shipped_models_of_one_name_do_not_mix_in_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_zoo.py").write_text("import torch\n\n\ndef slow():\n    return torch.nn.Sequential(torch.nn.Tanh())\n")
    made("a/model/mlp_nested.yaml")
    operators = []
    for flags in (["--config-dir", "a"], [], ["--config-dir", "a"]):
        dest = f"dest{len(operators)}"
        assert command("export", "mlp_nested", "--dest", dest, "--depfile", "d.d", "--quiet", *flags) == 0
        said = capsys.readouterr().err
        assert (hides("model 'mlp_nested'", "a") in said) == bool(flags)
        (entry,) = json.loads(Path(dest, "manifest.json").read_text())["files"]
        operators.append({node.op_type for node in onnx.load(Path(dest, entry["path"])).graph.node})
        config = Path("a/model/mlp_nested.yaml").absolute() if flags else conf_dir() / "model" / "mlp_nested.yaml"
        assert re.findall(r"\S+\.yaml", Path("d.d").read_text()) == [str(config)]
    assert operators[0] == operators[2] == {"Tanh"}
    assert "Gemm" in operators[1]


def test_two_sources_of_one_name_are_refused_by_the_groups_too() -> None:
    for folder in ("a", "b"):
        made(f"{folder}/model/cnn.yaml")
    with pytest.raises(UsageError, match="Two of your folders have a model called 'cnn'"):
        ConfigGroups((f"user {name}", f"file://{Path(name).absolute()}") for name in ("a", "b"))
