"""One trial: a captured program beside its model at some inputs.

Arrives: a program, the model and inputs. Leaves: whether the model takes these inputs, and what the program makes of
them. Inputs and the model's state stay as they are, and both see the same random numbers.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from batch_export.errors import VerificationError
from batch_export.exporter.capture.checked_states import StatesChecked
from batch_export.exporter.capture.endless import EndlessError, loops_bounded
from batch_export.exporter.capture.grad_modes import recording
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import RunsUndone, run_undone
from batch_export.exporter.capture.one_thread import one_thread_if_small
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.rewritten_code import as_written
from batch_export.exporter.capture.same_numbers import seed_all
from batch_export.exporter.capture.unwritten_memory import where_unwritten
from batch_export.exporter.graph.agreement import proves_nothing, require_one
from batch_export.exporter.graph.tensor_values import to_value
from batch_export.numbers.compare import compare

_UNSOLVABLE: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
"""What is said of a matrix that is not positive definite, or singular."""
NO_TENSOR = "it gives no tensor"
"""Why a trial is none where all that the model returns is None."""
UNWRITTEN = "the model reads memory there that nobody has written to"
_ROUNDING = 200.0
"""Roundings of an output's largest number by which program and model may differ: sums in another order."""
_TIMES = 20.0
"""How many times as far apart as at the example they may be elsewhere."""


class Outcome(enum.Enum):
    """What came of a trial."""

    REFUSED = "the model itself takes no such inputs"
    UNSOLVED = "the model takes no such numbers, of a matrix for example"
    AGREES = "program and model give the same"
    FAILS = "the program fails, and the model does not"
    DIFFERS = "the program gives something else than the model"
    SHAPES = "they give the same, and values on the way have other shapes than the program shows"
    UNTRIED = "a run would take too much memory or time"
    NOTHING = "no number is finite, the model does not end or reads what nobody wrote, so that nothing is proven"


@dataclass(frozen=True, slots=True)
class Trial:
    """An outcome.

    Attributes:
        outcome: what came of it.
        problem: how program and model differ or why the model refused, in words.
        is_of_sizes: whether the model refuses these sizes whatever the numbers are.
    """

    outcome: Outcome
    problem: str = ""
    is_of_sizes: bool = False


def uncompiled() -> contextlib.AbstractContextManager[object]:
    """Within, what a model has compiled runs as it was written: compiled code reads fake tensors as real ones."""
    made: contextlib.AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return made


def is_fake(module: torch.nn.Module, args: object, kwargs: object) -> bool:
    """Whether weights or inputs have no numbers to run with."""
    tensors = [*module.state_dict().values(), *pytree.tree_leaves((args, kwargs))]
    return any(isinstance(tensor, FakeTensor) for tensor in tensors)


def tried(
    program: torch.nn.Module,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    noise: Callable[[], float] | None = None,
    undone: tuple[RunsUndone, RunsUndone] | None = None,
) -> Trial:
    """Runs both at some inputs.

    Both run the same operators of torch, so that they differ by little more than nothing; a tolerance for files would
    hide what a model with small numbers does otherwise there.

    Args:
        program: the captured program as a module, `ExportedProgram.module(check_guards=False)`.
        module: the model.
        args: positional inputs.
        kwargs: keyword inputs.
        noise: how far apart they are where they do the same, as `apart` says it; without it that is not asked for.
        undone: the program's and the model's, where they run several times in turn.
    """
    kept = _shared_state(program, module)
    of_program, of_model = (None, None) if undone is None else undone
    try:
        expected = _run(module, module, args, kwargs, of_model, state=kept)
    except EndlessError as error:  # whether the model takes these inputs, nobody knows
        return Trial(Outcome.NOTHING, str(error))
    except _UNSOLVABLE as error:
        return Trial(Outcome.UNSOLVED, str(error))
    except Exception as error:
        return Trial(Outcome.REFUSED, f"{type(error).__name__}: {error}")
    if len(expected) == len(kept):  # a branch that returns None: there is nothing that a file could give
        return Trial(Outcome.REFUSED, NO_TENSOR)
    try:
        with quiet():  # not by a call of the module: that checks ranges first, and prints what fails
            actual = _run(program, program.forward, args, kwargs, of_program, state=kept)
    except EndlessError as error:
        return Trial(Outcome.NOTHING, str(error))
    except Exception as error:
        lines = str(error).strip().splitlines()
        return Trial(Outcome.FAILS, f"it fails: {type(error).__name__}: {lines[0] if lines else ''}")
    found = _compared(expected, actual, noise)
    if found.outcome is not Outcome.DIFFERS or len(expected) != len(actual):
        return found
    unwritten = where_unwritten(expected, lambda: _run(module, module, args, kwargs, of_model, state=kept))
    alike = zip(expected, actual, strict=True)
    if unwritten is None or any((one.shape, one.dtype) != (other.shape, other.dtype) for one, other in alike):
        return found
    if all(bool(one.all()) for one in unwritten):
        return Trial(Outcome.NOTHING, UNWRITTEN)
    written = zip(unwritten, expected, actual, strict=True)
    return _compared(expected, [torch.where(hangs, one, other) for hangs, one, other in written], noise)


