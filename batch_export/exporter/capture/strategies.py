"""The ways in which a module is captured, and what each of them took for granted about the data.

Arrives: a module, its example inputs and torch's form of the dynamic shapes. Leaves: torch's exported program, or
torch's error. The last two strategies may assume what holds for the example inputs only; `assumed` says what.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import linecache
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._guards import detect_fake_mode
from torch._logging import structured as torch_reports
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.jit._trace import TracerWarning
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture import needless_switches, torchscript, transforms
from batch_export.exporter.capture.assigned_buffers import assigned_buffers
from batch_export.exporter.capture.both_ways import captured_both_ways
from batch_export.exporter.capture.calls_without_numbers import note_line
from batch_export.exporter.capture.draft import draft_export
from batch_export.exporter.capture.guard_sources import OWN_SOURCES, is_users
from batch_export.exporter.capture.kept_state import trace_undone
from batch_export.exporter.capture.started_threads import threads_told
from batch_export.exporter.capture.undecided_kinds import refuse_undecided_kinds
from batch_export.exporter.capture.unfaithful import refuse_unfaithful
from batch_export.exporter.capture.unwritten_code import code_unwritten, write_code
from batch_export.exporter.capture.written_constants import UnfollowedWriteError, assigns_data, made_elsewhere

NON_STRICT, STRICT, BOTH_WAYS, DRAFT, TRACE = (
    "torch.export(strict=False)",
    "torch.export(strict=True)",
    "torch.export(strict=False), decisions both ways",
    "draft_export",
    "torch.jit.trace",
)
ASSUMING = frozenset({DRAFT, TRACE})
"""Strategies whose programs may hold for the example inputs only."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something about the data that a captured program takes for granted.

    Attributes:
        condition: what holds at the example inputs.
        source: `file:line` in the model, empty when it is not known.
        next_step: what can be done where it does not hold; empty where whoever refuses it says that.
        sizes: the sizes that it goes by, where it goes by nothing else.
    """

    condition: str
    source: str = ""
    next_step: str = ""
    sizes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line, with the place."""
        return f"{self.condition} (at {self.source})" if self.source else self.condition


@contextlib.contextmanager
def _graphs_unprinted() -> Iterator[None]:
    """Within, torch prints no graph of a capture that fails: the error says what did, and another capture may follow.

    NOTE: it prints hundreds of lines on the standard error stream (2.13), which goes by no log level.
    """
    with patch.object(importlib.import_module("torch.export._trace"), "print", lambda *_, **__: None, create=True):
        yield


def _torch_export(strict: bool) -> Callable[..., torch.export.ExportedProgram]:
    @threads_told()
    def run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any) -> Any:
        try:
            with (
                transforms.own_levels(),
                needless_switches.left_out(),
                assigned_buffers(),
                _fake_constants_returned(),
                contextlib.nullcontext() if strict else code_unwritten(),
                _graphs_unprinted(),
            ):
                program = torch.export.export(module, args, kwargs=kwargs or None, dynamic_shapes=form, strict=strict)
            if strict:
                refuse_undecided_kinds(program)
            write_code(program)
        except Exception as error:
            if not transforms.failed_in_transform(error):
                raise
            return _below_dispatcher(module, args, kwargs, form)
        missing = None
        if not transforms.has_transforms(program):  # a constant of a transform has no content either
            missing = None if assigns_data(program) else made_elsewhere(program)
            has_numbers = detect_fake_mode(pytree.tree_leaves((args, kwargs))) is None
            if not transforms.holds_example(program) and (missing is None or not has_numbers):
                return program
        if missing is not None or transforms.holds_example(program):
            return _made_within(missing, module, args, kwargs, form)
        return transforms.resolved(program) or _below_dispatcher(module, args, kwargs, form)

    return run


def _made_within(
    missing: UnfollowedWriteError | None,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    form: object,
) -> object:
    """The model below torch's dispatcher, where derivatives are made of operators that are seen.

    Args:
        missing: the error for a tensor that torch's own way did not see made; the program is compared with the model.
        module: the model.
        args: positional inputs.
        kwargs: keyword inputs.
        form: torch's form of the dynamic shapes.

    Raises:
        UnfollowedWriteError: that fails, or some tensor is not made within the program there either.
    """
    try:
        made: Any = _below_dispatcher(module, args, kwargs, form)
    except Exception as error:
        if missing is None:
            raise
        raise missing from error
    if missing is not None:
        if (still := made_elsewhere(made)) is not None:
            raise still
        note_line(missing.source)
    return made


def _fake_constants_returned() -> contextlib.AbstractContextManager[object]:
    """Within, torch returns a program with constants that have no content, whose lines it does not tell itself."""
    config: Any = torch._export.config
    if not hasattr(config, "error_on_lifted_constant_tensors"):
        return contextlib.nullcontext()
    made: contextlib.AbstractContextManager[object] = config.patch(error_on_lifted_constant_tensors=False)
    return made


def _below_dispatcher(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], form: object
) -> object:
    with transforms.own_levels():
        return transforms.below_dispatcher(module, args, kwargs, form)


def _jit_trace(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any) -> object:
    named = shapes.bind_names(module, args, kwargs)
    inputs = _spread(module, named)
    with _tracer_warnings() as noted, trace_undone(module, inputs):  # torch runs the model as it is
        traced = torch.jit.trace(module, inputs, strict=False, check_trace=False)
    eager = torchscript.as_eager(traced, inputs, {})
    free = None if form is None else _spread(module, form)
    program = _torch_export(strict=False)(eager, inputs, {}, free)
    program._tracer_assumptions = noted  # type: ignore[attr-defined]
    return program


