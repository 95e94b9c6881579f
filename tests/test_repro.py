"""exporter/repro/write.py: failures shrink to their cause, and the script tells whether it still lives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from batch_export.exporter.diagnostics.eager_values import EagerValues
from batch_export.exporter.repro import script as repro_script
from batch_export.exporter.repro import subgraph
from batch_export.exporter.repro.write import Repro, Setting, write_repro

TESTS = Path(__file__).parent


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:3]:
            x = torch.relu(layer(x))
        x = torch.tanh(x)
        for layer in self.layers[3:]:
            x = torch.relu(layer(x) + 1)
        return x


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.linalg.eig(torch.exp(x))[0].real + 1)


class Fragile(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class Refuses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise RuntimeError("not while it is captured")
        return x


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Sequential(nn.ReLU(), Refuses())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    return subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def made(folder: Path, module: nn.Module, setting: Setting, **options: Any) -> Repro:
    torch.manual_seed(0)
    repro = write_repro(folder, module.eval(), (torch.randn(3, 4),), None, setting, **options)
    assert repro is not None
    return repro


@pytest.fixture(scope="module")
def mismatch(tmp_path_factory: pytest.TempPathFactory) -> Repro:
    """A tanh in the middle of a model becomes a sigmoid; copy the folder before anything in it is changed."""
    folder = tmp_path_factory.mktemp("mismatch") / "bug"
    return made(folder, Deep(), Setting("deep", 20, "faulty_exporters.wrong_tanh"))


def changed(repro: Repro, folder: Path, **changes: Any) -> Path:
    """A copy of a repro whose case says something else."""
    shutil.copytree(repro.folder, folder)
    case = json.loads((folder / "case.json").read_text())
    (folder / "case.json").write_text(json.dumps({**case, **changes}))
    return folder


def exporter(target: str) -> dict[str, Any]:
    return {"target": target, "arguments": {}}


@pytest.mark.ops
def test_a_mismatch_shrinks_to_the_node_and_its_script_tells_when_it_is_fixed(tmp_path: Path, mismatch: Repro) -> None:
    repro = mismatch
    assert repro.nodes == ("tanh",)
    assert repro.of == 16
    assert (repro.symptom["stage"], repro.symptom["error_class"]) == ("mismatch", "NumericMismatch")
    names = {path.name for path in repro.folder.iterdir()}
    assert names == {"repro.py", "case.json", "values.pt", "subject.pt2", "model.onnx"}
    values = torch.load(repro.folder / "values.pt", weights_only=False)
    assert torch.allclose(values["expected"][0], torch.tanh(values["args"][0]))
    alive = run(repro.folder)
    assert alive.returncode == 1, alive.stderr
    assert "mismatch NumericMismatch: output" in alive.stdout
    fixed = run(changed(repro, tmp_path / "fixed", exporter=exporter("")))
    assert (fixed.returncode, fixed.stdout.strip()) == (0, "fixed: deep")


def test_what_does_not_fail_has_no_repro(tmp_path: Path) -> None:
    assert write_repro(tmp_path / "bug", Deep().eval(), (torch.randn(3, 4),), None, Setting("deep", 20)) is None
    assert not (tmp_path / "bug").exists()


def test_a_translation_error_shrinks_to_the_operator(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    repro = write_repro(tmp_path / "bug", Unsupported(), (x + x.T,), None, Setting("eig", 20))
    assert repro is not None
    assert repro.symptom["stage"] == "translate"
    assert "eig" in repro.symptom["operator"]
    assert len(repro.nodes) <= 2
    assert run(repro.folder).returncode == 1


def test_a_capture_error_shrinks_to_the_submodule(tmp_path: Path) -> None:
    repro = made(tmp_path / "bug", Outer(), Setting("outer", 20))
    assert repro.symptom["stage"] == "capture"
    assert repro.module == "second.1"
    assert (repro.folder / "subject.pt").is_file()


@pytest.mark.ops
def test_a_crash_is_reduced_in_processes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "crash", "error_class": "SIGSEGV", "operator": "", "message": ""}
    setting = Setting("deep", 20, "faulty_exporters.crashing", timeout_s=60.0)
    repro = made(tmp_path / "bug", Deep(), setting, wanted=wanted, near=("tanh",))
    assert repro.nodes == ("tanh",)
    done = run(repro.folder)
    assert done.returncode == 1
    assert "ended by signal 11" in done.stdout


@pytest.mark.ops
def test_an_exporter_that_ends_its_process_is_a_repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "crash", "error_class": "ProcessExit", "operator": "", "message": ""}
    setting = Setting("leaving", 20, "faulty_exporters.leaving", timeout_s=60.0)
    repro = made(tmp_path / "bug", nn.Tanh(), setting, wanted=wanted)
    assert repro.nodes == ("tanh",)
    done = run(repro.folder)
    assert done.returncode == 1, done.stderr
    assert done.stdout.strip() == "crash ProcessExit: the process ended itself with exit code 3"


@pytest.mark.slow
@pytest.mark.ops
def test_a_crash_that_needs_the_models_classes_is_reproduced_with_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "crash", "error_class": "SIGSEGV", "operator": "", "message": ""}
    setting = Setting("fragile", 20, "faulty_exporters.crashing_at_a_class", timeout_s=60.0)
    module = nn.Sequential(Fragile())
    repro = write_repro(tmp_path / "bug", module.eval(), (torch.randn(3, 4),), None, setting, wanted=wanted)
    assert repro is not None
    assert (repro.nodes, repro.module) == ((), "0")
    assert (repro.folder / "subject.pt").is_file()


@pytest.mark.ops
def test_an_endless_export_is_a_repro_with_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one node that hangs is kept; every try has three seconds, and the script says so and ends."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "timeout", "error_class": "Timeout", "operator": "", "message": ""}
    torch.manual_seed(0)
    setting = Setting("hanging", 20, "faulty_exporters.endless", timeout_s=3.0)
    repro = write_repro(tmp_path / "bug", nn.Tanh().eval(), (torch.randn(3, 4),), None, setting, wanted=wanted)
    assert repro is not None
    assert (repro.symptom["stage"], repro.symptom["message"]) == ("timeout", "not done after 3 s")
    assert repro.nodes == ("tanh",)
    done = run(repro.folder)
    assert done.returncode == 1, done.stderr
    assert "timeout Timeout: not done after 3 s" in done.stdout


def test_a_file_that_does_not_load_shrinks_to_the_node(tmp_path: Path) -> None:
    repro = made(tmp_path / "bug", Deep(), Setting("deep", 20, "faulty_exporters.unknown_tanh"))
    assert repro.symptom["stage"] == "load"
    assert "NoSuchTanh" in repro.symptom["message"]
    assert repro.nodes == ("tanh",)
    assert (repro.folder / "model.onnx").is_file()
    alive = run(repro.folder)
    assert alive.returncode == 1, alive.stderr
    assert "load " in alive.stdout


@pytest.mark.ops
def test_an_exporter_that_cannot_be_imported_is_no_answer(tmp_path: Path, mismatch: Repro) -> None:
    nobody = exporter("exporters_of_nobody.export")
    done = run(changed(mismatch, tmp_path / "bug", exporter=nobody))
    assert (done.returncode, done.stdout[:12]) == (2, "cannot tell:")
    assert "No module named 'exporters_of_nobody'" in done.stderr
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "exporters_of_nobody.py").write_text(
        "from faulty_exporters import wrong_tanh as export\n"
    )
    roots = [str(tmp_path / "elsewhere")]
    assert run(changed(mismatch, tmp_path / "found", exporter=nobody, roots=roots)).returncode == 1


class TwoOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(x)
        return torch.relu(hidden) + 1, hidden * 2


def test_a_part_that_fails_for_a_reason_of_its_own_is_not_the_failure(tmp_path: Path) -> None:
    """An exporter that swaps two outputs raises where there is only one: another bug than the one looked for."""
    setting = Setting("swapped", 20, "faulty_exporters.swapped")
    repro = made(tmp_path / "bug", TwoOutputs(), setting, near=("mul",))
    assert (repro.symptom["stage"], repro.symptom["error_class"]) == ("mismatch", "NumericMismatch")
    assert 2 <= len(repro.nodes) < repro.of


class Named(nn.Module):
    """Its outputs are a dict, in another order than they are made in."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(x)
        return {"second": torch.exp(hidden), "first": torch.relu(hidden) + 1}


