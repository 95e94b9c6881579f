"""Units of work on a dask cluster: at an address, or started on this machine. The client's side of `dask_worker.py`.

Units arrive; settled cells go to whoever asked, as each unit's report comes back. A unit whose worker dies goes to
another one; only what kills a second worker is taken apart, and only the cell that kills a third one is blamed. Native
futures, since joblib's dask backend waits for ever when a worker dies. Latency is measured by one worker of a host at a
time, and nothing else runs then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from joblib import effective_n_jobs

from batch_export.errors import RunError, UsageError
from batch_export.record import Cell, Failure
from batch_export.runner import dask_worker
from batch_export.runner.dask_worker import Report, Task
from batch_export.runner.site import Settle, Site, Watch, ignore
from batch_export.runner.units import Unit

MEASURE_RESOURCE = "MEASURE"
"""A dask resource: workers that declare it (one of a host should) are the ones that measure."""

_DEATHS_OF_A_UNIT = 2
_CONNECT_S = 20
_CONFIG = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.worker.daemon": False,
    "distributed.comm.timeouts.connect": "10s",
}


@dataclass(slots=True)
class _Job:
    """A unit on its way: how many workers have died of it, and which."""

    unit: Unit
    exclusive: bool
    deaths: int = 0
    avoided: tuple[str, ...] = ()
    lane: str = ""


class DaskEngine:
    """Carries out units on a cluster (use as a context).

    Args:
        site: the run's; its launcher is not used.
        preload: what children of the workers have imported from the start.
        address: of a scheduler; empty: a cluster is started on this machine.
        watch: told where the workers' children are.
    """

    def __init__(self, site: Site, preload: Sequence[str], address: str, watch: Watch = ignore) -> None:
        try:
            import dask  # lazy: an optional dependency
            import distributed
        except ImportError as error:
            raise UsageError(
                "runner=dask needs the package distributed. Next step: pip install 'batch_export[dask]'"
            ) from error
        self._distributed: Any = distributed
        self._dask: Any = dask
        self._site = site
        self._preload = tuple(preload)
        self._address = address
        self._watch = watch
        self._client: Any = None
        self._cluster: Any = None
        self._hosts: dict[str, dict[str, str]] = {}
        self._probe = site.store.root / "tmp" / f"probe-{uuid.uuid4().hex}"
        self._serial = 0
        self._log_level = logging.WARNING

    def __enter__(self) -> DaskEngine:
        self._log_level = logging.getLogger("distributed").level
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters to the reader is said by us
        try:
            with self._dask.config.set(_CONFIG):
                if self._address:
                    self._client = self._distributed.Client(self._address, timeout=_CONNECT_S, set_as_default=False)
                    self._set_allowed_failures()
                else:
                    self._start_cluster()
            self._client.subscribe_topic(dask_worker.topic(self._site.store.run), self._told)
        except (OSError, TimeoutError, ValueError) as error:
            self.__exit__()
            raise RunError(
                f"no dask scheduler answers at {self._address or 'this machine'} ({type(error).__name__}). "
                "Next step: start one with `dask scheduler`, or leave runner.address out for a cluster on this "
                "machine; to go on with a run: `resume RUN --address ...`, or `--runner local`"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # a cluster that is gone cannot be told; the run is over anyway
            if self._client is not None:
                self._client.run(dask_worker.stop, self._site.store.run)
        for closing in (self._client, self._cluster):
            with contextlib.suppress(Exception):
                if closing is not None:
                    closing.close(timeout=5)
        self._probe.unlink(missing_ok=True)
        logging.getLogger("distributed").setLevel(self._log_level)

    def _told(self, event: tuple[float, Any]) -> None:
        unit, cell, mnemonic = event[1]
        self._watch(unit, msgspec.convert(cell, Cell), mnemonic)

    @property
    def hosts(self) -> list[dict[str, str]]:
        """The workers' hosts, as in `Toolchain.host`, without repetitions."""
        return list({tuple(sorted(host.items())): host for host in self._hosts.values()}.values())

    @property
    def workers(self) -> int:
        """How many units run at once."""
        return max(1, sum(int(info["nthreads"]) for info in self._workers().values()))

    def greet(self, units: Sequence[Unit]) -> None:
        """Asks every worker whether it can carry out these units.

        Raises:
            RunError: one has other versions, other sources or another store.
        """
        cells = tuple({cell.cell.model: cell for unit in units for cell in unit.cells}.values())
        cells += tuple({cell.cell.exporter: cell for unit in units for cell in unit.cells}.values())
        self._probe.write_text(str(os.getpid()), encoding="utf-8")
        self._client.wait_for_workers(1, timeout=60)
        try:
            answers = self._client.run(dask_worker.handshake, self._task(Unit("", cells), exclusive=False))
        except Exception as error:  # whatever a worker's Python raises when it cannot even import us
            raise RunError(
                f"a dask worker could not be asked for its versions ({type(error).__name__}: {error}). Next step: "
                "install the same batch_export, with the same Python, on the scheduler and on every worker"
            ) from error
        for address, answer in answers.items():
            report = msgspec.msgpack.decode(answer, type=Report)
            if report.problem:
                raise RunError(
                    f"the dask worker {address} {report.problem}. Next step: make its environment and its view of "
                    "the store the same as here"
                )
            self._hosts[address] = report.host

    def run(
        self, units: Sequence[Unit], settle: Settle, started: Callable[[str], None], *, exclusive: bool
    ) -> Iterator[tuple[str, float]]:
        """Carries out the units, and yields the name and seconds of each as it is done.

        Args:
            units: in the order in which they should start.
            settle: told of every cell.
            started: told of every unit that is submitted.
            exclusive: whether these units measure.

        Raises:
            RunError: the cluster is gone.
        """
        waiting = deque(_Job(unit, exclusive) for unit in units)
        lanes = self._lanes() if exclusive else None
        flying: dict[Any, _Job] = {}
        done = self._distributed.as_completed(loop=self._client.loop)
        while waiting or flying:
            while waiting and (lanes is None or lanes):
                job = waiting.popleft()
                job.lane = lanes.pop() if lanes is not None else ""
                future = self._submit(job)
                flying[future] = job
                done.add(future)
                started(job.unit.name)
            future = next(done)
            job = flying.pop(future)
            if lanes is not None:
                lanes.append(job.lane)
            if self._site.stop.is_set():
                return
            report = self._report(future)
            future.release()
            if report is None:
                waiting.extendleft(self._after_death(job, future, settle))
                if lanes is not None:
                    lanes[:] = [lane for lane in self._lanes() if lane not in {other.lane for other in flying.values()}]
                continue
            self._take(job, report, settle)
            yield job.unit.name, report.seconds

    def _take(self, job: _Job, report: Report, settle: Settle) -> None:
        if report.problem:
            raise RunError(
                f"a dask worker that joined late {report.problem}. Next step: make its environment the same as here"
            )
        for text in report.warnings:
            self._site.warn(text)
        log = self._keep_log(job.unit, report.log)
        view = self._site.results.view(host=report.host)
        for result, origin in report.results:
            view.put(result, origin)
        for index, failures in report.attempts:
            view.attempts[job.unit.cells[index].cell] = failures
        settled = dict(report.settled)
        for index, cell in enumerate(job.unit.cells):
            unsettled = Failure("environment", "Unsettled", "the dask worker ended without a result for this cell")
            settle(cell, view, log, settled.get(index, unsettled))

    def _after_death(self, job: _Job, future: Any, settle: Settle) -> list[_Job]:
        """What is to be done about a unit whose worker died: once more elsewhere, then cell by cell, then blame."""
        worker = self._killer_address(future)
        avoided = (*job.avoided, worker)
        self._site.warn(f"the dask worker {worker} died while it worked on {job.unit.name}; the unit goes elsewhere")
        deaths = job.deaths + 1
        if deaths < _DEATHS_OF_A_UNIT:
            return [_Job(job.unit, job.exclusive, deaths, avoided)]
        if len(job.unit.cells) > 1:
            singles = [Unit(f"{job.unit.name}/{index}", (cell,)) for index, cell in enumerate(job.unit.cells)]
            return [_Job(unit, job.exclusive, _DEATHS_OF_A_UNIT - 1, avoided) for unit in reversed(singles)]
        failure = Failure(
            "crash",
            "WorkerDeath",
            f"{deaths} dask workers died while they worked on this cell, the last one at {worker}. "
            "Next step: look at the log of that worker and the kernel's log of its machine",
        )
        settle(job.unit.cells[0], self._site.results.view(), "", failure)
        return []

    def _submit(self, job: _Job) -> Any:
        self._serial += 1
        options: dict[str, Any] = {}
        workers = self._workers()
        if job.lane:
            options["workers"] = [job.lane]
            if MEASURE_RESOURCE in workers.get(job.lane, {}).get("resources", {}):
                options["resources"] = {MEASURE_RESOURCE: 1}
        elif job.avoided:
            others = [address for address in workers if address not in job.avoided]
            if others:
                options["workers"] = others
        return self._client.submit(
            dask_worker.carry_out,
            self._task(job.unit, exclusive=job.exclusive),
            key=f"batch-export-{self._site.store.run}-{self._serial}",
            pure=False,
            retries=0,
            **options,
        )

    def _report(self, future: Any) -> Report | None:
        """Returns the report, or None when the worker died."""
        try:
            data = future.result()
        except self._distributed.scheduler.KilledWorker:
            return None
        except Exception as error:  # cancelled futures, closed connections: the cluster itself is in trouble
            raise RunError(
                f"the dask cluster {self._address or 'of this machine'} is gone or in trouble "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}). "
                "Next step: look at the scheduler's log, then resume; `--runner local` goes on without it"
            ) from error
        return msgspec.msgpack.decode(data, type=Report)

    def _killer_address(self, future: Any) -> str:
        error = future.exception()
        return str(getattr(getattr(error, "last_worker", None), "address", "")) or "(unknown)"

    def _lanes(self) -> list[str]:
        """Addresses of the workers that measure: those that declare the resource, or else one of each host."""
        workers = self._workers()
        declared = [address for address, info in workers.items() if MEASURE_RESOURCE in info.get("resources", {})]
        by_host: dict[str, str] = {}
        for address in declared or workers:
            by_host.setdefault(workers[address]["host"], address)
        return list(by_host.values())

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def _task(self, unit: Unit, *, exclusive: bool) -> bytes:
        site = self._site
        return msgspec.msgpack.encode(
            Task(
                token=site.store.run,
                unit=unit.name,
                cells=unit.cells,
                toolchain=site.toolchain,
                settings=site.settings,
                runner=site.runner,
                store=str(site.store.root),
                probe=str(self._probe),
                store_settings=replace(site.store.usable_settings(), shared=True),
                exclusive=exclusive,
                stages=dict(site.stages),
                preload=self._preload,
            )
        )

    def _keep_log(self, unit: Unit, text: str) -> str:
        if text:
            with contextlib.suppress(OSError), (self._site.logs / unit.log_name).open("a", encoding="utf-8") as log:
                log.write(text)
        return f"{Path(self._site.logs).name}/{unit.log_name}"

    def _start_cluster(self) -> None:
        self._cluster = self._distributed.LocalCluster(
            n_workers=effective_n_jobs(self._site.runner.n_jobs),
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # our own limits are on the children
            dashboard_address=None,
            host="127.0.0.1",
            silence_logs=50,
        )
        self._client = self._distributed.Client(self._cluster, set_as_default=False)

    def _set_allowed_failures(self) -> None:
        """A scheduler that was started with dask's defaults would let a killer take three workers more with it."""
        with contextlib.suppress(Exception):  # without it the blame is as exact, and costs more workers
            self._client.run_on_scheduler(allow_no_failures)


def allow_no_failures(dask_scheduler: Any = None) -> None:
    """Runs on the scheduler."""
    dask_scheduler.allowed_failures = 0
