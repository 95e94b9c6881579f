"""Processes that hunt: forked from a warm parent, started again after a crash, a time limit or many programs.

Seeds arrive, records leave in the order in which they end. The seed that a process died of is a record as well.
"""

from __future__ import annotations

import multiprocessing.sharedctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from hunt.worker import FURTHER, SHRUNK, work

_PROGRAMS = 400
"""After so many a process is replaced: sessions and captures leave memory behind."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    stage: Any
    seed: int | None = None
    since: float = 0.0
    done: int = 0


@dataclass
class Pool:
    """Hunts with several processes.

    Attributes:
        workers: how many.
        limit: seconds that one program may take, shrinking included.
        share: one program of so many is also run in the reference evaluator where onnxruntime agrees; 0 for none.
        known: causes that have been found; of these no script is written again.
        shrinks: outcomes that are shrunk to their cause.
        opsets: beside the program's own at which its capture is translated.
    """

    workers: int
    limit: float
    share: int = 20
    known: set[str] = field(default_factory=set)
    shrinks: frozenset[str] = SHRUNK
    opsets: int = FURTHER

    def run(self, seeds: Iterator[int], go_on: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Records of the seeds, until there are no more or `go_on` says so."""
        busy = [self._start() for _ in range(self.workers)]
        try:
            for worker in busy:
                self._give(worker, seeds, go_on)
            while any(worker.seed is not None for worker in busy):
                for index, worker in enumerate(busy):
                    record = self._ended(worker)
                    if record is None:
                        continue
                    yield record
                    if not worker.process.is_alive() or worker.done >= _PROGRAMS:
                        self._stop(worker)
                        busy[index] = worker = self._start()
                    self._give(worker, seeds, go_on)
                wait([worker.pipe for worker in busy if worker.seed is not None], timeout=0.5)
        finally:
            for worker in busy:
                self._stop(worker)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        stage = multiprocessing.sharedctypes.RawArray("c", 32)
        process = context.Process(target=work, args=(there, stage), daemon=True)
        process.start()
        there.close()
        return _Worker(process, here, stage)

    def _stop(self, worker: _Worker) -> None:
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()

    def _give(self, worker: _Worker, seeds: Iterator[int], go_on: Callable[[], bool]) -> None:
        worker.seed = next(seeds, None) if go_on() else None
        if worker.seed is not None:
            worker.since = time.monotonic()
            reference = bool(self.share) and worker.seed % self.share == 0
            worker.pipe.send((worker.seed, reference, frozenset(self.known), self.shrinks, self.opsets))

    def _ended(self, worker: _Worker) -> dict[str, Any] | None:
        """The record of the worker's seed once there is one; a death or too long a wait is one too."""
        if worker.seed is None:
            return None
        if worker.pipe.poll():
            try:
                record: dict[str, Any] = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                worker.process.join()
                return self._lost(worker, "crash", f"exit code {worker.process.exitcode}")
            worker.done += 1
            return record
        if time.monotonic() - worker.since > self.limit:
            worker.process.kill()
            worker.process.join()
            return self._lost(worker, "timeout", f"longer than {self.limit:.0f} s")
        return None

    def _lost(self, worker: _Worker, outcome: str, detail: str) -> dict[str, Any]:
        """The record of a seed whose process is gone; where eager itself did not survive, nothing is to be judged."""
        stage = worker.stage.value.decode()
        outcome = "skipped" if stage == "eager" else outcome
        record = {"seed": worker.seed, "outcome": outcome, "kind": f"{detail} in {stage}", "detail": detail}
        record |= {"cause": f"{outcome} | {record['kind']} | seed {worker.seed}"} if outcome != "skipped" else {}
        return record | {"seconds": round(time.monotonic() - worker.since, 3)}
