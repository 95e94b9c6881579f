"""`new` and `try`: a model of one's own from words, with no file written by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml

from batch_export import sweep
from batch_export.cli.main import main
from batch_export.config.model import model_spec
from batch_export.errors import UsageError
from batch_export.report.run_folder import read_records
from batch_export.report.runs import resolve_run
from batch_export.spec import AxisSpec, InputSpec
from batch_export.stages.probe_request import Probed, ProbeRequest
from batch_export.sweeps.described import keep_config
from batch_export.sweeps.model_words import request_of
from batch_export.sweeps.model_yaml import config_of, yaml_of

MODULE = """
import torch


class Two(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, 3)

    def forward(self, image, scale):
        return self.inner(image) * scale


def two(width):
    return Two(width)
"""
INPUTS = ["image=float32[batch,n=9,8]", "scale=float32[batch, 1, 1]"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with one importable module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "of_mine.py").write_text(MODULE)


def asked(inputs: Sequence[str], arguments: Sequence[str] = ()) -> ProbeRequest:
    return request_of("mine", "a.b:c", inputs, arguments)


def test_words_become_a_question() -> None:
    request = asked([*INPUTS, "ids=int64[n]:0..10", "d.x=float32[]", "d.flag=true"], ["width=8", "words=[a, b]"])
    assert request.target == "a.b.c"
    assert request.arguments == {"width": 8, "words": ["a", "b"]}
    assert request.sizes == {"batch": 2, "n": 9}
    assert request.inputs[0] == InputSpec(("image",), "float32", ("batch", "n", 8))
    assert request.inputs[2:] == (
        InputSpec(("ids",), "int64", ("n",), 0.0, 10.0),
        InputSpec(("d", "x"), "float32"),
        InputSpec(("d", "flag"), constant=True),
    )


@pytest.mark.parametrize(
    ("inputs", "arguments", "said"),
    [
        (["x"], [], "--input 'x' cannot be read"),
        (["x=float3[2]"], [], "no dtype is called 'float3'; did you mean 'float32'?"),
        (["x=float32[2*n]"], [], "'2*n' is neither a size nor an axis"),
        (["x=float32[n=3]", "y=float32[n=4]"], [], "the axis n has the size 3 elsewhere"),
        (["x=float32[2]", "x=float32[3]"], [], "this input is described twice"),
        (["x=float32[2]"], ["width"], "--arg 'width' cannot be read"),
        (["x=float32[2]"], ["width=[1"], "YAML cannot read '[1'"),
    ],
)
def test_words_that_cannot_be_meant_are_one_sentence(inputs: list[str], arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        asked(inputs, arguments)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("of_mine", "'of_mine' names no function. Next step: write package.module:function"),
        ("of_mine.pt2", "there is no file or folder of_mine.pt2; did you mean of_mine.py?"),
        ("of_mine.py", "of_mine.py is not a program: what can be read is .pt2"),
        ("no/folder", "there is no file or folder no/folder"),
    ],
)
def test_sources_that_are_none_are_one_sentence(source: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        request_of("mine", source, [], [])
    assert said in str(raised.value)


def test_a_config_of_what_was_found_is_read_by_a_sweep() -> None:
    found = Probed(
        target="of_mine.two",
        arguments={"width": 8},
        requires=("torch",),
        inputs=(
            InputSpec(("image",), "float32", ("batch", 8)),
            InputSpec(("d", "ids"), "int64", ("batch",), 0.0, 7.0),
            InputSpec(("d", "list", 0), "bool", (), fill=1.0),
            InputSpec(("flag",), constant=True),
        ),
        axes=(AxisSpec("batch", 2, (1, 4)),),
    )
    text = yaml_of("two", config_of(found), ["out: float32[batch]"], ["Look at it."])
    read = model_spec("two", yaml.safe_load(text))
    assert (read.inputs, read.axes, read.requires) == (found.inputs, found.axes, found.requires)
    assert text.startswith("# Look at it.\n")
    assert text.endswith("#   out: float32[batch]\n")
    with pytest.raises(UsageError, match="cannot be the name of a model"):
        yaml_of("../x", config_of(found))


def test_new_runs_the_model_and_writes_a_file_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch-export", "new", "two", "--from", "of_mine:two"]
    assert main(words) == 2
    assert "of_mine.two(width) needs width. Next step: --arg width=VALUE" in capsys.readouterr().err
    words += ["--arg", "width=8", "--to", "conf"]
    wrong = [*words, "--input", "image=float32[batch,7]", "--input", "scale=float32[batch,1]"]
    assert main(wrong) == 2
    said = capsys.readouterr().err
    assert "forward(image, scale) does not run at image=float32[2, 7], scale=float32[2, 1]: RuntimeError: mat1" in said
    assert not Path("conf").exists()
    words += [word for text in INPUTS for word in ("--input", text)]
    assert main(words) == 0
    assert "python -m batch_export --config-dir conf 'matrix.models=[two]'" in capsys.readouterr().out
    written = Path("conf/model/two.yaml").read_text()
    assert "n: {example: 9, check: [14, 4]}" in written
    assert "#   output 0: float32[batch, n, 3]" in written
    assert main(words) == 2
    assert "conf/model/two.yaml is there already. Next step: take another name" in capsys.readouterr().err
    assert Path("conf/model/two.yaml").read_text() == written
    assert main(["batch-export", "--config-dir", "conf", "plan", "matrix.models=[own]"]) == 0
    assert capsys.readouterr().out.startswith("two/static/opset20/cpu/core\n")


def test_the_parent_of_new_imports_no_torch() -> None:
    code = "import sys\nimport batch_export.cli.new, batch_export.cli.try\nsys.exit('torch' in sys.modules)"
    code = code.replace("batch_export.cli.try", "importlib\nimportlib.import_module('batch_export.cli.try')")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_sweep_takes_modules_and_functions_of_the_callers_own(recwarn: pytest.WarningsRecorder) -> None:
    class Local(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 3)

        def forward(self, image: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return self.inner(image) * scale

    small = ["runner.n_jobs=1", "measure.enabled=false"]
    inputs = {"image": torch.ones(2, 8), "scale": torch.ones(2, 1)}
    torch.manual_seed(0)
    module = Local()
    run = sweep(small, models={"mine": module}, inputs=inputs)
    assert {cell.dynamic: outcome for cell, outcome in run.verdicts.items()} == {"static": "pass", "full": "pass"}
    assert module.training, "the module is left as it was"
    torch.manual_seed(0)
    again = sweep(small, models={"mine": Local()}, inputs=inputs)
    assert again.summary.counts.ran == 0, "the same module is the same program"


def test_a_module_that_cannot_be_sent_is_one_sentence() -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(UsageError, match=r"cannot be sent to other processes as a program: .* put the function"):
        sweep(models={"mine": Branches()}, inputs=torch.ones(3))
    with pytest.raises(UsageError, match="is a module, and needs inputs"):
        sweep(models={"mine": torch.nn.ReLU()})
    with pytest.raises(UsageError, match=r"forward\(input.*\) does not run at its inputs: RuntimeError: mat1"):
        sweep(models={"mine": torch.nn.Linear(3, 2)}, inputs=torch.ones(2, 4))
    with pytest.raises(UsageError, match="axes names the input 'x', and the inputs are input"):
        sweep(models={"mine": torch.nn.ReLU()}, inputs=torch.ones(2, 4), axes={"x": {0: "batch"}})
    with pytest.raises(UsageError, match="model 'mine' is a int"):
        sweep(models={"mine": 3})
    with pytest.raises(UsageError, match="inputs and axes describe models"):
        sweep(inputs=torch.ones(2))
    with pytest.raises(UsageError, match=r"models is a list. Next step: name them, models=\{'mine': module\}"):
        sweep(models=[torch.nn.ReLU()])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"forward\(input\) takes 1 argument, and the example has 2"):
        sweep(models={"mine": torch.nn.ReLU()}, inputs=(torch.ones(2), torch.ones(3)))
    with pytest.raises(UsageError, match=r"axes are names by dimension by input, and these are .*axes=\{'x': \{0"):
        sweep(models={"mine": torch.nn.ReLU()}, inputs=torch.ones(2, 4), axes={"input": "batch"})


def test_programs_of_a_sweep_go_to_outputs_below_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    small = ["runner.n_jobs=1", "measure.enabled=false", "output.path='~/mine'"]
    run = sweep(small, models={"mine": torch.nn.ReLU()}, inputs=torch.ones(2, 4))
    assert set(run.verdicts.values()) == {"pass"}
    assert run.folder.is_relative_to(home / "mine")
    assert list((home / "mine" / "tried").glob("mine_*.pt2"))


@pytest.mark.ops
def test_try_sweeps_over_a_model_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch-export", "try", "of_mine:two", "--arg", "width=8", "runner.n_jobs=1", "measure.enabled=false"]
    assert main(words) == 0
    run = resolve_run("latest", Path("outputs"))
    assert {record.cell.dynamic: record.verdict for record in read_records(run)} == {"static": "pass", "full": "pass"}
    assert (Path("outputs") / ".gitignore").is_file()
    capsys.readouterr()
    assert main(["batch-export", "explain", "two/full/opset20/cpu/core"]) == 0  # the run's own config folder is found
    assert "cached" in capsys.readouterr().out


@pytest.mark.ops
def test_try_takes_a_module_that_is_there_and_a_function_that_returns_inputs_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = "def pair(width=3):\n    return Two(width), (torch.ones(2, width), torch.ones(1))\n"
    (tmp_path / "of_mine.py").write_text(f"{MODULE}\n\nthere = torch.nn.Linear(4, 2)\n\n\n{pair}")
    small = ["runner.n_jobs=1", "measure.enabled=false", "matrix.dynamic=[static]"]
    for name in ("there", "pair"):
        assert main(["batch-export", "try", f"of_mine:{name}", *small]) == 0
        (record,) = read_records(resolve_run("latest", Path("outputs")))
        assert (record.cell.model, record.verdict) == (name, "pass")
    assert not list(tmp_path.glob("*_builder.py"))
    assert str(tmp_path / "outputs" / "tried") not in " ".join(sys.path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["batch-export", "explain", "pair/static/opset20/cpu/core", "--run", f"{tmp_path}/outputs/latest"]) == 0
    assert "cached" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_found_before_the_model_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ran.py").write_text("open('ran', 'w').close()\ndef build():\n    raise ValueError('ran')\n")
    (tmp_path / "file").write_text("")
    for folder in ("/proc/nowhere", "file"):
        assert main(["batch-export", "new", "one", "--from", "ran:build", "--to", folder]) == 2
        assert f"{folder}/model cannot be made or written to" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_a_plan_refuses_a_store_that_the_sweep_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "version").write_text("1\n")
    (tmp_path / "file").write_text("")
    for store, said in (("old", "has format '1'; this program reads"), ("file", "file is no folder")):
        assert main(["batch-export", "plan", "matrix.models=[cnn]", f"store.path={store}"]) == 3
        assert said in capsys.readouterr().err
    assert main(["batch-export", "plan", "matrix.models=[cnn]", "store.path=new"]) == 0
    assert not (tmp_path / "new").exists()


def test_a_name_too_long_for_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"x\.\.\.': a name of more than 200 bytes is no file's; shorten it"):
        keep_config(tmp_path / "outputs", {"x" * 300: {}})
    assert not (tmp_path / "outputs").exists()
