"""One try at a failure: export, load, run and compare. What a repro's script does in its child, and what reduces it.

`python -m batch_export.exporter.repro.attempt FOLDER [--verbose]` prints the symptom as JSON, or `BROKEN`.
A subject (module or exported program), inputs and a case (as in `case.json`) arrive; a symptom leaves, or None where
nothing is wrong. Files are written where `keep` says, nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.api import export
from batch_export.exporter.graph.tensor_values import to_value
from batch_export.exporter.repro.script import BROKEN, READY, Symptom
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.values import Value
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import tensors
from batch_export.runtime.worker.failures import WorkerRefusedError
from batch_export.words import error_line

Subject = torch.nn.Module | torch.export.ExportedProgram
"""What is exported."""


def symptom_in(folder: Path, case: Mapping[str, Any], *, verbose: bool = False) -> Symptom | None:
    """Loads what is in the folder, and tries; prints `READY` before."""
    sys.path.insert(0, str(folder))
    sys.path.extend(root for root in case.get("roots", ()) if root not in sys.path)
    values = torch.load(folder / "values.pt", weights_only=False)
    if case["subject"] == "program":
        subject: Subject = torch.export.load(folder / "subject.pt2")
    else:
        subject = torch.load(folder / "subject.pt", weights_only=False)
    print(READY, flush=True)
    with contextlib.redirect_stdout(sys.stderr):
        return symptom_of(subject, values["args"], values["kwargs"], case, values["expected"], verbose=verbose)


def symptom_of(
    subject: Subject,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    case: Mapping[str, Any],
    expected: Sequence[torch.Tensor] | None,
    *,
    keep: Path | None = None,
    actual: list[Value] | None = None,
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
    exporter = _exporter(case)
    with tempfile.TemporaryDirectory(prefix="batch_export_") as scratch:
        path = keep or Path(scratch) / "model.onnx"
        try:
            exporter(subject, args, kwargs, path)
        except (Exception, SystemExit) as error:
            return _failed(error, getattr(error, "stage", "translate"), verbose)
        provider = ProviderSpec(**case["provider"])
        try:
            session = open_session(path, provider)
        except Exception as error:
            return _failed(error.__cause__ or error, "load", verbose)
        try:
            given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            feeds = dict(zip(session.input_names, map(_as_input, given), strict=False))
            outputs = tensors(session.output_names, session.run(feeds))
        except Exception as error:
            return _failed(error, "run", verbose)
        finally:
            session.close()
    if actual is not None:
        actual.extend(outputs)
    return _mismatch(session.output_names, expected or (), outputs, case)


def _exporter(case: Mapping[str, Any]) -> Callable[[Subject, tuple[object, ...], dict[str, object], Path], None]:
    """Returns the exporter that the case names; one that cannot be imported is no failure of what is exported.

    Raises:
        ImportError, AttributeError: there is no such module or function here.
    """
    target, opset = case["exporter"]["target"], case["opset"]
    options: dict[str, Any] = case["exporter"]["arguments"]
    if not target:
        return lambda subject, args, kwargs, path: export(
            subject, args, kwargs=kwargs, opset_version=opset, **options
        ).save(path)
    module, _, name = target.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    unnamed: dict[str, Any] = {"dynamic_shapes": None, "input_names": None, "output_names": None}

    def plugged(subject: Subject, args: tuple[object, ...], kwargs: dict[str, object], path: Path) -> None:
        live = subject.module() if isinstance(subject, torch.export.ExportedProgram) else subject
        function(live, args, kwargs, path=path, opset_version=opset, **unnamed, **options)

    return plugged


def _as_input(tensor: torch.Tensor) -> Value:
    return to_value(torch.view_as_real(tensor) if tensor.is_complex() else tensor)


def _failed(error: BaseException, stage: str, verbose: bool) -> Symptom:
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    return {
        "stage": "memory" if isinstance(error, MemoryError) else stage,
        "error_class": error.error_class if isinstance(error, WorkerRefusedError) else type(error).__name__,
        "operator": getattr(error, "operator", None) or "",
        "message": error_line(error),
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


def answer(tried: Callable[..., Symptom | None]) -> None:
    """Tries the case in the folder that the command line names, and prints the symptom as JSON, or `BROKEN`."""
    folder = Path(sys.argv[1]).resolve()
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    try:
        symptom = tried(folder, case, verbose="--verbose" in sys.argv[2:])
    except BaseException:
        print(BROKEN, flush=True)
        raise
    print(json.dumps(symptom), flush=True)


if __name__ == "__main__":
    answer(symptom_in)
