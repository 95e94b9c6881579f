"""The smallest thing that still fails in the same way, as a folder with a script of its own.

A module (or exported program), inputs and how it fails arrive; a folder leaves: `repro.py` (exits 1 while the bug
lives, 0 once it is fixed), `case.json`, the reduced subject, its inputs, expected and actual values, and the reduced
ONNX file where the export gets that far. Capture errors are narrowed down to a submodule, everything else to nodes of
the exported program. Crashes and endless loops are tried in processes of their own. The module leaves as it came.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.calling.fast_paths import without_fast_paths
from batch_export.exporter.diagnostics.eager_values import EagerValues
from batch_export.exporter.repro import attempt as repro_attempt
from batch_export.exporter.repro import script, subgraph
from batch_export.exporter.repro.attempt import Subject
from batch_export.exporter.repro.script import ENDED, Symptom, same_symptom
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, Tolerance
from batch_export.numbers.values import Value
from batch_export.runtime.provider_spec import ProviderSpec

_MOST_TRIES = 60
_MOST_TRIES_IN_CHILD = 12
CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which circumstances something fails.

    Attributes:
        title: what fails, for people, e.g. a cell's name.
        opset: the opset asked for.
        exporter: dotted name of a plug-in exporter; empty for our own.
        arguments: keyword arguments of the exporter.
        provider: where the file is run.
        tolerances: by dtype name.
        timeout_s: when an attempt counts as an endless loop.
        memory_bytes: private memory that an attempt in a process of its own may add to what its imports take; 0: any.
        roots: folders that the script imports the model and a plug-in exporter from.
    """

    title: str
    opset: int
    exporter: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    provider: ProviderSpec = CPU
    tolerances: Mapping[str, Tolerance] = field(default_factory=lambda: DEFAULT_TOLERANCES)
    timeout_s: float = 120.0
    memory_bytes: int = 0
    roots: tuple[str, ...] = ()

    def case(self) -> dict[str, object]:
        """As `case.json` has it."""
        return {
            "title": self.title,
            "opset": self.opset,
            "exporter": {"target": self.exporter, "arguments": dict(self.arguments)},
            "provider": asdict(self.provider),
            "tolerances": {name: [entry.atol, entry.rtol] for name, entry in self.tolerances.items()},
            "timeout_s": self.timeout_s,
            "memory_bytes": self.memory_bytes,
            "roots": list(self.roots),
        }


@dataclass(frozen=True, slots=True)
class Repro:
    """What was written.

    Attributes:
        folder: where.
        symptom: how the reduced subject fails.
        nodes: FX nodes of the reduced program, in order; empty for a module.
        module: path of the submodule that fails to be captured; empty for a program.
        of: how many nodes (or modules) there were.
    """

    folder: Path
    symptom: Symptom
    nodes: tuple[str, ...]
    module: str
    of: int

    @property
    def command(self) -> str:
        """How to try again."""
        return f"python {self.folder / 'repro.py'}"


