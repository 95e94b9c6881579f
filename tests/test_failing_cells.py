"""`bisect` and `repro` on cells of a real sweep: a wrong plug-in, a lost guard, and a refusal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
SOURCE = """
import onnx
import torch

from batch_export import export


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.a(x))  # the line to be found


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.softmax(-1)


class Branch(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] > 3:  # the guard to be named
            return x * 2
        return x.double()


class Bounded(torch.nn.Module):
    def forward(self, x):
        return x.clamp(-50, 50)  # further than ordinary inputs go


def wrong(module, args, kwargs, *, path, opset_version, **options):
    export(module, args, path, kwargs=kwargs, opset_version=opset_version, external_data=False, **options)
    model = onnx.load(path)
    tanh = [node for node in model.graph.node if node.op_type == "Tanh"]
    if tanh:
        tanh[1 if len(tanh) > 1 else 0].op_type = "Sigmoid"
    for node in model.graph.node:
        if node.op_type == "Clip":
            node.op_type = "Identity"
            del node.input[1:]
    onnx.save(model, path)
"""
LINE = 1 + next(i for i, line in enumerate(SOURCE.splitlines()) if "the line to be found" in line)
GUARD = 1 + next(i for i, line in enumerate(SOURCE.splitlines()) if "the guard to be named" in line)


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), str(PROJECT)])
    return subprocess.run(
        [sys.executable, "-m", "batch_export", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of which every cell fails but `net` and `bounded` through our own exporter."""
    folder = tmp_path_factory.mktemp("shop")
    axes = "inputs:\n  x: {dtype: float32, shape: [batch, 8]}\naxes:\n  batch: {example: 4, check: [1, 5]}\n"
    for name, text in {
        "shop.py": SOURCE,
        "conf/model/net.yaml": f"_target_: shop.Net\n{axes}",
        "conf/model/bounded.yaml": f"_target_: shop.Bounded\n{axes}",
        "conf/model/branch.yaml": f"_target_: shop.Branch\n{axes}",
        "conf/exporter/wrong.yaml": "_target_: shop.wrong\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    matrix = ["matrix.models=[net,branch,bounded]", "matrix.opsets=[18]", "matrix.dynamic=[full]"]
    done = command(folder, *matrix, "matrix.exporters=[core,wrong]", "measure.enabled=false", "--config-dir=conf")
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


@pytest.mark.ops
def test_a_wrong_node_is_named_with_its_line_and_reaches_the_report(swept: Path) -> None:
    cell = "net/full/opset18/cpu/wrong"
    found = command(swept, "bisect", cell)
    assert found.returncode == 0, found.stderr
    assert "FX node 'tanh_1' (aten.tanh.default) in module blocks.1" in found.stdout
    assert f"shop.py:{LINE}" in found.stdout
    assert "To blame: translation" in found.stdout
    reduced = command(swept, "repro", cell)
    assert reduced.returncode == 0, reduced.stderr
    script = re.search(r"^python (\S+repro\.py)$", reduced.stdout, re.MULTILINE)
    assert script is not None
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alive = subprocess.run(
        [sys.executable, script.group(1)],
        cwd="/",
        env={**bare, "PYTHONPATH": str(PROJECT)},  # the script itself knows where the model and the plug-in are
        capture_output=True,
        text=True,
        check=False,
    )
    assert (alive.returncode, alive.stdout[:26]) == (1, "mismatch NumericMismatch: "), alive.stderr
    page = swept / "page.html"
    written = ("report", "latest", "--format", "html", "-o", str(page))
    assert command(swept, *written, "--exit-code").returncode == 1
    assert command(swept, *written).returncode == 0
    text = page.read_text()
    assert f"shop.py:{LINE}" in text
    assert "node_tanh_1_Tanh" in text


@pytest.mark.ops
def test_the_special_values_at_which_alone_a_file_is_wrong_are_named(swept: Path) -> None:
    cell = "bounded/full/opset18/cpu/wrong"
    found = command(swept, "bisect", cell)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{cell} at batch=4 with large inputs: first wrong value 'clamp' from node '")


@pytest.mark.slow
@pytest.mark.ops
def test_a_lost_guard_is_blamed_on_the_capture(swept: Path) -> None:
    cell = "branch/full/opset18/cpu/core"
    found = command(swept, "bisect", cell, "--json", "found.json")
    assert found.returncode == 0, found.stderr
    assert "To blame: capture" in found.stdout
    assert "under the condition `batch > 3`" in found.stdout
    facts = json.loads((swept / "found.json").read_text())["facts"]
    assert facts["source"].endswith(f"shop.py:{GUARD}")
    reduced = command(swept, "repro", cell)
    assert reduced.returncode == 0, reduced.stderr
    assert "There is no smaller program that shows it" in reduced.stdout
    assert "reduced to nothing smaller than the model" in reduced.stdout


@pytest.mark.ops
def test_what_a_plug_in_refuses_is_said_without_a_traceback(swept: Path) -> None:
    cell = "branch/full/opset18/cpu/wrong"
    found = command(swept, "bisect", cell)
    assert (found.returncode, found.stderr) == (0, "")
    assert f"{cell}: axis 0 (batch) of the input x was asked for as dynamic" in found.stdout
