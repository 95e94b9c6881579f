"""The child: carries out one order, action by action, and tells the parent what it does. The only room that runs
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
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch_export import plan
from batch_export.action import Action, ActionResult, Mnemonic
from batch_export.digest import Digest
from batch_export.errors import ArtifactError, CorruptArtifactError, StoreError
from batch_export.record import UNCACHED_STAGES
from batch_export.runner.loaded import LoadedFiles
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
from batch_export.stages.failures import failure_from
from batch_export.store import Found, Store, open_store

if TYPE_CHECKING:
    from batch_export.stages.output import StageOutput

STAGES: dict[str, str] = {
    "Workbench": "batch_export.stages.workbench",
    "Reference": "batch_export.stages.reference",
    "Capture": "batch_export.stages.capture",
    "Translate": "batch_export.stages.translate",
    "Plugin": "batch_export.stages.plugin",
    "Check": "batch_export.stages.check",
    "Run": "batch_export.stages.run",
    "Oracle": "batch_export.stages.oracle",
    "Measure": "batch_export.stages.measure",
    "Eager": "batch_export.stages.eager",
}
"""The module of each step's `execute`, and of the class `Workbench`. An order carries its own copy."""

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
        loaded: watches the local files that the model loads.
    """

    def __init__(self, order: Order, events: int, loaded: LoadedFiles) -> None:
        self._order = order
        self._events = events
        self._loaded = loaded
        self._roots = tuple(map(Path, order.toolchain.roots))
        self._store: Store = open_store(
            Path(order.store), self._roots, order.store_settings, run=order.run, warn=self._warn
        )
        self._results: dict[Digest, ActionResult] = {result.key: result for result in order.failed}
        self._benches: dict[tuple[str, str, str], Any] = {}
        self._cell = order.cells[0]
        self._home = os.getcwd()
        self._environment = dict(os.environ)
        self._corruptions = 0

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
        self._tell(UnitDone())

    def _get(self, step: plan.Step) -> ActionResult | None:
        action = step.action
        known = self._results.get(action.key)
        if known is not None:
            return known
        exclusive = action.mnemonic in plan.EXCLUSIVE
        if exclusive and not self._order.exclusive:
            return None
        refresh = self._order.settings.measure.refresh
        found = self._store.find(action.key, remote=not exclusive)
        if found is not None and serves(found, action.mnemonic, refresh):
            return self._keep(found.result, "ran" if found.own else "cached")
        if isinstance(step, plan.TranslateStep):
            self._require_captured(step)
        with self._store.single_flight(action.key):
            found = self._store.find(action.key, remote=False)
            if found is not None and serves(found, action.mnemonic, refresh):
                return self._keep(found.result, "ran" if found.own else "cached")
            return self._execute(step)

    def _require_captured(self, step: plan.TranslateStep) -> None:
        """Captures again when the capture came from the cache, which holds facts but no programs."""
        if self._bench().captured is not None:
            return
        again = self._execute(plan.CaptureStep(step.capture))
        if again.failure is not None or again.facts.get("graph_digest") != step.graph_digest:
            raise _ResolveAnewError

    def _execute(self, step: plan.Step) -> ActionResult:
        action = step.action
        self._tell(Started(action.key, action.mnemonic, action.description))
        limit = self._order.limit_s
        faulthandler.dump_traceback_later(max(limit - 5.0, 0.8 * limit), file=2)
        begin = time.perf_counter()
        try:
            output = self._stage(step)
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
        store = self._store
        match step:
            case plan.ReferenceStep():
                return self._call("Reference", self._bench())
            case plan.CaptureStep():
                return self._call("Capture", self._bench())
            case plan.TranslateStep():
                return self._call("Translate", self._bench(), step.opset, step.weights)
            case plan.PluginStep():
                return self._call("Plugin", self._bench(), step.opset)
            case plan.CheckStep():
                return self._call("Check", store.open_model(step.model), step.requested)
            case plan.RunStep():
                paths = store.open_model(step.model), store.blob_path(step.reference)
                oracles = [(case, store.blob_path(digest)) for case, digest in step.oracles]
                asked = (list(step.cases), step.requested, step.provider, step.threads)
                return self._call("Run", *paths, *asked, oracles)
            case plan.OracleStep():
                return self._call("Oracle", self._bench(), store.blob_path(step.reference), step.case)
            case plan.MeasureStep():
                paths = store.open_model(step.model), store.blob_path(step.reference)
                return self._call("Measure", *paths, step.provider, step.measure)
            case plan.EagerStep():
                return self._call("Eager", self._bench(), step.measure)

    def _lost_input(self, step: plan.Step) -> ArtifactError | None:
        """Whether a step failed because what it read is gone: someone removed the store under a run."""
        try:
            if isinstance(step, plan.CheckStep | plan.RunStep | plan.MeasureStep):
                self._store.open_model(step.model)
            if isinstance(step, plan.OracleStep | plan.RunStep | plan.MeasureStep):
                self._store.blob_path(step.reference)
            if isinstance(step, plan.RunStep):
                for _, digest in step.oracles:
                    self._store.blob_path(digest)
            if isinstance(step, plan.TranslateStep) and step.weights is not None:
                self._store.blob_path(step.weights)
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

    def _call(self, name: str, *arguments: Any) -> StageOutput:
        output: StageOutput = importlib.import_module(self._order.stages[name]).execute(*arguments)
        return output

    def _bench(self) -> Any:
        """Returns the live objects of the present cell's model, setting and exporter."""
        cell = self._cell
        name = (cell.model.name, cell.cell.dynamic, cell.exporter.name)
        if name not in self._benches:
            self._benches.clear()  # the models of one order are used one after another
            scratch = Path(self._order.scratch) / "bench"
            scratch.mkdir(parents=True, exist_ok=True)  # someone may have removed the store under us
            bench_class = importlib.import_module(self._order.stages["Workbench"]).Workbench
            self._benches[name] = bench_class(cell.model, cell.cell.dynamic, cell.exporter, scratch)
        return self._benches[name]

    def _store_output(self, action: Action, output: StageOutput) -> ActionResult:
        artifacts = {name: self._store.put_file(path) for name, path in output.files.items()}
        model = None
        if output.model is not None:
            model = self._store.put_model(output.model.onnx, output.model.external)
        return ActionResult(action.mnemonic, action.key, output.facts, artifacts, model, output.failure)

    def _with_evidence(self, step: plan.Step, result: ActionResult, seconds: float) -> ActionResult:
        built = plan.ReferenceStep | plan.CaptureStep | plan.PluginStep | plan.OracleStep | plan.EagerStep
        from_sources = isinstance(step, built)
        return ActionResult(
            result.mnemonic,
            result.key,
            result.facts,
            result.artifacts,
            result.model,
            result.failure,
            sources=self._loaded.sources() if from_sources else (),
            seconds=round(seconds, 6),
            attempts=self._order.attempts.get(result.key, ()),
        )

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


