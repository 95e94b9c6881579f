"""The table of steps: its rows agree with one another, and another row with its stage file is another step."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from sweeping import STAGES, cells, model

from batch_export import steps
from batch_export.action import Action, ActionResult
from batch_export.plan import walk as plan
from batch_export.record import Stage
from batch_export.runner.evidence import Evidence
from batch_export.runner.order import Event, Finished, Order, Started, decode_event
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.worker import Worker
from batch_export.runtime.measuring import MeasureSpec
from batch_export.sources import toolchain
from batch_export.spec import StoreSpec
from batch_export.stages.failures import failure_from
from batch_export.stages.output import StageOutput
from batch_export.store import Store, open_store

PACKAGE = Path(steps.__file__).parent


def test_steps_that_make_the_same_thing_agree_on_what_becomes_of_it() -> None:
    for kind in steps.STEPS.values():
        same = [other for other in steps.STEPS.values() if other.mnemonic == kind.mnemonic]
        assert len({(one.failure, one.alone, one.local, one.excused, one.exports) for one in same}) == 1, kind.name
        assert kind.failure in get_args(Stage)


@pytest.mark.parametrize("kind", steps.STEPS.values(), ids=steps.STEPS)
def test_a_stage_takes_what_its_row_says(kind: steps.StepKind) -> None:
    taken = list(inspect.signature(import_module(kind.module).execute).parameters)
    assert (taken[0] == "bench") == kind.live
    assert len(taken) >= kind.live + len(kind.reads)


def test_no_other_module_lists_the_steps_by_hand() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        named = [name for name in steps.STEPS if f'"{name}"' in text]
        assert path.name in {"steps.py", "walk.py", "keys.py", "assemble.py"} or len(named) <= 2, f"{path}: {named}"


@pytest.fixture
def another_step(monkeypatch: pytest.MonkeyPatch) -> plan.Step:
    """One row and one stage file: a step that counts the bytes of an ONNX file."""
    stage = types.ModuleType("fake_stages.weigh")

    def execute(path: Path, times: int) -> StageOutput:
        return StageOutput({"bytes": path.stat().st_size * times})

    stage.execute = execute  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stage.__name__, stage)
    kind = steps.StepKind("Weigh", "check", module=stage.__name__, reads=("model",))
    monkeypatch.setitem(steps.STEPS, kind.name, kind)
    return plan.Step(kind, Action(kind.mnemonic, (("a", "b"),)), {"times": 2})


def carried_out(store: Store, step: plan.Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What a child tells of a cell whose way is one step."""

    def way(*_: Any) -> Iterator[Any]:
        yield step
        return plan.Ending()

    monkeypatch.setattr(plan, "walk", way)
    (cell,) = cells([model("m")], opsets=(18,))
    (tmp_path / "scratch").mkdir()
    order = Order(
        "m",
        (cell,),
        toolchain.Toolchain({}, {}, {}, {}),
        plan.PlanSettings(1, MeasureSpec()),
        str(store.root),
        str(tmp_path / "scratch"),
        str(tmp_path / "log"),
        30.0,
        False,
        STAGES | {step.kind.name: step.kind.module},
        store_settings=StoreSpec(),
    )
    read, write = os.pipe()
    Worker(order, write, Evidence([], [store.root], Preloaded())).carry_out()
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        return [decode_event(line) for line in stream]


def test_another_row_and_its_stage_file_are_another_step(
    another_step: plan.Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "store")
    (tmp_path / "a.onnx").write_bytes(b"12345")
    stored = store.put_model(tmp_path / "a.onnx", {})
    step = plan.Step(another_step.kind, another_step.action, {"model": stored, **another_step.given})
    (done,) = [event for event in carried_out(store, step, tmp_path, monkeypatch) if isinstance(event, Finished)]
    assert (done.result.mnemonic, done.result.facts, done.origin) == ("Weigh", {"bytes": 10}, "ran")


def test_nothing_is_captured_again_for_what_another_run_is_making(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "store")
    action = Action("Translate", (("a", "b"),))

    @contextlib.contextmanager
    def while_another_made_it(self: Store, key: str) -> Iterator[None]:
        self.record(action, ActionResult("Translate", key))
        yield

    monkeypatch.setattr(Store, "single_flight", while_another_made_it)
    capture = plan.Step(steps.STEPS["Capture"], Action("Capture", (("a", "b"),)))
    step = plan.Step(steps.STEPS["Translate"], action, {"opset": 18}, stands_on=(capture, {"graph_digest": "c"}))
    events = carried_out(store, step, tmp_path, monkeypatch)
    assert [event for event in events if isinstance(event, Started)] == []
    (done,) = [event for event in events if isinstance(event, Finished)]
    assert (done.result.mnemonic, done.origin) == ("Translate", "cached")


def test_a_stored_result_of_a_step_that_nobody_knows_is_not_served(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    action = Action("Forecast", (("a", "b"),))
    store.record(action, ActionResult("Forecast", action.key))
    assert store.find(action.key) is None


def test_a_step_says_where_its_failures_belong() -> None:
    for kind in steps.STEPS.values():
        assert failure_from(ValueError("no"), kind.mnemonic).stage == kind.failure
