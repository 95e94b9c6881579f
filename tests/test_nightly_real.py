"""Five real nights through the command line: a user's models and exporter, faults switched on and off by files.

What `test_nightly_records.py` tells with made-up records happens here: every night is a process that exports, runs,
measures and compares. Each event is reported exactly once, and nothing else is. The nox session `nightly` runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batch_export.report.history import open_history
from batch_export.report.trend import trend

PROJECT = Path(__file__).parents[1]
BROKEN, SLOW = "alpha/full/opset20/cpu/switched", "beta/full/opset18/cpu/switched"
FLAKY, GONE = "gamma/full/opset20/cpu/switched", "alpha/full/opset18/cpu/switched"
STALE = "model delta (an old bug): no model has this name"

SOURCE = '''
"""Three small models, and an exporter that does what a file beside it says."""

import os
import signal
from pathlib import Path

import onnx
import torch

from batch_export import export

HERE = Path(__file__).parent


class Layers(torch.nn.Module):
    def __init__(self, name, width):
        super().__init__()
        self.name = name
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 8))

    def forward(self, x):
        return self.layers(x)


def layers(name, width):
    return Layers(name, width)


def switched(module, args, kwargs, *, path, opset_version, **options):
    deed = (HERE / f"{module.name}_{opset_version}.txt").read_text()
    if deed == "die once":
        (HERE / f"{module.name}_{opset_version}.txt").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    export(module, args, path, kwargs=kwargs, opset_version=opset_version, external_data=False, **options)
    model = onnx.load(path)
    (last,) = [node for node in model.graph.node if node.output[0] == model.graph.output[0].name]
    if deed == "wrong":
        next(node for node in model.graph.node if node.op_type == "Tanh").op_type = "Sigmoid"
    if deed == "slow":  # the largest of many times the same: as before, only later
        last.output[0] = "early"
        model.graph.node.append(onnx.helper.make_node("Max", ["early"] * 200, [model.graph.output[0].name]))
    onnx.save(model, path)
'''

SWEEP = """# @package _global_
matrix:
  models: [alpha, beta, gamma]
  opsets: [18, 20]
  dynamic: [full]
  exporters: [switched]
  exclude: {exclude}
measure: {{budget_s: 0.4, refresh: always}}
runner: {{retries: 1}}
expectations: {expectations}
"""


class Scene:
    """A folder with a user's project, and what each night of it came to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "conf"
        for name, text in {
            "nights.py": SOURCE,
            "conf/exporter/switched.yaml": "_target_: nights.switched\n",
            **{f"conf/model/{model}.yaml": self.model(model) for model in ("alpha", "beta", "gamma")},
            **{f"{model}_{opset}.txt": "" for model in ("alpha", "beta", "gamma") for opset in (18, 20)},
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.sweep()

    @staticmethod
    def model(name: str) -> str:
        inputs = "inputs:\n  x: {dtype: float32, shape: [batch, 8]}\naxes:\n  batch: {example: 64, check: [1, 5]}\n"
        return f"_target_: nights.layers\nname: {name}\nwidth: 256\n{inputs}"

    def sweep(self, exclude: str = "[]", expectations: str = "[]") -> None:
        (self.conf / "sweep").mkdir(exist_ok=True)
        (self.conf / "sweep" / "nights.yaml").write_text(SWEEP.format(exclude=exclude, expectations=expectations))

    def switch(self, cell: str, deed: str) -> None:
        model, _, opset, *_ = cell.split("/")
        (self.folder / f"{model}_{opset.removeprefix('opset')}.txt").write_text(deed)

    def night(self, number: int) -> tuple[int, dict[str, Any], str]:
        """Returns the exit code, summary.json and what was printed of a night compared with the one before."""
        run = self.folder / "outputs" / f"2026-11-0{number}" / "02-00-00-000"
        before = self.folder / "outputs" / f"2026-11-0{number - 1}" / "02-00-00-000"
        words = ["+sweep=nights", f"hydra.run.dir={run}", *([f"baseline={before}"] if number > 1 else [])]
        done = subprocess.run(
            [sys.executable, "-m", "batch_export", *words, "--config-dir", str(self.conf)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), str(PROJECT)]), "COLUMNS": "160"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        for name in ("report.html", "junit.xml", "summary.md", "sarif.json"):
            assert (run / name).stat().st_size > 500
        return done.returncode, json.loads((run / "summary.json").read_text()), done.stdout


@pytest.mark.nightly
def test_five_real_nights_report_each_event_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    events: list[tuple[int, str, str]] = []
    codes: list[int] = []
    busy = False
    for number in range(1, 6):
        if number == 2:
            scene.switch(BROKEN, "wrong")
        if number == 3:
            scene.switch(BROKEN, "")
            scene.switch(SLOW, "slow")
        if number == 4:
            scene.switch(FLAKY, "die once")
            scene.sweep(expectations="[{model: delta, reason: an old bug}]")
        if number == 5:
            scene.sweep(exclude="[{model: alpha, opset: 18, reason: nobody remembers}]")
        code, summary, printed = scene.night(number)
        codes.append(code)
        changes = (summary["comparison"] or {"changes": []})["changes"]
        for change in changes:
            if change["kind"] == "export":  # seconds of one export beside other work: said, never counted
                continue
            if change["kind"] in ("suspect", "busy"):  # nothing is made of it on a machine that was too busy to be sure
                assert change["kind"] == "busy" or "the machine was busy" in change["text"]
                busy = True
                continue
            events.append((number, change["kind"], change["cell"]))
            model, dynamic, opset, provider, _ = change["cell"].split("/")
            in_words = f"{model} {dynamic} opset {opset.removeprefix('opset')} {provider}"  # as failures are told
            assert change["cell"] in printed or in_words in printed, printed
        events += [(number, "stale", sentence) for sentence in summary["stale_expectations"]]
        busy = busy or (number == 3 and summary["comparison"]["contended"] > 0)

    expected = [
        (2, "broke", BROKEN),
        (3, "slower", SLOW),
        (3, "fixed", BROKEN),
        (4, "broke", FLAKY),
        (4, "stale", STALE),
        (5, "vanished", GONE),
        (5, "fixed", FLAKY),
    ]
    if busy and (3, "slower", SLOW) not in events:
        expected.remove((3, "slower", SLOW))
    assert events == expected
    assert codes == [0, 1, int((3, "slower", SLOW) in events), 1, 1]
    with open_history(tmp_path / "outputs" / "history.sqlite") as history:
        trends = {name: trend(history.entries(name)) for name in history.cells()}
    assert [name for name, found in trends.items() if found.flaky] == [FLAKY], "the broken cell's file had changed"
    assert [name for name, found in trends.items() if found.bad] == []
    assert trends[GONE].runs == 4
