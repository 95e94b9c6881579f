"""Does the bug in this folder still live? Exits 1 while it does, 0 once it is fixed, 2 when it cannot be told.

Needs torch, onnxruntime and batch_export, and the files beside it: `case.json` (what fails and how), `subject.pt2` or
`subject.pt` (the smallest program or module that fails), `values.pt` (inputs, and the outputs that eager PyTorch
gives). Run it as `python repro.py`; `python repro.py --verbose` also prints the traceback. Nothing is written here.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.api import export
from batch_export.exporter.tensor_values import to_value
from batch_export.record import OutputFacts
from batch_export.runtime.compare import compare
from batch_export.runtime.session import open_session
from batch_export.runtime.values import Value
from batch_export.spec import ProviderSpec

Symptom = dict[str, Any]
"""How it fails: `stage`, `error_class`, `operator` (may be empty) and `message`."""
_INSIDE = "--inside"
_UNFIT = 2


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Tries again, and says what came of it."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    wanted: Symptom = case["symptom"]
    if _INSIDE in arguments:
        print(json.dumps(symptom_in(folder, case, verbose="--verbose" in arguments)))
        return 0
    try:
        found = in_child(folder, case, arguments)
    except RuntimeError as error:
        print(f"cannot tell: {error}")
        return _UNFIT
    if found is None:
        print(f"fixed: {case['title']}")
        return 0
    if not same_symptom(found, wanted):
        print(f"fails in another way than it did ({wanted['stage']} {wanted['error_class']}):")
    print(f"{found['stage']} {found['error_class']}: {found['message']}")
    return 1


def in_child(folder: Path, case: Mapping[str, Any], arguments: Sequence[str] = ()) -> Symptom | None:
    """Tries in a process of its own, so that a crash or an endless loop is an answer like any other."""
    command = [sys.executable, str(folder / "repro.py"), *arguments, _INSIDE]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=case["timeout_s"], check=False)
    except subprocess.TimeoutExpired:
        message = f"not done after {case['timeout_s']:g} s"
        return {"stage": "timeout", "error_class": "Timeout", "operator": "", "message": message}
    if done.returncode < 0:
        return {
            "stage": "crash",
            "error_class": "Crash",
            "operator": "",
            "message": f"the process was ended by signal {-done.returncode}",
        }
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"the attempt itself failed with exit code {done.returncode}; see the lines above")
    found: Symptom | None = json.loads(lines[-1])
    return found


def symptom_in(folder: Path, case: Mapping[str, Any], *, verbose: bool = False) -> Symptom | None:
    """Loads what is in the folder, and tries."""
    sys.path.insert(0, str(folder))
    values = torch.load(folder / "values.pt", weights_only=False)
    if case["subject"] == "program":
        subject: Any = torch.export.load(folder / "subject.pt2")
    else:
        subject = torch.load(folder / "subject.pt", weights_only=False)
    with contextlib.redirect_stdout(sys.stderr):
        return symptom_of(subject, values["args"], values["kwargs"], case, values["expected"], verbose=verbose)


def symptom_of(
    subject: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    case: Mapping[str, Any],
    expected: Sequence[torch.Tensor] | None,
    *,
    keep: Path | None = None,
    actual: list[Any] | None = None,
    verbose: bool = False,
) -> Symptom | None:
    """Exports, loads, runs and compares; returns how that fails, or None.

    Args:
        subject: a module or an exported program.
        args: positional inputs.
        kwargs: keyword inputs.
        case: opset, exporter, provider and tolerances, as in `case.json`.
        expected: eager's outputs; None when the export is not expected to get that far.
        keep: where the ONNX file is kept.
        actual: takes the outputs of the file.
        verbose: whether tracebacks are printed.
    """
    with tempfile.TemporaryDirectory(prefix="batch_export_") as scratch:
        path = keep or Path(scratch) / "model.onnx"
        try:
            _export(subject, args, kwargs, case, path)
        except Exception as error:
            return _failed(error, getattr(error, "stage", "translate"), verbose)
        provider = ProviderSpec(**case["provider"])
        try:
            session = open_session(path, provider)
        except Exception as error:
            return _failed(error.__cause__ or error, "load", verbose)
        try:
            tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            feeds = dict(zip(session.input_names, map(_as_input, tensors), strict=False))
            outputs = session.run(feeds)
        except Exception as error:
            return _failed(error, "run", verbose)
        finally:
            session.close()
    if actual is not None:
        actual.extend(outputs)
    return _mismatch(session.output_names, expected or (), outputs, case)


def same_symptom(one: Symptom, other: Symptom) -> bool:
    """Returns whether two failures look alike: stage and class, and the operator where both know it."""
    if (one["stage"], one["error_class"]) != (other["stage"], other["error_class"]):
        return one["stage"] == other["stage"] and one["stage"] in ("crash", "timeout", "memory")
    return not one["operator"] or not other["operator"] or one["operator"] == other["operator"]


def _export(subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any], case: Mapping[str, Any], path: Path) -> None:
    exporter = case["exporter"]
    if not exporter["target"]:
        program = export(subject, args, kwargs=kwargs, opset_version=case["opset"], **exporter["arguments"])
        program.save(path)
        return
    module, _, name = exporter["target"].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    live = subject.module() if isinstance(subject, torch.export.ExportedProgram) else subject
    function(
        live,
        args,
        kwargs,
        path=path,
        opset_version=case["opset"],
        dynamic_shapes=None,
        input_names=None,
        output_names=None,
        **exporter["arguments"],
    )


def _as_input(tensor: torch.Tensor) -> Value:
    return to_value(torch.view_as_real(tensor) if tensor.is_complex() else tensor)


def _failed(error: BaseException, stage: str, verbose: bool) -> Symptom:
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    lines = str(error).strip().splitlines()
    return {
        "stage": stage,
        "error_class": type(error).__name__,
        "operator": getattr(error, "operator", None) or "",
        "message": lines[0] if lines else "without a message",
    }


def _mismatch(
    names: Sequence[str], expected: Sequence[torch.Tensor], outputs: Sequence[Value], case: Mapping[str, Any]
) -> Symptom | None:
    if len(outputs) < len(expected):
        return _wrong("MissingOutput", f"{len(outputs)} outputs, and eager has {len(expected)}")
    for name, tensor, value in zip(names, expected, outputs, strict=False):
        facts = compare(name, to_value(tensor), value)
        problem = _problem(facts, case["tolerances"].get(facts.expected_dtype, [0.0, 0.0]))
        if problem is not None:
            return _wrong(problem[0], f"output {name}: {problem[1]}")
    return None


def _problem(facts: OutputFacts, tolerance: Sequence[float]) -> tuple[str, str] | None:
    if facts.actual_dtype != facts.expected_dtype:
        return "DtypeMismatch", f"is {facts.actual_dtype}, eager's is {facts.expected_dtype}"
    if facts.actual_shape != facts.expected_shape:
        return "ShapeMismatch", f"has shape {facts.actual_shape}, eager's {facts.expected_shape}"
    if facts.non_finite_mismatches:
        return "NonFiniteMismatch", f"{facts.non_finite_mismatches} elements are NaN or infinite on one side only"
    if facts.max_abs is None and facts.unequal:
        return "ValueMismatch", f"{facts.unequal} elements differ"
    if any(error > tolerance[0] + tolerance[1] * size for size, error in facts.hull):
        return "NumericMismatch", f"largest error {facts.max_abs:.3g} at {facts.worst_index}: {facts.worst_values}"
    return None


def _wrong(error_class: str, message: str) -> Symptom:
    return {"stage": "mismatch", "error_class": error_class, "operator": "", "message": message}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(Path(__file__).resolve().parent, sys.argv[1:]))
