"""What a dask worker does with a unit of work: the same as a run does on its own machine, in children of the worker.

A task arrives as bytes, a report leaves as bytes (msgpack both ways; nothing of ours is pickled but the name of a
function). The worker's own process imports no torch and runs no model: a crash ends a child, and the worker goes on.
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from batch_export import steps
from batch_export.action import ActionResult
from batch_export.environments.making import environment_for
from batch_export.errors import BatchExportError
from batch_export.plan import walk as plan
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Failure
from batch_export.runner.launcher import Launcher
from batch_export.runner.order import Origin
from batch_export.runner.results import Results, View
from batch_export.runner.site import Site
from batch_export.runner.surroundings import changes
from batch_export.runner.unit_runner import UnitRunner
from batch_export.runner.units import Unit
from batch_export.runtime.registered import runtime
from batch_export.sources.toolchain import Toolchain, toolchain_for
from batch_export.spec import RunnerSpec, StoreSpec
from batch_export.store import open_store

_LOG_BYTES = 256 << 10
_ATTRIBUTE = "batch_export_rooms"


@dataclass(frozen=True, slots=True)
class Task:
    """One unit for one worker.

    Attributes:
        token: the run's.
        probe: a file that the client wrote into the store; a worker that does not see it has another store.
        stages, preload: as for `run_sweep`.
    """

    token: str
    unit: str
    cells: tuple[PlannedCell, ...]
    toolchain: Toolchain
    settings: plan.PlanSettings
    runner: RunnerSpec
    store: str
    probe: str
    store_settings: StoreSpec
    exclusive: bool
    stages: dict[str, str]
    preload: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a task.

    Attributes:
        results: of actions, with where each came from.
        settled: indices of the cells that are done, with the failure of those that no action explains.
        attempts: failures of earlier tries that no action is to blame for, by index of the cell.
        log: the end of the unit's log.
        host: of the worker, as in `Toolchain.host`.
        problem: why the worker could not work at all; empty when it could.
    """

    results: tuple[tuple[ActionResult, Origin], ...] = ()
    settled: tuple[tuple[int, Failure | None], ...] = ()
    attempts: tuple[tuple[int, tuple[Failure, ...]], ...] = ()
    log: str = ""
    host: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    problem: str = ""


@dataclass(slots=True)
class _Room:
    """What a worker process keeps for one run: where its children come from, and when they are to end.

    `folder` holds the logs, and is removed when the run ends.
    """

    folder: tempfile.TemporaryDirectory[str]
    launcher: Launcher
    logs: Path
    toolchain: Toolchain
    stop: threading.Event = field(default_factory=threading.Event)


def carry_out(task: bytes) -> bytes:
    """Works through one unit and returns the encoded report; called by dask."""
    order = msgspec.msgpack.decode(task, type=Task)
    try:
        room = _room(order)
        return msgspec.msgpack.encode(_work(order, room))
    except BatchExportError as error:
        return msgspec.msgpack.encode(Report(problem=str(error)))


def handshake(task: bytes) -> bytes:
    """Returns a report without results: whether this worker could carry out the task; called on every worker."""
    order = msgspec.msgpack.decode(task, type=Task)
    own = _own_toolchain(order)
    return msgspec.msgpack.encode(Report(host=own.host, problem=_mismatch(order, own)))


def stop(token: str) -> None:
    """Ends the children of a run on this worker."""
    room = _rooms().pop(token, None)
    if room is not None:
        room.stop.set()
        room.launcher.close()
        room.folder.cleanup()


def topic(token: str) -> str:
    """What the workers of a run tell their client under: where their children are, as it happens."""
    return f"batch-export-{token}"


def _mismatch(order: Task, own: Toolchain) -> str:
    expected = replace(order.toolchain, host={key: order.toolchain.host[key] for key in ("machine", "system")})
    mine = replace(own, host={key: own.host[key] for key in ("machine", "system")})
    found = changes(expected, mine)
    if found:
        return f"differs from the client: {'; '.join(found)}"
    if not order.store_settings.remote and not Path(order.probe).is_file():
        return f"does not see the client's store at {order.store}, and there is no store.remote"
    return ""


