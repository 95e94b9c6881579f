"""What the developers of a runtime need: a file of few nodes, its inputs and outputs, and a script without us.

A finding and the file that it is about arrive; a folder leaves, and an answer that says whether the script in it fails
in the runtime's environment, since it was run there.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch

from batch_export.errors import UsageError
from batch_export.exporter.diagnostics.failing_part import Part, failing_part
from batch_export.exporter.diagnostics.localise import Finding, feeds_of
from batch_export.exporter.diagnostics.slices import SlicedFile
from batch_export.exporter.program.program import ONNXProgram
from batch_export.numbers.tolerances import default_tolerance
from batch_export.numbers.values import RawTensor, Value, dtype_name
from batch_export.runtime import scripts
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.runtime.worker.session import interpreter
from batch_export.stages.follow_up_request import Answer

_SCRIPTS = Path(scripts.__file__).parent
_LARGEST_WHOLE = 1 << 30
"""Bytes of weights that are written into the file itself."""
_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """A report about one finding.

    Attributes:
        title: the cell's name.
        provider: where it fails.
        finding: the first wrong node.
    """

    title: str
    provider: ProviderSpec
    finding: Finding

    def written(
        self, path: Path, exported: torch.export.ExportedProgram, kwargs: Mapping[str, Any], folder: Path
    ) -> Answer:
        """Writes the report.

        Args:
            path: the file that fails.
            exported: the program that it was made from.
            kwargs: the model's inputs where it fails.
            folder: where the report goes; what is there is replaced.
        """
        kind = runtime(self.provider.kind)
        if not kind.script:
            raise UsageError(
                f"{kind.called} brings no script for a report. Next step: `repro {self.title}` without --for, or give "
                "its Runtime a `script`"
            )
        if self.finding.blame == "rounding":
            return Answer(False, f"{self.title}: {self.finding.reason}, so there is no part to report")
        part = self._part(path, exported, kwargs)
        if part is None:
            return Answer(
                False,
                f"{self.title}: {self.finding.sentence()}\n"
                f"no other runtime of this environment is right there, so there is nothing to report to {kind.called}",
            )
        unknown = [name for name, value in {**part.inputs, **part.outputs}.items() if not _is_plain(value)]
        if unknown:
            return Answer(
                False,
                f"{self.title}: {part.problem}\nnumpy has no dtype for {', '.join(unknown)}, so that a script needs "
                f"this project. Next step: `repro {self.title}` without --for",
            )
        command = self._write(folder, part, kind)
        return self._tried(folder, part, kind, command)

    def _part(self, path: Path, exported: torch.export.ExportedProgram, kwargs: Mapping[str, Any]) -> Part | None:
        feeds = feeds_of(ONNXProgram(ir.load(path), exported), (), kwargs)
        with tempfile.TemporaryDirectory(prefix="batch_export_") as scratch:
            file = SlicedFile(path, Path(scratch))
            found = self.finding
            return failing_part(file, found.onnx_nodes, found.value, found.error, feeds, self.provider)

    def _write(self, folder: Path, part: Part, kind: Runtime) -> str:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        onnx.save_model(
            part.model, str(folder / "model.onnx"), save_as_external_data=part.model.ByteSize() > _LARGEST_WHOLE
        )
        tolerances = [default_tolerance(dtype_name(value)) for value in part.outputs.values()]
        case = {
            "title": self.title,
            "runtime": kind.called,
            "settings": {
                "library": kind.library,
                "execution_provider": self.provider.execution_provider,
                "options": self.provider.options,
                "graph_optimization": self.provider.graph_optimization,
            },
            "rtol": max((one.rtol for one in tolerances), default=0.0),
            "atol": max((one.atol for one in tolerances), default=0.0),
            "inputs": [_entry(name, value) for name, value in part.inputs.items()],
            "outputs": [_entry(name, value) for name, value in part.outputs.items()],
        }
        (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
        if kind.language == "node":
            shutil.copyfile(kind.script, folder / "again.cjs")
            return f"node {folder / 'again.cjs'}"
        shutil.copyfile(kind.script, folder / "runtime.py")
        shutil.copyfile(_SCRIPTS / "again.py", folder / "again.py")
        return f"python {folder / 'again.py'}"

    def _tried(self, folder: Path, part: Part, kind: Runtime, command: str) -> Answer:
        program, variables = interpreter(self.provider, kind)
        script = "again.cjs" if kind.language == "node" else "again.py"
        try:
            done = subprocess.run(
                [*program, str(folder / script)],
                env=variables,
                capture_output=True,
                text=True,
                check=False,
                timeout=_LIMIT_S,
            )
            code, said = done.returncode, (done.stdout + done.stderr).strip()
        except subprocess.TimeoutExpired:
            code, said = 1, f"not done after {_LIMIT_S:g} s"
        told = next((line for line in said.splitlines() if line.startswith(("fails: ", "wrong: "))), part.problem)
        nodes = [f"{node.op_type} {node.name}".strip() for node in part.model.graph.node]
        how = {0: "does not fail there", 1: "fails there as well"}.get(code, f"ended with exit code {code}")
        (folder / "README.md").write_text(_readme(self, part, kind, nodes, told), encoding="utf-8")
        shown = ", ".join(nodes[:8]) + (", ..." if len(nodes) > 8 else "")
        text = (
            f"{self.title}: {told}\n{len(nodes)} node{'s' * (len(nodes) != 1)}: {shown}\n"
            f"the script was run in {self.provider.name}'s environment and {how}\n{command}"
        )
        facts = {"folder": str(folder), "nodes": nodes, "problem": part.problem, "exit_code": code, "said": said}
        return Answer(code != 0, text, facts)


def _entry(name: str, value: Value) -> dict[str, Any]:
    array = np.asarray(value)
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    data = base64.b64encode(little.tobytes()).decode("ascii")
    return {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def _is_plain(value: Value) -> bool:
    return not isinstance(value, RawTensor) and np.asarray(value).dtype.kind in "biufc"


def _readme(report: RuntimeReport, part: Part, kind: Runtime, nodes: list[str], told: str) -> str:
    requirements = list(report.provider.env) or [f"{name}=={_version(name)}" for name in kind.packages]
    quoted = " ".join(f"'{one}'" for one in requirements)
    install, start = (
        ("npm install", "node again.cjs") if kind.language == "node" else ("pip install", "python again.py")
    )
    opsets = ", ".join(f"{one.domain or 'ai.onnx'} {one.version}" for one in part.model.opset_import)
    listed = "\n".join(f"- {node}" for node in nodes[:50])
    return (
        f"# {kind.called}: {told.partition(': ')[2]}\n\n"
        f"`model.onnx` ({opsets}) has {len(nodes)} node{'s' * (len(nodes) != 1)}:\n\n{listed}\n\n"
        f"What it should give is in `case.json`, as {part.trusted} and eager PyTorch compute it.\n\n"
        f"    {install} {quoted}\n    {start}\n\nprinted `{told}`.\n"
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "?"
