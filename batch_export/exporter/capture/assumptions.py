"""Programs that were captured under assumptions about data: run against the model before anyone gets them.

Arrives: a program, the strategy that captured it, the model and its example inputs. Leaves: nothing when program and
model agree at the example inputs and at others of the same sizes; an error that names the inputs otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError, VerificationError
from batch_export.exporter.capture.other_inputs import other_values
from batch_export.exporter.capture.strategies import Assumption
from batch_export.exporter.graph.agreement import require_one
from batch_export.exporter.graph.tensor_values import to_value
from batch_export.numbers.compare import compare

_OTHERS = 8
"""Further inputs that a program is run at."""
_ADVICE = "compute with torch.where or torch.cond in place of Python's if, and with tensors in place of .item()"


def refused(assumptions: Sequence[Assumption], attempts: Sequence[object] = ()) -> CaptureError:
    """The error for a program that nobody said may take something for granted."""
    first = assumptions[0]
    more = "".join(f"; also {one.text}" for one in assumptions[1:3])
    return CaptureError(
        "the model could not be captured for all data: a data-dependent decision would stay as it is in the example: "
        f"{first.condition}{more}",
        attempts=tuple(attempts),
        source=first.source or None,
        next_step=f"{_ADVICE}, or pass allow_guards=True (allow_guards: true in the model's config) to keep what the "
        "example inputs decide, in the model's metadata",
    )


def check(
    strategy: str,
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    assumptions: Sequence[Assumption],
) -> None:
    """Runs program and model at the example inputs and at others.

    Raises:
        CaptureError: at the first inputs at which they differ, or when the model has no weights to run with.
    """
    because = f"; it took for granted {assumptions[0].condition}" if assumptions else ""
    source = assumptions[0].source if assumptions else None
    tensors = [*module.state_dict().values(), *pytree.tree_leaves((args, dict(kwargs)))]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        raise CaptureError(
            f"only {strategy} could capture the model, and what it captured cannot be checked without weights{because}",
            source=source or None,
            next_step="export the model with its weights",
        )
    candidates = [("the example inputs", (args, dict(kwargs)))]
    others = other_values(args, kwargs, _OTHERS)
    candidates += [(f"random inputs like the example's (number {turn})", one) for turn, one in enumerate(others, 1)]
    for where, (given, keywords) in candidates:
        problem = difference(program, module, given, keywords, is_example=given is args)
        if problem:
            raise CaptureError(
                f"the program that {strategy} captured is not the model: at {where} {problem}{because}",
                source=source or None,
                next_step=_ADVICE,
            )


def difference(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_example: bool,
) -> str:
    """How program and model differ at some inputs; empty when they do not, or when the model itself refuses them."""
    try:
        expected = _run(module, args, kwargs)
    except Exception as error:
        return f"the model itself fails: {type(error).__name__}: {error}" if is_example else ""
    try:
        actual = _run(program.module(check_guards=False), args, kwargs)
    except Exception as error:
        lines = str(error).strip().splitlines()
        return f"it fails: {type(error).__name__}: {lines[0] if lines else ''}"
    if len(expected) != len(actual):
        return f"it has {len(actual)} outputs in place of {len(expected)}"
    facts = [
        compare(str(index), to_value(one), to_value(other))
        for index, (one, other) in enumerate(zip(expected, actual, strict=True))
    ]
    try:
        for one in facts:
            require_one(one)
    except VerificationError as error:
        return error.problem
    return ""


def _run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a module gives, on copies of its inputs and of its state, with the same random numbers."""
    given, keywords = copy.deepcopy((args, kwargs))
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            result = module(*given, **keywords)
    finally:
        for name, buffer in module.named_buffers():
            if name in buffers:
                buffer.data = buffers[name]
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
