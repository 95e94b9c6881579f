"""One capture from one example: strategies in order, and the first program that may be given to the caller.

Arrives: a module, the inputs to capture from, and what was asked for. Leaves: the program with its guards, which were
tried, or the error of the first strategy that says something. Other examples are `course.py`'s business.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.errors import CaptureError, DynamicShapeError, Place
from batch_export.exporter.capture import assumptions, named_loops
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.array_numbers import array_numbers
from batch_export.exporter.capture.assertions import assertions_on_data
from batch_export.exporter.capture.calls_without_numbers import calls_noted
from batch_export.exporter.capture.captured import Attempt, Captured
from batch_export.exporter.capture.data_functions import data_functions
from batch_export.exporter.capture.decided_by_sizes import by_sizes
from batch_export.exporter.capture.failures import not_captured, refused, unfollowed
from batch_export.exporter.capture.finished import Called, GuardMode, finished
from batch_export.exporter.capture.free_lengths import free_lengths
from batch_export.exporter.capture.free_scans import free_scans
from batch_export.exporter.capture.guard_sources import Observation, observing
from batch_export.exporter.capture.guard_trials import Trials
from batch_export.exporter.capture.identities import answers_identified
from batch_export.exporter.capture.keyed_sizes import sizes_as_keys
from batch_export.exporter.capture.kinds import eager_kinds
from batch_export.exporter.capture.known_constants import known_constants
from batch_export.exporter.capture.memory_overlap import overlap_without_guards
from batch_export.exporter.capture.one_run import run_strategy
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.python_numbers import python_numbers
from batch_export.exporter.capture.refusals import fixed_axis, fixes_fewer
from batch_export.exporter.capture.refused_again import Refused
from batch_export.exporter.capture.rounds_found import has_rounds
from batch_export.exporter.capture.same_names import one_size_per_name
from batch_export.exporter.capture.scalar_indices import scalar_indices
from batch_export.exporter.capture.size_oblivious import hangs_on_zero, size_oblivious
from batch_export.exporter.capture.strategies import (
    ASSUMING,
    BOTH_WAYS,
    DRAFT,
    NON_STRICT,
    STRICT,
    TRACE,
    assumed,
    decision_on_data,
    line_of_guard,
)
from batch_export.exporter.capture.taken_sizes import TakenSize, taken_size
from batch_export.exporter.capture.texts import texts_noted
from batch_export.exporter.capture.whole_numbers import is_followed, whole_numbers
from batch_export.exporter.capture.whole_slices import sides_of_places
from batch_export.exporter.capture.written_constants import written_constant
from batch_export.words import class_and_line

Strategies = Sequence[tuple[str, Callable[..., object]]]


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asked for.

    Attributes:
        module: the model.
        given: its example inputs, by position and by name.
        asked: which axes are to be free.
        guards: what becomes of a program that holds for some sizes only.
        allow_assumptions: whether it may take something about the data for granted.
        not_held: sizes of the axes at which a program captured so far was seen not to do what the model does.
        refused: programs captured so far that were refused.
        taken: sizes that captures so far took as numbers.
        decided_at: the lines at which captures so far took a side on sizes.
        untried: gets a captured program before its guards are tried; what it raises ends the capture.
    """

    module: torch.nn.Module
    given: Inputs
    asked: shapes.DynamicShapes
    guards: GuardMode
    allow_assumptions: bool
    not_held: list[dict[str, int]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    taken: list[TakenSize] = field(default_factory=list)
    decided_at: set[str] = field(default_factory=set)
    untried: Callable[[Captured], None] | None = None


def by_strategies(request: Request, inputs: Inputs, strategies: Strategies) -> Captured:
    """The first strategy's program that may be given to the caller.

    Args:
        request: what was asked for.
        inputs: the inputs to capture from, the given ones or others like them.
        strategies: what to try, in order.

    Raises:
        CaptureError: if every strategy failed.
        DynamicShapeError: if the program fixes an axis asked for, or does not hold for sizes that the model has.
    """
    with calls_noted() as calls:
        return _by_strategies(request, inputs, strategies, calls)


def _by_strategies(request: Request, inputs: Inputs, strategies: Strategies, calls: Sequence[str]) -> Captured:
    module, asked, allow_assumptions = request.module, request.asked, request.allow_assumptions
    args, kwargs = inputs
    attempts: list[Attempt] = []
    held: _Held | None = None
    strictly: CaptureError | None = None
    environment: ShapeEnv | None = None
    for name, strategy in strategies:
        if held is not None and name != STRICT:
            break
        decision = decision_on_data(attempts[0].exception) if attempts else None
        decision = by_sizes(
            decision, attempts[0].exception if attempts else None, environment, asked.axes, asked.aliases
        )
        if name == BOTH_WAYS and attempts and (decision is None or allow_assumptions):
            continue
        if name == STRICT and decision is not None and decision.sizes:
            continue  # dynamo takes a number that Python computes of sizes as it is in the example
        if name in ASSUMING and decision is not None and not allow_assumptions:
            raise strictly or assumptions.refused([decision], attempts) from attempts[0].exception
        begun = time.perf_counter()
        with observing() as seen, texts_noted() as texts:
            try:
                program, is_oblivious = _by(name, strategy, request, inputs, seen)
                request.decided_at.update(seen.places)
            except Exception as error:
                request.decided_at.update(seen.places)
                attempts.append(_failed(name, time.perf_counter() - begun, error))
                environment = environment or seen.environment
                if (refusal := refused(error)) is not None and (name != STRICT or decision is None):
                    raise refusal from error
                strictly = strictly or refusal  # both ways may do better
                fixed = fixed_axis(error, seen, asked)
                if fixed is not None and held is None:
                    held = _Held(None, fixed)
                    if not seen.is_freer_strictly:
                        number = taken_size(seen.environment, asked.axes, asked.aliases)
                        request.taken.extend([] if number is None else [number])
                        break
                continue
        attempts.append(Attempt(name, time.perf_counter() - begun))
        taken = assumed(name, program, decision) if name in ASSUMING else []
        if taken and not allow_assumptions:
            raise assumptions.refused(taken, attempts)
        try:
            called = Called(
                *(module, inputs, request.given, not is_oblivious, request.not_held, request.refused, request.untried)
            )
            captured = finished(program, asked, list(attempts), request.guards, called, texts.sizes)
            captured.blocks = getattr(program, "_blocks", [])
            captured.seeded = getattr(program, "_seeded", [])
        except DynamicShapeError as error:
            if name == DRAFT and error.source is None and (line := line_of_guard(program)):
                error.located_at(Place("", "", line))
            if name == TRACE and held is None and attempts[0].error:
                raise not_captured(attempts, trace="holds for the sizes of the example only") from attempts[0].exception
            if held is not None and not _holds_beside(held.captured, request, inputs):
                raise
            held = held or _Held(None, error)
            if not seen.is_freer_strictly:
                break
            continue
        if held is not None and not captured.is_freer_than(held.captured):
            break
        is_bound = captured.narrowed(asked) or captured.holds_numbers()
        if name == NON_STRICT and seen.made_plain and is_bound and len(strategies) > 1:
            held = _Held(captured)
            continue
        captured.both_ways = getattr(program, "_both_ways", [])
        captured.raising = getattr(program, "_raising", [])
        if name in ASSUMING:
            captured.assumptions = taken
            try:
                assumptions.check(name, program, module, args, kwargs, captured.assumptions)
            except CaptureError as error:
                is_plain = name == TRACE and not taken and bool(attempts[0].error)
                told = not_captured(attempts, trace="is not the model") if is_plain else unfollowed(attempts)
                raise told or error from attempts[0].exception
            return captured
        if (asserted := assumptions.of_assertions(program)) is not None:
            assumptions.check_assertion(name, program, module, args, kwargs, asserted)
        if passed := [*captured.both_ways, *captured.raising, *getattr(program, "_works_on_nothing", [])]:
            decisions, elsewhere = captured.both_ways or passed, assumptions.some_sizes(captured, args, kwargs)
            assumptions.check_both_ways(program, module, args, kwargs, decisions, elsewhere)
        elif (written := written_constant(program)) is not None:
            assumptions.check_assertion(name, program, module, args, kwargs, assumptions.of_reading(written))
        elif texts.data:
            assumptions.check_assertion(name, program, module, args, kwargs, assumptions.of_text(texts.data))
        elif calls:
            try:
                taken_so, sizes = assumptions.of_call(calls[0]), assumptions.some_sizes(captured, args, kwargs)
                elsewhere = itertools.chain(sizes, assumptions.sizes_named(captured, args, kwargs, calls))
                assumptions.check_assertion(name, program, module, args, kwargs, taken_so, elsewhere)
            except CaptureError as error:
                raise unfollowed(attempts) or error from attempts[0].exception
        elif seen.compared:
            taken_so, sizes = assumptions.of_identity(seen.compared[0]), assumptions.some_sizes(captured, args, kwargs)
            assumptions.check_assertion(name, program, module, args, kwargs, taken_so, itertools.islice(sizes, 2))
        if name in (NON_STRICT, BOTH_WAYS) and not passed and has_rounds(program):
            sizes = assumptions.some_sizes(captured, args, kwargs)
            assumptions.check_rounds(program, module, args, kwargs, itertools.islice(sizes, 1))
        return captured
    if held is not None:
        return held.result()
    raise not_captured(attempts) from attempts[0].exception


def _holds_beside(captured: Captured | None, request: Request, inputs: Inputs) -> bool:
    """Whether a program with constants for what Python's `int()` made of sizes is right where a second one was not.

    The second program keeps the decisions that the first one took with these constants, of which no guard tells.
    """
    if captured is None or captured.symbols is None or not captured.holds_numbers():
        return True
    return Trials(captured.traced, captured.symbols, request.module, *inputs).holds_at(request.not_held)


def _by(
    name: str, strategy: Callable[..., Any], request: Request, inputs: Inputs, seen: Observation
) -> tuple[torch.export.ExportedProgram, bool]:
    """One strategy's program, and whether torch took no side on sizes of 0 and 1."""
    try:
        with sides_of_places(are_taken=False) as any_asked:
            return _taking(name, strategy, request, inputs, seen)
    except Exception as error:
        if name not in (NON_STRICT, BOTH_WAYS):
            raise
        if any_asked() and "data-dependent" in str(error):
            with contextlib.suppress(Exception), sides_of_places(are_taken=True):
                return _taking(name, strategy, request, inputs, seen)
        if hangs_on_zero(error):
            with contextlib.suppress(Exception):
                return _taking(name, strategy, request, inputs, seen, may_be_zero=False)
        raise


def _taking(
    name: str,
    strategy: Callable[..., Any],
    request: Request,
    inputs: Inputs,
    seen: Observation,
    *,
    may_be_zero: bool = True,
) -> tuple[torch.export.ExportedProgram, bool]:
    is_first, asked = name in (NON_STRICT, BOTH_WAYS), request.asked
    sides = contextlib.nullcontext(False) if name in ASSUMING else size_oblivious(may_be_zero=may_be_zero)
    with_lengths = is_first and (bool(asked.axes) or name == BOTH_WAYS)
    lengths = free_lengths(request.module) if with_lengths else contextlib.nullcontext()
    scans = free_scans() if is_first and asked.axes else contextlib.nullcontext()
    checks = assertions_on_data() if is_first else contextlib.nullcontext()
    data = data_functions(with_free_forms=not with_lengths) if is_first else contextlib.nullcontext()
    arrays = array_numbers() if is_first else contextlib.nullcontext()
    kinds = eager_kinds(request.module) if is_first else contextlib.nullcontext()
    keys = sizes_as_keys() if is_first and asked.axes else contextlib.nullcontext()
    answers = answers_identified(request.module, is_asked=name not in ASSUMING)
    names = one_size_per_name(asked) if is_first else contextlib.nullcontext()
    ways = (lengths, scans, checks, data, arrays, kinds, keys, names)
    with contextlib.ExitStack() as opened:
        is_oblivious = opened.enter_context(sides)
        seen.compared = opened.enter_context(answers)
        for way in (*ways, known_constants(), scalar_indices(), overlap_without_guards(), python_numbers()):
            opened.enter_context(way)
        if not is_first:
            return run_strategy(name, strategy, request.module, inputs, asked.torch_form), is_oblivious
        numbers: list[object] = []

        def run() -> torch.export.ExportedProgram:
            nonlocal numbers
            loops = whole_numbers(
                request.module, with_lengths=name == BOTH_WAYS, are_free=bool(asked.axes), over_names=over_names
            )
            with loops as numbers:
                return run_strategy(name, strategy, request.module, inputs, asked.torch_form)

        over_names: set[named_loops.Place] = set()
        try:
            return named_loops.known(run, over_names), is_oblivious
        except Exception as error:
            if not is_followed(numbers):
                raise
            followed, environment = error, seen.environment
        try:
            return run_strategy(name, strategy, request.module, inputs, asked.torch_form), is_oblivious
        except Exception as error:
            if not fixes_fewer((followed, environment), (error, seen.environment), asked):
                raise
            seen.environment = environment
            raise followed from followed.__cause__


@dataclass(slots=True)
class _Held:
    """A first result that a second strategy may beat: dynamo keeps sizes free that Python's `int()` makes numbers."""

    captured: Captured | None
    error: DynamicShapeError | None = None

    def result(self) -> Captured:
        if self.captured is not None:
            return self.captured
        assert self.error is not None
        raise self.error


def _failed(strategy: str, seconds: float, error: Exception) -> Attempt:
    return Attempt(strategy, seconds, class_and_line(error), error)
