"""batch_export.runtime.paired and runner.remeasure: which of two files is slower, on a made-up clock and for real."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from recording import CPU, cell, passed

from batch_export.action import Action, ActionResult
from batch_export.record import ActionFacts, OnnxFacts, Record
from batch_export.runner.remeasure import remeasure
from batch_export.runtime import tensor_file
from batch_export.runtime.paired import Clock, PairedFacts, interval, paired
from batch_export.store import Store, open_store


class Machine:
    """Time passes only while something runs; the level drifts, as a clock that heats up does."""

    def __init__(self, seed: int, company: float = 0.0) -> None:
        self.wall = self.cpu = 0
        self.draw = random.Random(seed)
        self.company = company

    def file(self, milliseconds: float) -> Callable[[], None]:
        def run() -> None:
            drift = 1 + self.wall / 2e9
            spent = int(milliseconds * 1e6 * drift * (1 + abs(self.draw.gauss(0, 0.03))))
            self.cpu += spent
            self.wall += int(spent * (1.5 if self.draw.random() < self.company else 1))

        return run

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.cpu)


def measured(ratio: float, seed: int, company: float = 0.0) -> PairedFacts:
    machine = Machine(seed, company)
    return paired(machine.file(1.0), machine.file(ratio), budget_s=0.4, clock=machine.clock())


def test_no_false_alarm_and_slowdowns_are_caught() -> None:
    assert not any(measured(1.0, seed).slower_than(1.05) for seed in range(60))
    caught = sum(measured(1.12, seed).slower_than(1.05) for seed in range(60))
    assert caught >= 58
    facts = measured(1.12, 1)
    assert facts.low < 1.12 < facts.high
    assert facts.ratio == pytest.approx(1.12, rel=0.02), "drift hits both files alike"


def test_a_busy_machine_gives_no_verdict() -> None:
    facts = measured(2.0, 1, company=0.9)
    assert facts.contended
    assert not facts.slower_than(1.05)


def test_nothing_measured_says_nothing() -> None:
    assert not interval([]).slower_than(1.05)
    assert not PairedFacts(ratio=2, low=1.9, high=2.1, error="lost").slower_than(1.05)


def stored(store: Store, folder: Path, layers: int) -> Record:
    """A file of so many multiplications in the store, with inputs, and the record that points at both."""
    body = "".join(f"x{i + 1} = MatMul(x{i}, x{i})\n" for i in range(layers))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[64, 64] x0) => (float[64, 64] x{layers}) {{\n{body}}}'
    )
    path = folder / f"{layers}.onnx"
    onnx.save(model, path)
    artifact = store.put_model(path, {})
    inputs = folder / "inputs"
    tensor_file.write(inputs, {"case0/in/x0": np.zeros((64, 64), np.float32)}, {"cases": []})
    action = Action("Reference", (("inputs", "zeros"),))
    store.record(action, ActionResult("Reference", action.key, artifacts={"reference": store.put_file(inputs)}))
    facts = OnnxFacts(store.model_path(artifact).relative_to(store.root).as_posix(), artifact.onnx, 1, 18, layers)
    return replace(passed(cell()), onnx=facts, actions=(ActionFacts("Reference", action.key, "ran", 0.0),))


def test_two_files_of_the_store_are_timed_in_a_child(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    short, long = stored(store, tmp_path, 10), stored(store, tmp_path, 30)
    where = cell()
    said: list[str] = []
    facts = remeasure(
        [where], {where: short}, {where: long}, store, store, {"cpu": CPU}, budget_s=0.3, say=said.append
    )[where]
    assert facts.error == ""
    assert facts.contended or facts.ratio > 1.5
    assert said == [f"measuring again, old file against new: {where.name}"]
    assert short.onnx is not None
    gone = replace(short, onnx=replace(short.onnx, path="models/x.onnx", sha256="f" * 64))
    lost = remeasure([where], {where: gone}, {where: long}, store, store, {"cpu": CPU})[where]
    assert lost.error == "the file ffffffffffff is no longer in the store"
