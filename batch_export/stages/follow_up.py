"""After a run: where a failing cell goes wrong first, and the smallest thing that fails as it does.

A request (one JSON file) arrives; an answer (another) leaves, and for `repro` a folder with a script. Runs in a process
of its own: `python -m batch_export.stages.follow_up REQUEST ANSWER`. Stored files are only read; what the store does
not hold (exported programs) is captured again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import torch
from torch.utils import _pytree as pytree

from batch_export import axes
from batch_export.errors import BatchExportError, OnnxExporterError
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.diagnostics.eager_values import EagerValues
from batch_export.exporter.diagnostics.localise import Finding, localise_file
from batch_export.exporter.diagnostics.search import differs
from batch_export.exporter.graph.tensor_values import to_value
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.repro.script import Symptom
from batch_export.exporter.repro.write import Repro, Setting, smallest_module, write_repro
from batch_export.numbers.compare import compare
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, tolerance_at
from batch_export.record import PROCESS_STAGES
from batch_export.sources.closure import local_roots
from batch_export.spec import CORE_EXPORTER_TARGET
from batch_export.stages import capture as capture_stage
from batch_export.stages import for_config, plugin
from batch_export.stages.failures import failure_from
from batch_export.stages.follow_up_request import Answer, Request, refusal_file
from batch_export.stages.output import StageOutput
from batch_export.stages.runtime_report import RuntimeReport
from batch_export.stages.whole_cell_repro import WholeCell
from batch_export.stages.workbench import Workbench

_NUMBERS = ("load", "run", "mismatch", "dynamic")
_EXPORT = ("capture", "translate", "dynamic", "opset")
_ELSEWHERE = ("model", "environment")
_REDUCIBLE = ("Capture", "Translate")
"""Mnemonics of actions of which a submodule or some nodes may fail alone when they end their process."""


def answer(request: Request, scratch: Path) -> Answer:
    """Answers a request; `scratch` is an existing, empty folder."""
    planned = request.planned
    bench = Workbench(planned.cell, planned.model, planned.exporter, scratch)
    stage = request.record.stage
    if stage in _ELSEWHERE:
        words = f"{planned.cell.name} failed before the export, in stage {stage}: {request.record.message}"
        return Answer(False, words)
    follow_up = _FollowUp(request, bench, scratch)
    if request.for_runtime:
        return follow_up.reported()
    return follow_up.bisect() if request.question == "bisect" else follow_up.repro()


class _FollowUp:
    """One failing cell, built again."""

    def __init__(self, request: Request, bench: Workbench, scratch: Path) -> None:
        self._request = request
        self._bench = bench
        self._scratch = scratch
        self._cell = request.planned.cell
        self._is_core = request.planned.exporter.target == CORE_EXPORTER_TARGET
        self._case = axes.Case(request.sizes, request.variant)
        self._kwargs = bench.inputs(request.sizes, request.variant)

    def bisect(self) -> Answer:
        """Names the first wrong node, or the module or operator that stops the export."""
        stage = self._request.record.stage
        if stage in PROCESS_STAGES:
            return self.repro()
        refused = None if self._is_of_contract() else self._refusal()
        if refused is not None:
            return refused
        if stage not in _NUMBERS or self._is_of_contract():
            return Answer(True, f"{self._cell.name}: {self._request.record.message}", {"stage": stage})
        finding = self._finding()
        if finding is None:
            words = f"{self._cell.name}: the file agrees with eager here; run the sweep again"
            return self._unlike_the_model() or Answer(False, words)
        at = f" at {self._case.text}" if self._case.variant else ""
        return Answer(True, f"{self._cell.name}{at}: {finding.sentence()}", msgspec.to_builtins(finding))

    def repro(self) -> Answer:
        """Writes the smallest thing that fails in the same way."""
        near: tuple[str, ...] = ()
        stage = self._request.record.stage
        if stage in _NUMBERS and not self._is_of_contract() and self._refusal() is None:
            finding = self._finding()
            near = (finding.fx_node,) if finding is not None else ()
        elif self._request.record.failure is not None and self._request.record.failure.node:
            near = (self._request.record.failure.node,)
        found = None if self._is_of_contract() else self._reduced(near)
        if found is not None:
            return self._told_repro(found)
        whole = self._whole()
        unlike = self._unlike_the_model() if stage in _NUMBERS and self._bench.captured is not None else None
        if unlike is not None:
            text = f"{unlike.text}. There is no smaller program that shows it"
            return replace(unlike, found=whole.found, text=f"{text}\n{whole.text}" if whole.found else text)
        return whole

    def _is_of_contract(self) -> bool:
        """Whether the file is not what was asked for: a part of the model has another contract."""
        record = self._request.record
        return record.stage == "check" or (record.failure is None and bool(record.findings))

    def reported(self) -> Answer:
        """Writes what the developers of the provider's runtime need."""
        stage, name = self._request.record.stage, self._cell.name
        if stage not in _NUMBERS:
            words = f"{name} failed in stage {stage}, so there is no file that its runtime ran"
            return Answer(False, f"{words}. Next step: `repro {name}` without --for")
        refused = self._refusal()
        if refused is not None:
            return replace(refused, found=False)
        finding = self._finding()
        if finding is None:
            return Answer(False, f"{name}: the file agrees with eager here; run the sweep again")
        report = RuntimeReport(name, self._request.planned.provider, finding)
        return report.written(self._file(), self._bench.captured.program, self._kwargs, Path(self._request.folder))

    def _finding(self) -> Finding | None:
        if not self._captured():
            return None
        path = self._file()
        captured = self._bench.captured

        def unoptimised() -> ONNXProgram:
            arguments = {**self._request.planned.exporter.arguments, "optimize": False}
            return to_onnx(captured, self._cell.opset, **arguments)

        return localise_file(
            path,
            captured.program,
            (),
            self._kwargs,
            provider=self._request.planned.provider,
            unoptimised=unoptimised if self._is_core else None,
        )

    def _captured(self) -> bool:
        if self._bench.captured is None:
            capture_stage.execute(self._bench)
        return self._bench.captured is not None

    def _file(self) -> Path:
        stored = Path(self._request.onnx)
        if self._request.onnx and stored.is_file():
            return stored
        if self._is_core:
            path = self._scratch / "again.onnx"
            names = axes.input_names(self._bench.model)
            program = to_onnx(
                self._bench.captured, self._cell.opset, input_names=names, **self._request.planned.exporter.arguments
            )
            program.save(path)
            return path
        output = self._plugged()
        if output.model is None:
            raise OnnxExporterError(
                f"{self._cell.name} was not exported this time: {output.failure and output.failure.message}",
                next_step="run the sweep again",
            )
        return output.model.onnx

    def _plugged(self) -> StageOutput:
        folder = self._scratch / "plugged"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        bench = Workbench(self._cell, self._bench.model, self._bench.exporter, folder)
        try:
            return plugin.execute(bench, self._cell.opset)
        except SystemExit as error:
            return StageOutput(failure=failure_from(error, "Translate"))

    def _refusal(self) -> Answer | None:
        """Says where capture or translation stops, if it does."""
        if not self._is_core:
            return self._refused_by_plug_in()
        try:
            self._captured()
            to_onnx(self._bench.captured, self._cell.opset, **self._request.planned.exporter.arguments)
        except OnnxExporterError as error:
            if self._bench.captured is None:
                return self._unfit_module(error)
            facts = {"node": error.node, "operator": error.operator, "source": error.source}
            return Answer(True, f"{self._cell.name}: {error}", facts)
        return None

    def _refused_by_plug_in(self) -> Answer | None:
        """Says what a plug-in exporter raises, if the cell has no file."""
        if self._request.onnx:
            return None
        failure = self._plugged().failure
        if failure is None:
            return None
        facts = {"stage": failure.stage, "error_class": failure.error_class, "message": failure.message}
        return Answer(True, f"{self._cell.name}: {failure.message}", facts)

    def _unlike_the_model(self) -> Answer | None:
        """Says so when the file does what the captured program does, and that is not what the model does here."""
        if not self._captured():
            return None
        captured, sizes, variant = self._bench.captured, self._case.sizes, self._case.variant
        values = EagerValues(captured.program, (), self._kwargs)
        with torch.no_grad():
            expected = pytree.tree_leaves(for_config.called(self._bench.module, **self._bench.inputs(sizes, variant)))
        tensors = [leaf for leaf in expected if isinstance(leaf, torch.Tensor)]
        actual = values.compute(values.output_names)
        wrong = [
            name
            for name, tensor in zip(values.output_names, tensors, strict=False)
            if name in actual and differs(compare(name, to_value(tensor), actual[name]))
        ]
        if not wrong:
            return None
        at = self._case.text if sizes or variant else "these inputs"
        guards = [f"`{one.condition}`" + (f" ({one.source})" if one.source else "") for one in captured.restrictions]
        reason = "the file does what the captured program does, and the program is not what the model is at " + at
        if guards:
            reason += f"; it was captured under the condition {' and '.join(guards)}"
        facts = {
            "blame": "capture",
            "reason": reason,
            "value": wrong[0],
            "source": next((one.source for one in captured.restrictions if one.source), ""),
        }
        return Answer(True, f"{self._cell.name}: output {wrong[0]!r} is wrong. To blame: capture: {reason}", facts)

    def _unfit_module(self, error: OnnxExporterError) -> Answer:
        def attempt(
            module: object, args: tuple[object, ...], kwargs: dict[str, object], expected: None
        ) -> Symptom | None:
            try:
                capture(module, args, kwargs)
            except OnnxExporterError as other:
                name = type(other).__name__
                return {"stage": other.stage, "error_class": name, "operator": "", "message": other.problem}
            return None

        symptom: Symptom = {
            "stage": error.stage,
            "error_class": type(error).__name__,
            "operator": "",
            "message": str(error),
        }
        path, module, _, _, found = smallest_module(self._bench.module, (), self._kwargs, attempt, symptom)
        text = (
            f"{self._cell.name}: the smallest module that cannot be captured is {path or 'the model itself'!r} "
            f"({type(module).__qualname__}): {found['message']}"
        )
        return Answer(True, text, {"module": path, "class": type(module).__qualname__, "message": found["message"]})

    def _reduced(self, near: tuple[str, ...]) -> Repro | None:
        request, planned = self._request, self._request.planned
        record = request.record
        last = record.actions[-1].mnemonic if record.actions else ""
        if record.stage in PROCESS_STAGES and last not in _REDUCIBLE:
            return None  # what eager or a runtime ends must not be run here
        tolerances = {**DEFAULT_TOLERANCES, **request.tolerances}
        setting = Setting(
            title=self._cell.name,
            opset=self._cell.opset,
            exporter="" if self._is_core else planned.exporter.target,
            arguments=planned.exporter.arguments,
            provider=planned.provider,
            tolerances={name: tolerance_at(one, request.variant) for name, one in tolerances.items()},
            timeout_s=request.timeout_s,
            memory_bytes=request.memory_bytes if record.stage == "memory" else 0,
            roots=tuple(map(str, local_roots())),
        )
        wanted: Symptom | None = None
        of_sizes = record.stage == "dynamic" and record.failure is None  # how it fails at one of them has other names
        if record.stage in (*PROCESS_STAGES, *_NUMBERS, *_EXPORT) and not of_sizes:
            wanted = {"stage": record.stage, "error_class": record.error_class, "operator": "", "message": ""}
        program = self._bench.captured.program if self._bench.captured is not None else None
        capture_fails = wanted is not None and last == "Capture"
        if record.stage in PROCESS_STAGES and not self._is_core:
            capture_fails = WholeCell(request, self._scratch).capture_ends()
        return write_repro(
            Path(request.folder),
            self._bench.module,
            (),
            self._kwargs,
            setting,
            wanted=wanted,
            near=near,
            program=program,
            capture_fails=capture_fails,
            stages=_NUMBERS,
        )

    def _whole(self) -> Answer:
        """Writes the cell itself; nothing of it runs in this process."""
        name = self._cell.name
        try:
            found = WholeCell(self._request, self._scratch).written()
        except RuntimeError as error:
            return Answer(False, f"{name} cannot be tried again: {error}")
        if found is None:
            return Answer(False, f"{name} does not fail in the same way when it is exported alone")
        return self._told_repro(found)

    def _told_repro(self, found: Repro) -> Answer:
        kept = f"{len(found.nodes)} of {found.of} nodes ({', '.join(found.nodes[:8])})"
        if not found.nodes:
            kept = f"module {found.module}, one of {found.of}" if found.module else "nothing smaller than the model"
        if (found.of > 1 and len(found.nodes) == found.of) or not (found.nodes or found.module):
            kept += ": no part of it fails in the same way"
        text = (
            f"{self._cell.name}: {found.symptom['stage']} {found.symptom['error_class']}: {found.symptom['message']}\n"
            f"reduced to {kept}\n{found.command}"
        )
        return Answer(True, text, {**asdict(found), "folder": str(found.folder)})


def main(request_path: Path, answer_path: Path) -> None:
    """Answers the request in a file; where that cannot be done, the sentence why is in a file beside the answer's."""
    request = msgspec.msgpack.decode(request_path.read_bytes(), type=Request)
    try:
        with tempfile.TemporaryDirectory(prefix="batch_export_") as scratch:
            answer_path.write_bytes(msgspec.json.encode(answer(request, Path(scratch))))
    except BatchExportError as error:
        refusal_file(answer_path).write_text(str(error), encoding="utf-8")
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
