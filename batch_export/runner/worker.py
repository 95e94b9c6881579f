"""The child: carries out one order, action by action, and reports to the parent what it does. The only room that runs
models.

An order's file and a pipe arrive; events leave over the pipe, artifacts and results into the store, everything that the
model prints into the unit's log. An exception of a stage becomes a result with a failure; what ends the process
itself is for the supervisor to explain.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch_export import steps
from batch_export.action import Action, ActionResult, ModelArtifact
from batch_export.digest import Digest
from batch_export.errors import ArtifactError, CorruptArtifactError, StoreError
from batch_export.plan import walk as plan
from batch_export.record import UNCACHED_STAGES
from batch_export.runner.evidence import Evidence
from batch_export.runner.order import (
    CellDone,
    CellStarted,
    Event,
    Finished,
    Order,
    Origin,
    Started,
    UnitDone,
    Warned,
    decode_order,
    encode_event,
)
from batch_export.runner.own_sources import imported_from_sources
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.refresh import serves
from batch_export.sources.named_files import texts
from batch_export.stages.failures import failure_from
from batch_export.store import Store, open_store

if TYPE_CHECKING:
    from batch_export.stages.output import StageOutput

_CORRUPTIONS_AT_MOST = 3
"""A cell whose stored files turn out damaged more often is failed: the disk does not hold what it is given."""


class _ResolveAnewError(Exception):
    """What the cell's steps were made for is no longer so: a program captured again came out differently, or a stored
    file was damaged and has to be made again.
    """


class Worker:
    """Resolves the cells of one order.

    Args:
        order: what to do.
        events: write end of the pipe to the parent.
        evidence: watches what the model uses.
    """

    def __init__(self, order: Order, events: int, evidence: Evidence) -> None:
        self._order = order
        self._events = events
        self._evidence = evidence
        self._roots = tuple(map(Path, order.toolchain.roots))
        self._store: Store = open_store(
            Path(order.store), self._roots, order.store_settings, run=order.run, warn=self._warn
        )
        self._results: dict[Digest, ActionResult] = {result.key: result for result in order.failed}
        self._benches: dict[str, Any] = {}
        self._cell = order.cells[0]
        self._home = os.getcwd()
        self._environment = dict(os.environ)
        self._corruptions = 0
        self._process = os.getpid()
        self._lent = self._spoiled = self._unfinished = False
        os.register_at_fork(after_in_child=self._step_aside)

    def carry_out(self) -> None:
        """Resolves every cell, one after another."""
        for index, cell in enumerate(self._order.cells):
            self._cell = cell
            self._tell(CellStarted(index))
            self._corruptions = 0
            while True:
                try:
                    plan.resolve(cell, self._order.toolchain, self._order.settings, self._get)
                    break
                except _ResolveAnewError:
                    continue  # once per capture, and a few times for damaged files
            self._tell(CellDone(index))
        self._tell(UnitDone(spoiled=self._unfinished))

    def _get(self, step: plan.Step) -> ActionResult | None:
        action = step.action
        known = self._results.get(action.key)
        if known is not None:
            return known
        if step.kind.alone and not self._order.exclusive:
            return None
        refresh = self._order.settings.measure.refresh
        found = self._store.find(action.key, remote=not step.kind.local)
        if found is not None and serves(found, action.mnemonic, refresh):
            return self._keep(found.result, "ran" if found.own else "cached")
        with self._store.single_flight(action.key):
            found = self._store.find(action.key, remote=False)
            if found is not None and serves(found, action.mnemonic, refresh):
                return self._keep(found.result, "ran" if found.own else "cached")
            if not self._is_sound_for(step):
                self._unfinished = True
                return None
            self._require_live(step)  # not before: another run may be making this very result
            return self._execute(step)

    def _is_sound_for(self, step: plan.Step) -> bool:
        """Whether the model, and what it runs on, is here what it was before any plug-in exporter had it in hands."""
        if not step.kind.live:
            return True
        if self._spoiled or (step.kind.fresh and self._lent):
            return False
        self._spoiled = not self._bench().is_sound()
        return not self._spoiled

    def _require_live(self, step: plan.Step) -> None:
        """Executes again what `step` stands on when that came from the cache, which holds facts but no live objects."""
        if step.stands_on is None:
            return
        earlier, facts = step.stands_on
        if getattr(self._bench(), earlier.kind.leaves) is not None:
            return
        again = self._execute(earlier)
        if again is None or again.failure is not None:
            raise _ResolveAnewError
        if any(again.facts.get(name) != value for name, value in facts.items()):
            raise _ResolveAnewError

    def _execute(self, step: plan.Step) -> ActionResult | None:
        """Executes a step; None where what came of it may be an exporter's doing: nothing is kept of it."""
        action = step.action
        self._tell(Started(action.key, action.mnemonic, action.description))
        limit = self._order.limit_s
        faulthandler.dump_traceback_later(max(limit - 5.0, 0.8 * limit), file=2)
        self._evidence.of_ours()  # looking results up reads what they were made of
        begin = time.perf_counter()
        try:
            with self._ending_forks():
                output = self._stage(step)
            if output.is_doubtful:
                self._spoiled = self._unfinished = True
                return None
            result = self._store_output(action, output)
            encode_event(Finished(result, "ran"))
        except BaseException as error:
            artifact = error if isinstance(error, ArtifactError) else self._lost_input(step)
            if artifact is not None and self._corruptions < _CORRUPTIONS_AT_MOST:
                self._corruptions += 1
                self._forget(artifact)
                raise _ResolveAnewError from error
            cause = artifact or self._lost_scratch() or error
            result = ActionResult(action.mnemonic, action.key, failure=failure_from(cause, action.mnemonic))
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._put_back()
        result = self._with_evidence(step, result, time.perf_counter() - begin)
        return self._keep(self._cache(action, result), "ran")

    def _stage(self, step: plan.Step) -> StageOutput:
        bench = (self._bench(),) if step.kind.live else ()
        self._lent = self._lent or step.kind.name == "Plugin"
        given = [self._opened(value) if name in step.kind.reads else value for name, value in step.given.items()]
        output: StageOutput = importlib.import_module(self._order.stages[step.kind.name]).execute(*bench, *given)
        return output

    @contextlib.contextmanager
    def _ending_forks(self) -> Iterator[None]:
        """Ends a process that a model forked and that comes back here, by a return or by an exception: there is one
        worker, and what the other process goes on with would be told and stored as ours. It ends as Python would end
        it, its exception printed into the log.
        """
        status = 0
        try:
            yield
        except BaseException as error:
            if os.getpid() == self._process:
                raise
            status = _status_of(error)
        finally:
            if os.getpid() != self._process:
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(OSError, ValueError):
                        stream.flush()
                os._exit(status)

    def _step_aside(self) -> None:
        """Has a process that a model forked write elsewhere: it may go on with the step, and what this one has written
        is moved into the store meanwhile.
        """
        for bench in self._benches.values():
            bench.scratch = bench.scratch / f"of_process_{os.getpid()}"
            with contextlib.suppress(OSError):
                bench.scratch.mkdir()

    def _opened(self, content: Any) -> Any:
        """Returns the path of stored content; of `(case, digest)` pairs, the pairs with paths; of nothing, nothing.

        Raises:
            ArtifactError: it is gone or damaged.
        """
        if content is None:
            return None
        if isinstance(content, ModelArtifact):
            return self._store.open_model(content)
        if isinstance(content, tuple):
            return [(case, self._store.blob_path(digest)) for case, digest in content]
        return self._store.blob_path(content)

    def _lost_input(self, step: plan.Step) -> ArtifactError | None:
        """Whether a step failed because what it read is gone: someone removed the store under a run."""
        try:
            for name in step.kind.reads:
                self._opened(step.given[name])
        except ArtifactError as error:
            return error
        return None

    def _lost_scratch(self) -> StoreError | None:
        """Whether a step failed because the folder that it writes into is gone; what it says is then no fact."""
        scratch = Path(self._order.scratch)
        if (scratch / "bench" if self._benches else scratch).is_dir():
            return None
        return StoreError(
            f"{self._order.scratch} was removed while it was in use. Next step: run `batch-export resume`"
        )

    def _forget(self, error: ArtifactError) -> None:
        """Lets go of every result that named the file, so that it is made again."""
        if isinstance(error, CorruptArtifactError):
            self._warn(str(error))
        self._benches.clear()
        stale = [
            key
            for key, result in self._results.items()
            if error.digest in result.artifacts.values()
            or (result.model is not None and error.digest in {result.model.onnx, *dict(result.model.external).values()})
        ]
        for key in stale:
            del self._results[key]

    def _put_back(self) -> None:
        """Undoes what a model did to the current folder and the environment variables, before the next step."""
        with contextlib.suppress(OSError):
            os.chdir(self._home)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)

    def _warn(self, text: str) -> None:
        remote = self._store.remote
        self._tell(Warned(text, remote_failed=remote is not None and not remote.works))

    def _bench(self) -> Any:
        """Returns the live objects of the present cell's capture."""
        cell = self._cell
        name = cell.cell.capture
        if name not in self._benches:
            self._spoiled = self._spoiled or any(bench.is_spoiled for bench in self._benches.values())
            self._benches.clear()  # the models of one order are used one after another
            scratch = Path(self._order.scratch) / "bench"
            scratch.mkdir(parents=True, exist_ok=True)  # someone may have removed the store under us
            bench_class = importlib.import_module(self._order.stages[steps.WORKBENCH]).Workbench
            self._benches[name] = bench_class(cell.cell, cell.model, cell.exporter, scratch)
        return self._benches[name]

    def _store_output(self, action: Action, output: StageOutput) -> ActionResult:
        artifacts = {name: self._store.put_file(path) for name, path in output.files.items()}
        model = None
        if output.model is not None:
            model = self._store.put_model(output.model.onnx, output.model.external)
        return ActionResult(action.mnemonic, action.key, output.facts, artifacts, model, output.failure)

    def _with_evidence(self, step: plan.Step, result: ActionResult, seconds: float) -> ActionResult:
        failed = result.failure is not None
        is_theirs = step.kind.builds or (step.kind.live and self._names_code())
        seen = self._evidence.of_step(self._cell, failed=failed) if is_theirs else self._evidence.of_ours()
        for text in seen.warnings:
            self._warn(text)
        return ActionResult(
            result.mnemonic,
            result.key,
            result.facts,
            result.artifacts,
            result.model,
            result.failure,
            sources=seen.sources,
            asked=seen.asked,
            packages=seen.packages,
            variables=seen.variables,
            seconds=round(seconds, 6),
            attempts=self._order.attempts.get(result.key, ()),
        )

    def _names_code(self) -> bool:
        """Whether arguments of the cell's exporter name files or code of a user's, such as a pass."""
        return not self._order.toolchain.named.keys().isdisjoint(texts(self._cell.exporter.arguments))

    def _cache(self, action: Action, result: ActionResult) -> ActionResult:
        if result.failure is not None and result.failure.stage in UNCACHED_STAGES:
            return result
        try:
            self._store.record(action, result)
        except StoreError as error:
            failure = failure_from(error, action.mnemonic)
            return ActionResult(action.mnemonic, action.key, failure=failure, seconds=result.seconds)
        return result

    def _keep(self, result: ActionResult, origin: Origin) -> ActionResult:
        self._results[result.key] = result
        self._tell(Finished(result, origin))
        return result

    def _tell(self, event: Event) -> None:
        data = memoryview(encode_event(event))
        while data:
            data = data[os.write(self._events, data) :]


def _status_of(error: BaseException) -> int:
    """Returns the exit status that Python gives a process that `error` ends; prints what Python would print."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def main(
    order_path: Path, events: int, preloaded: Preloaded | None = None, channel: socket.socket | None = None
) -> None:
    """Carries out the order in this process, which becomes the leader of a session of its own.

    Args:
        order_path: the order.
        events: write end of the pipe to the parent.
        preloaded: what this process had imported when it was forked; None: it was not.
        channel: leads to the keeper, which watches what this process opens.
    """
    with contextlib.suppress(PermissionError):  # it leads one already
        os.setsid()
    os.set_inheritable(events, False)
    order = decode_order(order_path.read_bytes())
    imported_from_sources()
    _redirect(Path(order.log))
    faulthandler.enable(file=2)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(order.settings.threads)
    folders = [Path(order.store), Path(order.log).parent.parent]
    evidence = Evidence([Path(root) for root in order.toolchain.roots], folders, preloaded or Preloaded(), order.layer)
    evidence.watch(channel)
    Worker(order, events, evidence).carry_out()


def _redirect(log: Path) -> None:
    """Sends standard output and standard error, below Python too, to the log; standard input is empty."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(nothing)
    os.close(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)  # threads that a model left running would keep the process