def write_repro(
    folder: Path,
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[object, ...],
    kwargs: Mapping[str, object] | None,
    setting: Setting,
    *,
    wanted: Symptom | None = None,
    near: Sequence[str] = (),
    program: torch.export.ExportedProgram | None = None,
    capture_fails: bool = False,
    stages: Sequence[str] = (),
) -> Repro | None:
    """Reduces a failure and writes the folder; None if it does not fail here.

    Args:
        folder: made afresh; what is in it is removed.
        model: what fails.
        args: positional inputs at which it fails.
        kwargs: keyword inputs.
        setting: circumstances.
        wanted: how it fails, if that is known; needed for crashes, timeouts and too much memory, which must not be
            tried in this process.
        near: FX nodes that are suspected, tried first.
        program: the exported program, if capture worked.
        capture_fails: whether it is capture that must not be tried in this process.
        stages: in which of them it may fail, where `wanted` does not say how; empty: in any.
    """
    keywords = dict(kwargs or {})
    attempt = _Attempt(setting, stages, in_child=wanted is not None and wanted["stage"] in ENDED)
    if program is None and isinstance(model, torch.export.ExportedProgram):
        program = model
    if capture_fails:
        return _module_repro(folder, model, args, keywords, attempt, wanted)
    if program is None:
        try:
            with torch.no_grad(), without_fast_paths(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                live: Any = model
                program = torch.export.export(live, args, keywords or None, strict=False)
        except Exception:
            return _module_repro(folder, model, args, keywords, attempt, wanted)
    found = _program_repro(folder, program, args, keywords, attempt, wanted, near)
    if found is None and isinstance(model, torch.nn.Module) and attempt.in_child:
        # What the program no longer knows may matter to a plug-in exporter: classes, attributes, hooks.
        return _module_repro(folder, model, args, keywords, attempt, wanted)
    return found


class _Attempt:
    """Tries a subject, in this process or in one of its own."""

    def __init__(self, setting: Setting, stages: Sequence[str], *, in_child: bool) -> None:
        self.setting = setting
        self.stages = stages
        self.in_child = in_child
        self.most = _MOST_TRIES_IN_CHILD if in_child else _MOST_TRIES

    def refuted(self, symptom: Symptom, wanted: Symptom | None) -> bool:
        """Whether a try has shown another failure than the one looked for."""
        if wanted is not None:
            return not same_symptom(symptom, wanted)
        return bool(self.stages) and symptom["stage"] not in self.stages

    def __call__(
        self,
        subject: Subject,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        expected: Sequence[torch.Tensor] | None,
    ) -> Symptom | None:
        if not self.in_child:
            return repro_attempt.symptom_of(subject, args, kwargs, self.setting.case(), expected)
        with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
            _write(Path(folder), subject, args, kwargs, self.setting, expected, {})
            with contextlib.suppress(RuntimeError):  # an attempt that shows nothing is not the failure looked for
                return script.in_child(Path(folder), self.setting.case())
        return None


def _program_repro(
    folder: Path,
    program: torch.export.ExportedProgram,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    attempt: _Attempt,
    wanted: Symptom | None,
    near: Sequence[str],
) -> Repro | None:
    eager = EagerValues(program, args, kwargs)
    nodes = subgraph.call_nodes(program)
    parts: dict[tuple[str, ...], tuple[torch.export.ExportedProgram, subgraph.Part, Symptom] | None] = {}

    def fails(names: Sequence[str]) -> bool:
        key = tuple(names)
        if key not in parts:
            parts[key] = _tried(eager, names, attempt, wanted)
        return parts[key] is not None

    if wanted is None:
        # How the whole fails is what every part is held to: a part may well fail for a reason of its own.
        found = _tried(eager, nodes, attempt, None)
        parts[tuple(nodes)] = found
        wanted = found[2] if found is not None else None
    start = next(_starts(program, nodes, near, fails), None) if wanted is not None else None
    if start is None:
        return _whole(folder, program, eager, attempt, wanted, len(nodes))
    smallest = subgraph.reduce(start, fails, attempt.most)
    result = parts[tuple(smallest)]
    assert result is not None
    subject, part, symptom = result
    _write(folder, subject, part.args, {}, attempt.setting, part.expected, symptom, attempt.in_child)
    return Repro(folder, symptom, part.nodes, "", len(nodes))


def _whole(
    folder: Path,
    program: torch.export.ExportedProgram,
    eager: EagerValues,
    attempt: _Attempt,
    wanted: Symptom | None,
    count: int,
) -> Repro | None:
    """The program as it is, its free axes included: what fails only while they are free cannot be cut into parts."""
    values = eager.tensors(eager.output_names)
    expected = [torch.as_tensor(values[name]) for name in eager.output_names]
    symptom = attempt(program, eager.args, eager.kwargs, expected)
    if symptom is None or attempt.refuted(symptom, wanted):
        return None
    _write(folder, program, eager.args, eager.kwargs, attempt.setting, expected, symptom, attempt.in_child)
    return Repro(folder, symptom, tuple(subgraph.call_nodes(program)), "", count)


def _starts(
    program: torch.export.ExportedProgram,
    nodes: Sequence[str],
    near: Sequence[str],
    fails: Callable[[Sequence[str]], bool],
) -> Iterator[list[str]]:
    """Yields a part that fails: the suspects, then more and more of what comes before them, then everything."""
    known = [name for name in near if name in nodes]
    if known:
        if fails(known):
            yield known
        for distance in (1, 2, 4, 8, 16):
            some = subgraph.before(program, known[-1], distance)
            if fails(some):
                yield some
    if fails(nodes):
        yield list(nodes)


def _tried(
    eager: EagerValues, names: Sequence[str], attempt: _Attempt, wanted: Symptom | None
) -> tuple[torch.export.ExportedProgram, subgraph.Part, Symptom] | None:
    try:
        part = subgraph.cut(eager, names)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subject = torch.export.export(part.module, part.args, strict=False)
    except Exception:  # a part that is no program of its own cannot fail in the same way
        return None
    symptom = attempt(subject, part.args, {}, part.expected)
    if symptom is None or attempt.refuted(symptom, wanted):
        return None
    return subject, part, symptom


def _module_repro(
    folder: Path,
    model: Subject,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    attempt: _Attempt,
    wanted: Symptom | None,
) -> Repro | None:
    symptom = attempt(model, args, kwargs, None)
    if symptom is None or attempt.refuted(symptom, wanted):
        return None
    path, subject, given, keywords, symptom = smallest_module(model, args, kwargs, attempt, symptom)
    _write(folder, subject, given, keywords, attempt.setting, None, symptom, attempt.in_child)
    count = sum(1 for _ in model.modules()) if isinstance(model, torch.nn.Module) else 1
    return Repro(folder, symptom, (), path, count)


def smallest_module(
    model: Subject,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    attempt: Callable[[Subject, tuple[object, ...], dict[str, object], None], Symptom | None],
    symptom: Symptom,
) -> tuple[str, Subject, tuple[object, ...], dict[str, object], Symptom]:
    """Goes down into the submodule that fails in the same way by itself, as deep as there is one.

    Returns:
        Its path, itself, its inputs in an eager run, and how it fails.
    """
    path = ""
    while isinstance(model, torch.nn.Module):
        inputs = _inputs_of_children(model, args, kwargs)
        for name, child in model.named_children():
            if name not in inputs:
                continue
            found = attempt(child, *inputs[name], None)
            if found is not None and same_symptom(found, symptom):
                path = f"{path}.{name}" if path else name
                model, (args, kwargs), symptom = child, inputs[name], found
                break
        else:
            break
    return path, model, args, kwargs, symptom


def _inputs_of_children(
    model: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> dict[str, tuple[tuple[object, ...], dict[str, object]]]:
    """Inputs of the first call of each child in an eager run."""
    seen: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, given: tuple[object, ...], keywords: dict[str, object]) -> None:
            seen.setdefault(name, pytree.tree_map(_copied, (given, keywords)))

        return hook

    handles = [child.register_forward_pre_hook(note(name), with_kwargs=True) for name, child in model.named_children()]
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        # A model may fail in eager as well; the children that were called before that still have inputs.
        with torch.no_grad(), contextlib.suppress(Exception):
            model(*pytree.tree_map(_copied, args), **pytree.tree_map(_copied, kwargs))
    finally:
        for handle in handles:
            handle.remove()
        model.load_state_dict(state, strict=False)
    return seen


def _write(
    folder: Path,
    subject: Subject,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    setting: Setting,
    expected: Sequence[torch.Tensor] | None,
    symptom: Symptom,
    in_child: bool = True,
) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    kind = "program" if isinstance(subject, torch.export.ExportedProgram) else "module"
    case = setting.case() | {"subject": kind, "symptom": symptom}
    values: dict[str, object] = {"args": args, "kwargs": kwargs, "expected": expected}
    if not in_child:  # what crashes must not run here
        actual: list[Value] = []
        repro_attempt.symptom_of(
            subject, args, kwargs, setting.case(), expected, keep=folder / "model.onnx", actual=actual
        )
        values["actual"] = actual
    (folder / "case.json").write_text(json.dumps(case, indent=2), encoding="utf-8")
    torch.save(values, folder / "values.pt")
    if isinstance(subject, torch.export.ExportedProgram):
        torch.export.save(subject, folder / "subject.pt2")
    else:
        torch.save(subject, folder / "subject.pt")
    shutil.copyfile(Path(script.__file__), folder / "repro.py")


def _copied(value: object) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