def _compared(
    expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor], noise: Callable[[], float] | None
) -> Trial:
    if len(expected) != len(actual):
        return Trial(Outcome.DIFFERS, f"it has {len(actual)} outputs in place of {len(expected)}")
    facts = [
        compare(str(index), to_value(one), to_value(other))
        for index, (one, other) in enumerate(zip(expected, actual, strict=True))
    ]
    try:
        for one in facts:
            if not proves_nothing(one):
                require_one(one)
    except VerificationError as error:
        return Trial(Outcome.DIFFERS, error.problem)
    if any(map(proves_nothing, facts)):
        return Trial(Outcome.NOTHING)
    for index, (result, given) in enumerate(zip(expected, actual, strict=True)):
        found = 0.0 if noise is None else _apart(result, given)
        if noise is not None and found > _ROUNDING and found > _TIMES * noise():
            return Trial(Outcome.DIFFERS, f"output {index} differs by {found:.3g} roundings of its largest number")
    return Trial(Outcome.AGREES)


def apart(
    program: torch.nn.Module, module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> float:
    """How far apart the numbers of both are at inputs that both take, in roundings of an output's largest number."""
    pairs = zip(_run(module, module, args, kwargs), _run(program, program.forward, args, kwargs), strict=True)
    return max((_apart(one, other) for one, other in pairs), default=0.0)


def share_apart(
    program: torch.nn.Module, module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> float:
    """How far apart the numbers of both are at inputs that both take, as a share of an output's largest number.

    It is infinite where shapes, dtypes or whole numbers are others.
    """
    found = 0.0
    for one, other in zip(
        _run(module, module, args, kwargs), _run(program, program.forward, args, kwargs), strict=True
    ):
        is_number = one.is_floating_point() or one.is_complex()
        if one.shape != other.shape or one.dtype != other.dtype or (not is_number and not torch.equal(one, other)):
            return math.inf
        found = max(found, _apart(one, other) * torch.finfo(one.dtype).eps) if is_number else found
    return found


def _apart(expected: torch.Tensor, actual: torch.Tensor) -> float:
    is_number = expected.is_floating_point() or expected.is_complex()
    if not is_number or expected.shape != actual.shape or expected.dtype != actual.dtype or expected.is_sparse:
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    one, other = expected.to(wide), actual.to(wide)
    finite = torch.isfinite(one) & torch.isfinite(other)
    if not bool(finite.any()):
        return 0.0
    largest = float(torch.maximum(one[finite].abs().max(), other[finite].abs().max()))
    difference = float((one[finite] - other[finite]).abs().max())
    return difference / largest / torch.finfo(expected.dtype).eps if largest else 0.0


def _run(
    module: torch.nn.Module,
    call: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    undone: RunsUndone | None = None,
    state: list[str] | None = None,
) -> list[torch.Tensor]:
    """What a module gives, numbers as tensors, on copies of its inputs and its state, with the same random numbers.

    Behind that some of its buffers as they are then, without those in whose place there is another tensor, which are
    taken from their names.
    """
    given, keywords = copy.deepcopy((args, dict(kwargs)))
    back = run_undone(module) if undone is None else undone.run()
    buffers = dict(module.named_buffers()) if state else {}
    own, threads = as_written(), one_thread_if_small(module, (args, kwargs))
    with (
        threads,
        own,
        back,
        settings_kept(),
        recording(module),
        loops_bounded(module),
        uncompiled(),
        StatesChecked(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # at sizes that nobody gave
        seed_all()
        result = call(*given, **keywords)
        found = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, (torch.Tensor, int, float))]
        if state:
            now = dict(module.named_buffers())
            state[:] = [name for name in state if now.get(name) is buffers[name]]
            found += [buffers[name] for name in state]
        return [_held(leaf) for leaf in found]


_STATE = 2**20
"""The most elements of a buffer that is compared behind a run."""


def _shared_state(program: torch.nn.Module, module: torch.nn.Module) -> list[str]:
    """The buffers that both have, and that are not too large."""
    own = {name: one for name, one in program.named_buffers() if one.numel() <= _STATE and one.layout is torch.strided}
    return [name for name, one in module.named_buffers() if name in own and own[name].shape == one.shape]


def _held(leaf: torch.Tensor | int | float) -> torch.Tensor:
    """A result as it is now: a tensor may be state, a number is often a size."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


def outputs(
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    undone: RunsUndone | None = None,
) -> list[torch.Tensor]:
    """The tensors that the model gives, which stays as it is, with the same random numbers of torch each time.

    Args:
        module: the model.
        args: positional inputs.
        kwargs: keyword inputs.
        undone: the model's, where it runs several times in turn.
    """
    return _run(module, module, args, kwargs, undone)


def results_and_inputs(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[torch.Tensor]:
    """The tensors that the model gives, and after them its inputs as it leaves them.

    Args:
        module: the model, which stays as it is.
        args: positional inputs, which stay as they are.
        kwargs: keyword inputs.
    """

    def call(*given: Any, **keywords: Any) -> tuple[object, ...]:
        return module(*given, **keywords), given, keywords

    return _run(module, call, args, kwargs)


def difference(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor] | None) -> str:
    """How what a model gives differs from what was expected, in words; empty where it does not, or gives nothing."""
    if actual is None:
        return ""
    if len(expected) != len(actual):
        return f"it has {len(actual)} outputs in place of {len(expected)}"
    try:
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            facts = compare(str(index), to_value(one), to_value(other))
            if not proves_nothing(facts):
                require_one(facts)
    except VerificationError as error:
        return error.problem
    return ""


def accepts(module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether the model runs at some inputs."""
    try:
        _run(module, module, args, kwargs)
    except Exception:
        return False
    return True