def _spread(module: torch.nn.Module, named: Mapping[str, Any]) -> tuple[Any, ...]:
    """What parameters of forward have, by position: each of those that `*inputs` gathers for itself."""
    parameters = inspect.signature(module.forward).parameters
    gathering = {name for name, one in parameters.items() if one.kind is inspect.Parameter.VAR_POSITIONAL}
    parts = ((value if name in gathering else (value,)) for name, value in named.items())
    return tuple(itertools.chain.from_iterable(parts))


@contextlib.contextmanager
def _tracer_warnings() -> Iterator[list[Assumption]]:
    """What torch.jit.trace warns of: places where a tensor's value became a Python object."""
    noted: list[Assumption] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", TracerWarning)
        yield noted
    for one in heard:
        if issubclass(one.category, TracerWarning) and "incorrect" in str(one.message):
            noted.append(Assumption(_quoted(one.filename, one.lineno), f"{one.filename}:{one.lineno}"))
    noted[:] = dict.fromkeys(noted)


STRATEGIES: tuple[tuple[str, Callable[..., object]], ...] = (
    (NON_STRICT, _torch_export(strict=False)),
    (STRICT, _torch_export(strict=True)),
    (BOTH_WAYS, captured_both_ways(_torch_export(strict=False), refuse_unfaithful)),
    (DRAFT, draft_export),
    (TRACE, _jit_trace),
)
"""In the documented order; an exported program is taken as it is before any of them."""


def assumed(strategy: str, program: torch.export.ExportedProgram, decision: Assumption | None) -> list[Assumption]:
    """What a program that a strategy captured takes for granted about the data.

    Args:
        strategy: which one it was.
        program: what it captured.
        decision: the decision by data that the first strategy failed at, if it did.
    """
    if strategy == TRACE:
        return list(getattr(program, "_tracer_assumptions", ())) or ([decision] if decision is not None else [])
    report = getattr(program, "_report", None)
    if strategy != DRAFT or report is None or report.successful():
        return []
    files = {**_interned(), **report.str_to_filename}
    failures = [failure for failure in report.failures if not _is_guard_on_sizes(failure)]
    found = list(dict.fromkeys(_of_failure(failure, files) for failure in failures))
    if not found and decision is None:
        return []
    return found if decision is None or any(one.source for one in found) else [decision]


def line_of_guard(program: torch.export.ExportedProgram) -> str:
    """The model's line (`file:line`) of the first guard on sizes in a report; empty where none is known."""
    report = getattr(program, "_report", None)
    if report is None:
        return ""
    failures = [one for one in report.failures if _is_guard_on_sizes(one)]
    files = {**_interned(), **report.str_to_filename}
    return next((found.source for one in failures if (found := _of_failure(one, files)).source), "")


def _interned() -> dict[int, str]:
    """The numbers by which torch's reports name files: a report itself has those alone that are new to the process."""
    table: Mapping[str, int] = getattr(torch_reports, "INTERN_TABLE", {})
    return {number: file for file, number in table.items()}


def _is_guard_on_sizes(failure: Any) -> bool:
    """Whether torch reports a guard on sizes of inputs, which is judged like those of any other program."""
    told: dict[str, Any] = failure.data or {}
    symbols = set(_SYMBOL.findall(str(told.get("expr"))))
    sources: dict[str, Any] = told.get("symbol_to_sources") or {}
    are_sizes = all(".size()[" in str(sources.get(symbol)) for symbol in symbols)
    return failure.failure_type.name == "GUARD_ADDED" and bool(symbols) and are_sizes


_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


def _of_failure(failure: Any, files: Mapping[int, str]) -> Assumption:
    told: dict[str, Any] = failure.data or {}
    kind = str(failure.failure_type.name).lower().replace("_", " ")
    expression = str(told.get("expr") or told.get("op") or kind)
    frames = list(told.get("user_stack") or told.get("stack") or ())
    for frame in (*reversed(frames), *reversed(told.get("stack") or ())):
        file, line = files.get(frame["filename"], ""), int(frame["line"])
        if file and is_users(file):
            return Assumption(f"{_quoted(file, line)}: `{expression}`", f"{file}:{line}")
    others = [one for one in frames if not files.get(one["filename"], "").startswith(OWN_SOURCES)]
    text = str(others[-1].get("loc") or "") if others else ""
    return Assumption(f"what `{text}` finds: `{expression}`" if text else f"{kind}: `{expression}`")


def _quoted(file: str, line: int) -> str:
    return f"what `{linecache.getline(file, line).strip() or '?'}` finds"


def decision_on_data(error: BaseException | None) -> Assumption | None:
    """The decision by data that a capture failed at; None if it failed of something else.

    An operator that answers with a number of Python (`torch.equal`) makes one as well, of which a trace says nothing.
    """
    seen = error
    while seen is not None and not isinstance(seen, (GuardOnDataDependentSymNode, DataDependentOutputException)):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    frames = [one for one in traceback.extract_tb(seen.__traceback__) if is_users(one.filename)]
    if not frames:
        return Assumption(f"`{seen.func if isinstance(seen, DataDependentOutputException) else seen.cond}`")
    last = frames[-1]
    return Assumption(_quoted(last.filename, last.lineno or 0), f"{last.filename}:{last.lineno}")