def _own_toolchain(order: Task) -> Toolchain:
    models = {cell.model.name: cell.model for cell in order.cells}.values()
    exporters = {cell.exporter.name: cell.exporter for cell in order.cells}.values()
    here = tuple(root for root in order.toolchain.roots if Path(root).is_dir())
    providers = {cell.provider.name: cell.provider for cell in order.cells}.values()
    for provider in providers:
        if provider.env:
            environment_for(provider.env, runtime(provider.kind).language)  # a worker's machine has its own
    own = toolchain_for(models, exporters, roots=here, store=Path(order.store), providers=providers)
    same = {target: digest for target, digest in order.toolchain.targets.items() if target not in own.targets}
    versions = {name: version for name, version in order.toolchain.versions.items() if name not in own.versions}
    return replace(own, targets={**own.targets, **same}, versions={**own.versions, **versions})


def _room(order: Task) -> _Room:
    rooms = _rooms()
    room = rooms.get(order.token)
    if room is None:
        own = _own_toolchain(order)
        problem = _mismatch(order, own)
        if problem:
            raise BatchExportError(problem)
        folder = tempfile.TemporaryDirectory(prefix="batch-export-logs-")
        logs = Path(folder.name) / "logs"
        logs.mkdir()
        room = rooms.setdefault(order.token, _Room(folder, Launcher(logs, order.preload, own.roots), logs, own))
    return room


def _rooms() -> dict[str, _Room]:
    """The rooms of this worker; they live as long as the dask worker that they hang on."""
    import distributed  # lazy: an optional dependency

    worker: Any = distributed.get_worker()
    if not hasattr(worker, _ATTRIBUTE):
        setattr(worker, _ATTRIBUTE, {})
    rooms: dict[str, _Room] = getattr(worker, _ATTRIBUTE)
    return rooms


def _work(order: Task, room: _Room) -> Report:
    began = time.monotonic()
    toolchain = replace(order.toolchain, host=room.toolchain.host, roots=room.toolchain.roots)
    warnings: list[str] = []
    store = open_store(
        Path(order.store),
        tuple(map(Path, toolchain.roots)),
        order.store_settings,
        run=order.token,
        warn=warnings.append,
    )
    site = Site(
        store=store,
        launcher=room.launcher,
        toolchain=toolchain,
        settings=order.settings,
        runner=order.runner,
        logs=room.logs,
        stages=order.stages,
        results=Results(store, refresh=order.settings.measure.refresh),
        stop=room.stop,
        warn=warnings.append,
    )
    unit = Unit(order.unit, order.cells)
    settled: dict[Cell, Failure | None] = {}

    def settle(cell: PlannedCell, results: View, log: str, failure: Failure | None) -> bool:
        chain = plan.resolve(cell, toolchain, order.settings, results.look_up)
        pending = chain.pending
        done = pending is None or failure is not None
        if not done and not order.exclusive and pending is not None:
            done = pending.action.mnemonic in steps.ALONE
        if done:
            settled[cell.cell] = failure
        return done

    import distributed  # lazy: an optional dependency

    worker: Any = distributed.get_worker()

    def watch(unit: str, cell: Cell, mnemonic: str) -> None:
        worker.log_event(topic(order.token), [unit, msgspec.to_builtins(cell), mnemonic])

    with store.in_use():
        runner = UnitRunner(site, unit, settle, exclusive=order.exclusive, watch=watch)
        runner.run()
    log = room.logs / unit.log_name
    index = {cell.cell: position for position, cell in enumerate(order.cells)}
    report = Report(
        results=tuple(site.results.known()),
        settled=tuple((index[cell], failure) for cell, failure in settled.items()),
        attempts=tuple((index[cell], failures) for cell, failures in runner.results.attempts.items()),
        log=_tail(log),
        host=toolchain.host,
        warnings=tuple(dict.fromkeys(warnings)),
        seconds=round(time.monotonic() - began, 3),
    )
    log.unlink(missing_ok=True)
    return report


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
