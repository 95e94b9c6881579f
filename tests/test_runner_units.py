"""The runner's parts one by one: units and their order, orders and events, blame, memory, failures of stages."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeping import STAGES, cells, model, sweep

from batch_export.action import ActionResult
from batch_export.errors import LibraryMissingError, ModelError, OpsetError, RunError, StoreError, TranslationError
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import PlanSettings
from batch_export.record import Failure
from batch_export.runner import preload
from batch_export.runner.estimates import estimated
from batch_export.runner.launcher import Launcher
from batch_export.runner.memory import PrivateMemory, private_bytes
from batch_export.runner.order import Finished, Order, Started, decode_event, decode_order, encode_event, encode_order
from batch_export.runner.records_file import RecordsFile
from batch_export.runner.settling import Settling
from batch_export.runner.supervisor import End, Limits, blame, blamed_result
from batch_export.runner.units import Unit, by_model, group, in_order
from batch_export.runtime.measuring import MeasureSpec
from batch_export.sources.toolchain import toolchain_for
from batch_export.spec import InputSpec
from batch_export.stages.failures import failure_from
from benchmarks import schedule

ROOT = Path(__file__).parents[1]
LIMITS = Limits(10, 2 << 30)
RUNNING = Started("k", "Capture", "Capture m/full/core")


def test_cells_are_grouped_by_what_they_share_and_split_when_workers_would_idle() -> None:
    planned = cells([model("a"), model("b")], dynamic=("static", "full"), opsets=(18, 20))
    units = group(planned, workers=4)
    assert [unit.name for unit in units] == ["a/static/core", "a/full/core", "b/static/core", "b/full/core"]
    assert [cell.cell.opset for cell in units[0].cells] == [18, 20]
    split = group(planned, workers=5)
    assert len(split) == 8
    assert split[1].name == "a/static/core/opset20"
    assert split[1].log_name == "a_static_core_opset20.log"
    assert [unit.name for unit in by_model(planned)] == ["a/measure", "b/measure"]


@pytest.mark.parametrize(
    "names",
    [
        ("a b/static/core", "a:b/static/core", "a_b/static/core"),
        ("caf\u00e9/static/core", "cafe\u0301/static/core"),
        ("a/image_size/core", "a_image/size/core"),
        ("a/static/core/opset18", "a_static/core/opset18"),
        ("a_b/measure", "a/b/measure"),
        ("a" * 300 + "/static/core", "a" * 301 + "/static/core"),
        ("\udcff/static/core", "_/static/core"),
    ],
)
def test_no_two_units_have_one_log(names: tuple[str, ...]) -> None:
    logs = [Unit(name, ()).log_name for name in names]
    assert len({*logs}) == len(names)


def test_ordinary_names_are_those_of_their_logs() -> None:
    for name in ("bert_base/static/core", "a.b-1/full/core/opset18", "a_b/measure"):
        assert Unit(name, ()).log_name == name.replace("/", "_") + ".log"


def test_one_unit_of_every_model_first_and_the_longest_of_those_first() -> None:
    units = group(cells([model("a"), model("b"), model("c")], dynamic=("static", "full")), workers=1)
    seconds = {"a/static/core": 1.0, "a/full/core": 2.0, "b/static/core": 9.0, "b/full/core": 3.0}
    assert [unit.name for unit in in_order(units, seconds)] == [
        "c/static/core",
        "b/static/core",
        "a/full/core",
        "c/full/core",
        "b/full/core",
        "a/static/core",
    ]


def test_an_order_survives_the_way_to_the_child() -> None:
    leaf = InputSpec(("x", 0, "y"), constant={"a": [1, None, "b"]}, low=float("inf"))
    item = replace(model("m"), inputs=(leaf,), arguments={"nested": {"list": [1.5, "x"]}, "infinite": float("inf")})
    order = Order(
        "m/full/core",
        tuple(cells([item])),
        toolchain_for([item], []),
        PlanSettings(2, MeasureSpec(budget_s=0.1)),
        "store",
        "scratch",
        "log",
        1.5,
        True,
        STAGES,
    )
    assert decode_order(encode_order(order)) == order


def test_an_event_survives_the_way_to_the_parent() -> None:
    failure = Failure("capture", "E", "two\nlines", details="ä")
    event = Finished(ActionResult("Capture", "k", {"a": [1, 2.5, None]}, failure=failure, sources=(("f", "d"),)), "ran")
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert decode_event(line) == event
    assert decode_event(encode_event(RUNNING)) == RUNNING


@pytest.mark.parametrize(
    ("end", "stage", "error_class", "words"),
    [
        (End("died", -11, RUNNING, 3 << 20), "crash", "SIGSEGV", "Capture m/full/core ended by SIGSEGV"),
        (End("died", -9, RUNNING), "crash", "SIGKILL", "memory may have run out"),
        (End("died", 0, RUNNING), "crash", "ProcessExit", "ended its process with exit code 0"),
        (
            End("died", None, None),
            "crash",
            "ProcessExit",
            "between two actions, ended its process with exit code unknown",
        ),
        (End("timeout", -9, RUNNING), "timeout", "Timeout", "took more than 10 s .* raise runner.timeout_s"),
        (End("memory", -9, RUNNING), "memory", "MemoryLimit", "more than 2 GiB of private memory .*runner.memory_gb"),
        (End("log", -9, RUNNING), "crash", "OutputLimit", "printed more than 64 MiB"),
    ],
)
def test_who_is_blamed_and_in_which_words(tmp_path: Path, end: End, stage: str, error_class: str, words: str) -> None:
    log = tmp_path / "unit.log"
    log.write_text("x" * 5000 + "the end")
    failure = blame(end, LIMITS, log)
    assert (failure.stage, failure.error_class) == (stage, error_class)
    assert re.search(words, failure.message)
    assert failure.details.endswith("the end")
    assert 4000 <= len(failure.details) < 4100
    result = blamed_result(end, LIMITS, log)
    assert (result is None) is (end.running is None)


@pytest.mark.parametrize(
    ("written", "stage"),
    [
        ('Timeout (0:01:55)!\nThread 0x7f (most recent call first):\n  File "a.py", line 3 in f\n  File ', "timeout"),
        (
            'Timeout (0:01:55)!\nThread 0x7f (most recent call first):\n  File "a.py", line 3 in f\nsaid later\n\n',
            "crash",
        ),
        ("Fatal Python error: Segmentation fault\n", "crash"),
    ],
)
def test_a_child_that_fell_while_it_wrote_its_stack_ran_out_of_time(tmp_path: Path, written: str, stage: str) -> None:
    log = tmp_path / "unit.log"
    log.write_text(written)

    assert blame(End("died", -11, RUNNING), LIMITS, log).stage == stage


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (ValueError("x"), "translate"),
        (SystemExit(3), "translate"),
        (TranslationError("x", node="n", operator="o", source="f:1"), "translate"),
        (OpsetError("x"), "opset"),
        (ModelError("x"), "model"),
        (MemoryError(), "memory"),
        (StoreError("x"), "environment"),
        (RunError("x"), "environment"),
        (LibraryMissingError("lib", "model m"), "environment"),
        (ConnectionResetError("x"), "environment"),
        (OSError(errno.ENOSPC, "full"), "environment"),
        (FileNotFoundError(errno.ENOENT, "no such file"), "translate"),
    ],
)
def test_the_class_of_an_exception_says_where_it_belongs(error: BaseException, stage: str) -> None:
    failure = failure_from(error, "Translate")
    assert (failure.stage, failure.error_class) == (stage, type(error).__name__)
    assert failure.message
    assert "\n" not in failure.message


@pytest.mark.parametrize(
    ("cause", "stage"),
    [
        (ConnectionRefusedError("x"), "environment"),
        (TimeoutError("x"), "environment"),
        (socket.gaierror(-2, "Name or service not known"), "environment"),
        (OSError(errno.ENOSPC, "full"), "environment"),
        (FileNotFoundError(errno.ENOENT, "no such file"), "model"),
        (ValueError("x"), "model"),
    ],
)
def test_what_a_builder_could_not_reach_is_no_fact_of_the_model(cause: Exception, stage: str) -> None:
    try:
        try:
            raise cause
        except Exception as error:
            raise RuntimeError("a library says it in its own words") from error
    except RuntimeError as error:
        told = ModelError("the builder raised")
        told.__cause__ = error
    assert failure_from(told, "Reference").stage == stage


def test_a_failure_keeps_the_place_and_the_traceback() -> None:
    try:
        raise TranslationError("no such thing", node="n", operator="o", source="f:1")
    except TranslationError as error:
        failure = failure_from(error, "Translate")
    assert (failure.node, failure.operator, failure.source) == ("n", "o", "f:1")
    assert "Traceback" in failure.details


def test_an_exception_that_cannot_be_printed_is_a_failure_all_the_same() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert failure_from(BrokenError(), "Run").message.startswith("BrokenError without a message")
    assert len(failure_from(ValueError("x" * 9999), "Run").message) == 400


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux' smaps_rollup")
def test_private_memory_counts_what_a_process_and_its_children_have_for_themselves() -> None:
    code = (
        "import os, sys; hoard = bytearray(os.urandom(60 << 20)); pid = os.fork();"
        "more = bytearray(os.urandom(40 << 20)) if pid == 0 else b'';"
        "print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        used = private_bytes(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert used is not None
    assert 40 << 20 < used < 160 << 20
    assert private_bytes(process.pid) is None


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux' smaps_rollup")
def test_private_memory_is_looked_at_closely_where_it_may_be_too_much_or_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def counted(pid: int) -> int | None:
        looks.append(pid)
        return private_bytes(pid)

    monkeypatch.setattr("batch_export.runner.memory.private_bytes", counted)
    code = "import os, sys\nprint(flush=True)\nfor _ in sys.stdin: hoard = os.urandom(150 << 20); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        memory = PrivateMemory(process.pid, 1 << 30)
        at_first = [memory.look() for _ in range(3)]
        process.stdin.write(b"more\n")
        process.stdin.flush()
        process.stdout.readline()
        later = [memory.look() for _ in range(3)]
        tight = PrivateMemory(process.pid, 100 << 20)
        assert min(tight.look(), tight.look()) > 100 << 20
        process.stdin.close()
    assert max(at_first) < 100 << 20 < min(later)
    assert len(looks) <= 4


def test_records_of_an_unwritable_folder_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot be written: .*Next step: .*output\.path="):
        RecordsFile(tmp_path / "file" / "run")


def test_model_libraries_that_may_be_forked_are_preloaded() -> None:
    assert preload.entries_for([], core_exporter=False) == (preload.TORCH,)
    entries = preload.entries_for(["transformers", "safetensors", "transformers"], core_exporter=True)
    assert entries == (preload.TORCH, preload.CORE, "transformers", "transformers.modeling_utils")


def test_preloading_calls_functions_and_imports_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "preloaded_by_test.py").write_text("import os\ndef call(): os.environ['PRELOADED_BY_TEST'] = 'yes'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PRELOADED_BY_TEST", "no")
    preload.preload(["preloaded_by_test:call", "json"])
    assert os.environ["PRELOADED_BY_TEST"] == "yes"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(3), r"the model's code called sys\.exit\(3\); let it return, or raise"),
        (KeyboardInterrupt(), "the model's code raised KeyboardInterrupt"),
        (AssertionError(), "AssertionError without a message"),
    ],
)
def test_what_says_nothing_of_itself_is_put_in_words(error: BaseException, said: str) -> None:
    failure = failure_from(error, "Reference")
    assert failure.stage == "model"
    assert re.match(said, failure.message)


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is for Linux")
@pytest.mark.parametrize("how", ["the run is stopped", "the launcher is closed"])
def test_nobody_waits_for_a_forkserver_that_still_imports_when_the_run_is_stopped(tmp_path: Path, how: str) -> None:
    (tmp_path / "endless_import.py").write_text("import time\ntime.sleep(3600)\n")
    stop = threading.Event()
    launcher = Launcher(tmp_path, ["endless_import"], [str(tmp_path)], stop)
    said: list[str] = []

    def start() -> None:
        try:
            launcher.start()
        except RunError as error:
            said.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    while launcher._server is None:
        time.sleep(0.01)
    if how == "the run is stopped":
        stop.set()
        thread.join()
    launcher.close()
    thread.join()
    assert said == ["the run has been stopped"]
    assert launcher._server.poll() is not None


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is for Linux")
def test_a_forkserver_that_is_killed_before_it_reads_a_word_is_said(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    launcher = Launcher(tmp_path, [], [str(tmp_path)])
    with pytest.raises(RunError, match="forked from could not start or has ended"):
        launcher.start()
    launcher.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is for Linux")
def test_the_forkserver_starts_when_the_first_cell_needs_it_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: list[int] = []
    looked_up: list[str] = []
    settle, prepare = Settling.settle, Launcher.prepare

    def settling(self: Settling, cell: PlannedCell, *rest: Any) -> bool:
        looked_up.append(cell.cell.model)
        return settle(self, cell, *rest)

    def preparing(self: Launcher) -> None:
        at.append(len(looked_up))
        prepare(self)

    monkeypatch.setattr(Settling, "settle", settling)
    monkeypatch.setattr(Launcher, "prepare", preparing)
    known, new = model("known"), model("new")
    sweep(tmp_path, cells([known]))
    assert at == [0, 1], "before any where the store is empty, and, where it runs already, at the first of two"
    for work, expected in (([known], []), ([known, new], [3])):
        at.clear()
        looked_up.clear()
        sweep(tmp_path, cells(work))
        assert at == expected
    assert not (tmp_path / "run1" / "logs" / "forkserver.log").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is for Linux")
def test_a_forkserver_that_fails_beforehand_fails_the_first_child(tmp_path: Path) -> None:
    (tmp_path / "broken_import.py").write_text("raise ValueError('this import is broken')\n")
    launcher = Launcher(tmp_path, ["broken_import"], [str(tmp_path)])
    launcher.prepare()
    with pytest.raises(RunError, match="this import is broken"):
        launcher.start()
    launcher.close()


def test_what_was_never_run_is_estimated_from_its_config_and_the_models_other_units() -> None:
    small = model("small")
    big = replace(model("big"), requires=("transformers",), tags=("large",))
    other = replace(big, name="other")
    units = group(cells([small, big, other], dynamic=("static", "full")), workers=1)
    names = {unit.name for unit in units}
    guessed = estimated(units, {})
    assert guessed.keys() == names
    assert guessed["big/static/core"] > 5 * guessed["small/static/core"]
    assert guessed["big/full/core"] > guessed["big/static/core"]
    ordered = [unit.name for unit in in_order(units, guessed)]
    assert ordered[:2] == ["big/full/core", "other/full/core"]
    known = estimated(units, {"small/static/core": 50.0, "big/static/core/opset18": 1.0, "gone/full/core": 9.0})
    assert known["small/static/core"] == 50.0
    assert known["small/full/core"] == pytest.approx(50.0 * guessed["small/full/core"] / guessed["small/static/core"])
    assert known["big/full/core"] / known["small/full/core"] == pytest.approx(
        guessed["big/full/core"] / guessed["small/full/core"]
    )
    assert estimated(units, dict.fromkeys(names, 2.0)) == dict.fromkeys(names, 2.0)
    gone = estimated(units, {"small/no such setting/core": 3.0})
    assert gone["small/static/core"] > 0


def test_guessed_and_recorded_orders_come_near_the_lower_bound() -> None:
    recorded = json.loads((ROOT / "benchmarks" / "durations.json").read_text())
    groups = {name: seconds for name, seconds in recorded.items() if name.count("/") == 2}
    for known in (True, False):
        taken, bound, _ = schedule.simulate(groups, 2_000, 16, known)
        assert taken <= schedule.TARGET * bound