def serves(found: Found, mnemonic: Mnemonic, refresh: str) -> bool:
    """Whether a cached result is good enough: latencies may have to be measured again, see `MeasureSpec.refresh`.

    What this very run measured is: a run that is resumed measures nothing twice.
    """
    if mnemonic not in plan.EXCLUSIVE or found.own or refresh == "missing":
        return True
    if refresh == "always":
        return False
    latency = found.result.facts.get("latency_ms")
    return not (isinstance(latency, dict) and latency.get("contended"))


def main(order_path: Path, events: int, installed: Collection[str] = ()) -> None:
    """Carries out the order in this process, which becomes the leader of a session of its own.

    Args:
        order_path: the order.
        events: write end of the pipe to the parent.
        installed: what this process had loaded of installed packages when it was forked.
    """
    with contextlib.suppress(PermissionError):  # it leads one already
        os.setsid()
    os.set_inheritable(events, False)
    order = decode_order(order_path.read_bytes())
    _redirect(Path(order.log))
    faulthandler.enable(file=2)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(order.settings.threads)
    folders = [Path(order.store), Path(order.log).parent.parent]
    loaded = LoadedFiles([Path(root) for root in order.toolchain.roots], folders, installed)
    loaded.watch()
    Worker(order, events, loaded).carry_out()


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
