"""A model's code that asks whether it is being captured: what it does then may be something else than what eager does.

Arrives: nothing; a context is opened round a capture. Leaves: the lines at which the model was told that it is
captured. Whether that decides what it gives is found by runs of the model itself at the example inputs and at other
sizes, some of which are told the same. `torch.onnx.is_in_onnx_export` is left alone: who asks that wants another
model in the file.
"""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError, ExportWarning
from batch_export.exporter.capture.guard_sources import is_users, users_frames
from batch_export.exporter.capture.kept_state import RunsUndone
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.trial import difference, is_fake, outputs

_IS_COMPILING: Any = torch.compiler.is_compiling
_IS_EXPORTING: Any = getattr(torch.compiler, "is_exporting", _IS_COMPILING)
_OWN: Mapping[str, Callable[[], bool]] = {
    "is_compiling": types.FunctionType(_IS_COMPILING.__code__, _IS_COMPILING.__globals__),
    "is_exporting": types.FunctionType(_IS_EXPORTING.__code__, _IS_EXPORTING.__globals__),
}

_LARGE = 1 << 28
"""Bytes of weights from which on two runs of a model would cost too much of an export: `verify=True` compares."""

_LARGER = 16
"""How many times the example's elements other inputs may have."""
_NOTED: ContextVar[dict[str, str] | None] = ContextVar("_NOTED", default=None)
_TOLD_SO: ContextVar[frozenset[str]] = ContextVar("_TOLD_SO", default=frozenset())
"""Lines that are told that the model is captured, whether it is or not."""


@contextlib.contextmanager
def traced_questions() -> Iterator[dict[str, str]]:
    """Gives a dict that has, in the end, lines of the model (`file:line`) -> the function of torch that answered yes.

    NOTE: while it is open, these functions of torch have another code, however the model imported them.
    """
    noted: dict[str, str] = {}
    before = _NOTED.set(noted)
    try:
        with _answered_here():
            yield noted
    finally:
        _NOTED.reset(before)


def is_asked_here() -> bool:
    """Whether a line of the model that is running was told that it is captured: there the model is compared so."""
    noted = _NOTED.get() or {}
    return any(f"{file}:{line}" in noted for file, line in users_frames())


def refuse_other_answers(
    noted: Mapping[str, str],
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    only_warns: bool,
    elsewhere: Iterable[tuple[str, Inputs]] = (),
) -> None:
    """Runs a model as it is, and once more told that it is captured.

    Args:
        noted: what `traced_questions` gave.
        module: the model.
        args: positional example inputs.
        kwargs: keyword example inputs.
        only_warns: whether a difference is a warning.
        elsewhere: inputs of other sizes that the program's guards allow, and the sizes in words.

    Raises:
        CaptureError: the two differ.
    """
    if not noted or is_fake(module, args, kwargs) or _bytes(module) > _LARGE:
        return
    undone = RunsUndone(module)
    if _compared("the example inputs", noted, module, (args, dict(kwargs)), undone, only_warns=only_warns):
        return
    most = _LARGER * max(1, _elements((args, dict(kwargs))))
    others = [one for one in elsewhere if _elements(one[1]) <= most]
    for sizes, inputs in sorted(others, key=lambda one: -_elements(one[1])):
        try:
            _compared(f"other sizes ({sizes})", noted, module, inputs, undone, only_warns=only_warns)
        except (CaptureError, ExportWarning):  # a warning, where the user has it as an error
            raise
        except Exception:  # the model takes no such sizes
            continue
        return


def _compared(
    where: str,
    noted: Mapping[str, str],
    module: torch.nn.Module,
    inputs: Inputs,
    undone: RunsUndone,
    *,
    only_warns: bool,
) -> bool:
    """Tells of a difference at some inputs, and whether there is one."""
    expected = outputs(module, *inputs, undone)
    problem = difference(expected, _told_so(noted, module, *inputs, undone))
    if problem:
        alone = (one for one in noted if difference(expected, _told_so({one}, module, *inputs, undone)))
        _say(f"at {where} {problem}", noted, next(alone, next(iter(noted))), only_warns=only_warns)
    return bool(problem)


def _elements(inputs: Inputs) -> int:
    return sum(leaf.numel() for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor))


def _say(problem: str, noted: Mapping[str, str], line: str, *, only_warns: bool) -> None:
    refusal = CaptureError(
        f"the model gives something else where it is captured than in eager: {problem}; it asks "
        f"`torch.compiler.{noted[line]}()`",
        source=line,
        next_step="have the model do the same either way, or take what it does in a capture with guards='allow'",
    )
    if not only_warns:
        raise refusal
    warnings.warn(str(refusal), ExportWarning, stacklevel=5)


def _bytes(module: torch.nn.Module) -> int:
    return sum(one.numel() * one.element_size() for one in module.parameters())


def _told_so(
    lines: Collection[str],
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    undone: RunsUndone,
) -> list[torch.Tensor] | None:
    """What a model gives when these lines are told that it is captured; None where that does not run in eager."""
    before = _TOLD_SO.set(frozenset(lines))
    try:
        with _answered_here():
            return outputs(module, args, kwargs, undone)
    except Exception:  # such as code that only fake tensors take
        return None
    finally:
        _TOLD_SO.reset(before)


def _answered(name: str) -> bool:
    """What one of torch's functions answers whoever called it."""
    answer = bool(_OWN[name]())
    noted, told = _NOTED.get(), _TOLD_SO.get()
    if told or (answer and noted is not None):
        line = _line(sys._getframe(2))
        if line and answer and noted is not None:
            noted.setdefault(line, name)
        return answer or line in told
    return answer


def _line(frame: types.FrameType | None) -> str:
    """`file:line` of the model's code that asked; where that is a question itself (`is_tracing`), of who asked it."""
    while frame is not None and frame.f_code.co_name in _OWN:
        frame = frame.f_back
    if frame is None or not is_users(frame.f_code.co_filename):
        return ""
    asker = frame
    while frame is not None and is_users(frame.f_code.co_filename):
        if not frame.f_code.co_name.startswith(("is_", "_is_")):
            asker = frame
            break
        frame = frame.f_back
    return f"{asker.f_code.co_filename}:{asker.f_lineno}"


def _is_compiling() -> bool:
    from batch_export.exporter.capture import traced_questions  # lazy: this code runs as a function of torch's

    return traced_questions._answered("is_compiling")


def _is_exporting() -> bool:
    from batch_export.exporter.capture import traced_questions  # lazy: this code runs as a function of torch's

    return traced_questions._answered("is_exporting")


@contextlib.contextmanager
def _answered_here() -> Iterator[None]:
    functions = (_IS_COMPILING, _IS_EXPORTING)
    before = [one.__code__ for one in functions]
    try:
        for function, code in zip(functions, (_is_compiling.__code__, _is_exporting.__code__), strict=True):
            function.__code__ = code
        yield
    finally:
        for function, code in zip(functions, before, strict=True):
            function.__code__ = code