@pytest.mark.ops
def test_a_part_gives_one_tensor_where_the_model_does(tmp_path: Path) -> None:
    """An exporter that wraps the model calls a method of what it gives."""
    wanted = {"stage": "mismatch", "error_class": "NumericMismatch", "operator": "", "message": ""}
    repro = made(tmp_path / "bug", Deep(), Setting("deep", 20, "faulty_exporters.five_times"), wanted=wanted)
    assert (repro.symptom["stage"], repro.symptom["error_class"]) == ("mismatch", "NumericMismatch")
    assert len(repro.nodes) == 1
    program = torch.export.load(repro.folder / "subject.pt2")
    values = torch.load(repro.folder / "values.pt", weights_only=False)
    assert isinstance(program.module()(*values["args"]), torch.Tensor)
    assert run(repro.folder).stdout.startswith("mismatch NumericMismatch")


def test_outputs_in_a_dict_stay_in_it(tmp_path: Path) -> None:
    setting = Setting("named", 20, "faulty_exporters.five_times")
    repro = made(tmp_path / "bug", Named(), setting, stages=("mismatch",))
    assert (repro.symptom["stage"], repro.nodes) == ("mismatch", ("exp", "add"))
    program = torch.export.load(repro.folder / "subject.pt2")
    values = torch.load(repro.folder / "values.pt", weights_only=False)
    given = program.module()(*values["args"])
    assert list(given) == ["second", "first"]
    assert torch.equal(values["expected"][0], given["second"])


