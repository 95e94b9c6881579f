"""After a run: where a failing cell goes wrong first, and the smallest thing that fails as it does.

A request (one JSON file) arrives; an answer (another) leaves, and for `repro` a folder with a script. Runs in a process
of its own: `python -m batch_export.stages.after REQUEST ANSWER`. Stored files are only read; what the store does not
hold (exported programs) is captured again.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from batch_export import axes
from batch_export.errors import OnnxExporterError
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture import capture
from batch_export.exporter.diagnostics.localise import Finding, localise_file
from batch_export.exporter.diagnostics.repro import Repro, Setting, smallest_module, write_repro
from batch_export.exporter.diagnostics.repro_script import Symptom
from batch_export.exporter.program import ONNXProgram
from batch_export.spec import CORE_EXPORTER_TARGET
from batch_export.stages import capture as capture_stage
from batch_export.stages import plugin
from batch_export.stages.after_request import Answer, Request
from batch_export.stages.workbench import Workbench
from batch_export.tolerances import DEFAULT_TOLERANCES

_NUMBERS = ("load", "run", "mismatch", "dynamic")
_PROCESS = ("crash", "timeout", "memory")
_ELSEWHERE = ("model", "environment")


def answer(request: Request, scratch: Path) -> Answer:
    """Answers a request; `scratch` is an existing, empty folder."""
    planned = request.planned
    bench = Workbench(planned.model, planned.cell.dynamic, planned.exporter, scratch)
    stage = request.record.stage
    if stage in _ELSEWHERE:
        words = f"{planned.cell.name} failed before the export, in stage {stage}: {request.record.message}"
        return Answer(False, words)
    after = _After(request, bench, scratch)
    return after.bisect() if request.question == "bisect" else after.repro()


class _After:
    """One failing cell, built again."""

    def __init__(self, request: Request, bench: Workbench, scratch: Path) -> None:
        self._request = request
        self._bench = bench
        self._scratch = scratch
        self._cell = request.planned.cell
        self._is_core = request.planned.exporter.target == CORE_EXPORTER_TARGET
        self._kwargs = bench.inputs(request.sizes, request.variant)

    def bisect(self) -> Answer:
        """Names the first wrong node, or the module or operator that stops the export."""
        stage = self._request.record.stage
        if stage in _PROCESS:
            found = self._reduced(())
            return self._told_repro(found) if found else Answer(False, f"{self._cell.name} does not {stage} again")
        refused = self._refusal()
        if refused is not None:
            return refused
        if stage not in _NUMBERS:
            return Answer(True, f"{self._cell.name}: {self._request.record.message}", {"stage": stage})
        finding = self._finding()
        if finding is None:
            return Answer(False, f"{self._cell.name}: the file agrees with eager here; run the sweep again")
        return Answer(True, f"{self._cell.name}: {finding.sentence()}", msgspec.to_builtins(finding))

    def repro(self) -> Answer:
        """Writes the smallest thing that fails in the same way."""
        near: tuple[str, ...] = ()
        stage = self._request.record.stage
        if stage in _NUMBERS:
            finding = self._finding()
            near = (finding.fx_node,) if finding is not None else ()
        elif self._request.record.failure is not None and self._request.record.failure.node:
            near = (self._request.record.failure.node,)
        found = self._reduced(near)
        if found is None:
            return Answer(False, f"{self._cell.name} does not fail in the same way when it is exported alone")
        return self._told_repro(found)

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
        output = plugin.execute(self._bench, self._cell.opset)
        if output.model is None:
            raise OnnxExporterError(
                f"{self._cell.name} was not exported this time: {output.failure and output.failure.message}",
                next_step="run the sweep again",
            )
        return output.model.onnx

    def _refusal(self) -> Answer | None:
        """Says where capture or translation stops, if it does."""
        try:
            self._captured()
            if self._is_core:
                to_onnx(self._bench.captured, self._cell.opset, **self._request.planned.exporter.arguments)
        except OnnxExporterError as error:
            if self._bench.captured is None:
                return self._unfit_module(error)
            facts = {"node": error.node, "operator": error.operator, "source": error.source}
            return Answer(True, f"{self._cell.name}: {error}", facts)
        return None

    def _unfit_module(self, error: OnnxExporterError) -> Answer:
        def attempt(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], expected: None) -> Symptom | None:
            try:
                capture(module, args, kwargs)
            except OnnxExporterError as other:
                name = type(other).__name__
                return {"stage": other.stage, "error_class": name, "operator": "", "message": other.problem}
            return None

        symptom = {"stage": error.stage, "error_class": type(error).__name__, "operator": "", "message": str(error)}
        path, module, _, _, found = smallest_module(self._bench.module, (), self._kwargs, attempt, symptom)
        text = (
            f"{self._cell.name}: the smallest module that cannot be captured is {path or 'the model itself'!r} "
            f"({type(module).__qualname__}): {found['message']}"
        )
        return Answer(True, text, {"module": path, "class": type(module).__qualname__, "message": found["message"]})

    def _reduced(self, near: tuple[str, ...]) -> Repro | None:
        request, planned = self._request, self._request.planned
        record = request.record
        setting = Setting(
            title=self._cell.name,
            opset=self._cell.opset,
            exporter="" if self._is_core else planned.exporter.target,
            arguments=planned.exporter.arguments,
            provider=planned.provider,
            tolerances={**DEFAULT_TOLERANCES, **request.tolerances},
            timeout_s=request.timeout_s,
        )
        wanted: Symptom | None = None
        if record.stage in _PROCESS:
            wanted = {"stage": record.stage, "error_class": record.error_class, "operator": "", "message": ""}
        program = self._bench.captured.program if self._bench.captured is not None else None
        return write_repro(
            Path(request.folder),
            self._bench.module,
            (),
            self._kwargs,
            setting,
            wanted=wanted,
            near=near,
            program=program,
        )

    def _told_repro(self, found: Repro) -> Answer:
        kept = f"{len(found.nodes)} of {found.of} nodes ({', '.join(found.nodes[:8])})"
        if not found.nodes:
            kept = f"module {found.module or 'the model itself'}, one of {found.of}"
        text = (
            f"{self._cell.name}: {found.symptom['stage']} {found.symptom['error_class']}: {found.symptom['message']}\n"
            f"reduced to {kept}\n{found.command}"
        )
        return Answer(True, text, {**asdict(found), "folder": str(found.folder)})


def main(request_path: Path, answer_path: Path) -> None:
    """Answers the request in a file."""
    request = msgspec.json.decode(request_path.read_bytes(), type=Request)
    with tempfile.TemporaryDirectory(prefix="batch_export_") as scratch:
        answer_path.write_bytes(msgspec.json.encode(answer(request, Path(scratch))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