class Minus(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) - torch.tanh(self.second(x))


def test_a_part_takes_its_inputs_in_order() -> None:
    model, x = Minus().eval(), torch.randn(3, 4)
    program = torch.export.export(model, (x,), strict=False)
    part = subgraph.cut(EagerValues(program, (x,)), ["linear", "sub"])
    assert len(part.args) == 2
    assert torch.allclose(part.module(*part.args), model(x))
    assert torch.allclose(part.expected[0], model(x))


class Listed(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(x), x + 1


def test_another_failure_than_the_cells_is_no_repro(tmp_path: Path) -> None:
    setting, folder = Setting("listed", 20, "faulty_exporters.five_times"), tmp_path / "bug"
    wanted = {"stage": "mismatch", "error_class": "NumericMismatch", "operator": "", "message": ""}
    example = (torch.randn(3, 4),)
    for options in ({"wanted": wanted}, {"stages": ("load", "run", "mismatch")}):
        assert write_repro(folder, Listed().eval(), example, None, setting, **options) is None  # type: ignore[arg-type]
        assert not folder.exists()
    repro = made(folder, Listed(), setting)
    assert repro.symptom["stage"] == "capture", "which is how it fails, where nobody says how it should"


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells a process' private memory")
@pytest.mark.ops
def test_too_much_memory_is_a_repro_with_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "memory", "error_class": "MemoryLimit", "operator": "", "message": ""}
    setting = Setting("hungry", 20, "faulty_exporters.hungry", timeout_s=60.0, memory_bytes=300 << 20)
    repro = made(tmp_path / "bug", Deep(), setting, wanted=wanted, near=("tanh",))
    assert repro.nodes == ("tanh",)
    done = run(repro.folder)
    assert done.returncode == 1, done.stderr
    assert done.stdout.strip() == "memory MemoryLimit: used more than 0.293 GiB of private memory"


class KillsItsCapture(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            os.kill(os.getpid(), 11)
        return x


def test_a_crash_of_capture_is_tried_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be captured in this process then; the script says that the bug lives, and this test goes on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "crash", "error_class": "SIGSEGV", "operator": "", "message": ""}
    repro = made(tmp_path / "bug", KillsItsCapture(), Setting("killer", 20), wanted=wanted, capture_fails=True)
    assert (repro.module, repro.symptom["stage"]) == ("", "crash")
    assert (repro.folder / "subject.pt").is_file()


def test_the_script_itself_does_not_import_torch() -> None:
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); sys.exit('torch' in sys.modules)"
    script = Path(repro_script.__file__)
    assert subprocess.run([sys.executable, "-c", code, str(script)], check=False).returncode == 0
