"""One run of one strategy: what torch does not follow by itself is followed meanwhile, and what it made is looked at.

Arrives: a strategy, a module and inputs. Leaves: the exported program, or torch's error, or that of a program which is
not the model. Where the first way meets a decision by data it is run once more with more known of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from batch_export.exporter.capture.alike_branches import alike_branches
from batch_export.exporter.capture.averaged_batches import averaged_batches
from batch_export.exporter.capture.cancelled_quotients import cancelled_quotients
from batch_export.exporter.capture.caught_failures import caught_failures
from batch_export.exporter.capture.causal_hints import causal_hints
from batch_export.exporter.capture.conversions import conversions
from batch_export.exporter.capture.decided_programs import decide
from batch_export.exporter.capture.drawn_numbers import draws_noted
from batch_export.exporter.capture.dropped_caches import caches_dropped
from batch_export.exporter.capture.fake_quantisation import fake_quantisation
from batch_export.exporter.capture.fresh_operators import fresh_operators
from batch_export.exporter.capture.general_sizes import general_sizes
from batch_export.exporter.capture.grad_modes import is_of_recording, record_for, recording
from batch_export.exporter.capture.hit_loops import Place, hit_loops
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.known_buffers import are_written, known_buffers
from batch_export.exporter.capture.known_constants import known_factories
from batch_export.exporter.capture.known_expressions import known_expressions
from batch_export.exporter.capture.numbers_of_sizes import numbers_of_sizes
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.outside_numbers import outside_noted
from batch_export.exporter.capture.packed_sequences import packed_sequences
from batch_export.exporter.capture.pooled_sizes import pooled_sizes
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.recurrent_shapes import recurrent_shapes
from batch_export.exporter.capture.remembered_expressions import remembered_expressions
from batch_export.exporter.capture.repeated_values import repeated_values
from batch_export.exporter.capture.seeded_numbers import seeded, seeds_noted
from batch_export.exporter.capture.settled_extremes import settled_extremes
from batch_export.exporter.capture.strategies import (
    BOTH_WAYS,
    NON_STRICT,
    STRICT,
    decision_on_data,
)
from batch_export.exporter.capture.swallowed import swallowed
from batch_export.exporter.capture.symbolic_products import symbolic_products
from batch_export.exporter.capture.symbolic_quotients import symbolic_quotients
from batch_export.exporter.capture.transforms import own_levels
from batch_export.exporter.capture.uncached_views import uncached_views
from batch_export.exporter.capture.unchecked_distributions import unchecked_distributions
from batch_export.exporter.capture.unfaithful import refuse_unfaithful
from batch_export.exporter.capture.unfit_outputs import refuse_nothing
from batch_export.exporter.capture.unsolved_equalities import unsolved_equalities
from batch_export.exporter.capture.whole_slices import whole_slices


@contextlib.contextmanager
def _followed() -> Iterator[None]:
    """Within, what torch does by itself has forms that a capture follows."""
    with contextlib.ExitStack() as stack:
        for form in (fake_quantisation, recurrent_shapes, packed_sequences, symbolic_products, symbolic_quotients):
            stack.enter_context(form())
        stack.enter_context(unchecked_distributions())
        stack.enter_context(averaged_batches())
        stack.enter_context(repeated_values())
        stack.enter_context(pooled_sizes())
        stack.enter_context(settled_extremes())
        stack.enter_context(whole_slices())
        stack.enter_context(uncached_views())
        yield


@contextlib.contextmanager
def _noted(module: torch.nn.Module, *, is_run: bool) -> Iterator[None]:
    """While open, what a file cannot follow is noted: random numbers that are drawn, numbers from elsewhere.

    Args:
        module: the model.
        is_run: whether its code is run: dynamo reads it, and knows functions by what they are.
    """
    outside = outside_noted(module) if is_run else contextlib.nullcontext()
    with draws_noted(), outside:
        yield


def _run(
    name: str,
    strategy: Callable[..., Any],
    module: torch.nn.Module,
    inputs: Inputs,
    form: Any,
    *,
    constants_are_known: bool = False,
) -> torch.export.ExportedProgram:
    args, kwargs = inputs
    is_plain = name in (NON_STRICT, BOTH_WAYS)
    general = general_sizes() if is_plain else contextlib.nullcontext(dict[str, None]())
    with (
        settings_kept(),
        _noted(module, is_run=name != STRICT),
        seeds_noted() as seeds,
        general as asked,
        _followed(),
        conversions(module),
        causal_hints(constants_are_known=constants_are_known),
        alike_branches(),
        fresh_operators(),
        known_expressions(),
        cancelled_quotients(),
        remembered_expressions(),
        unsolved_equalities(),
        recording(module),
        unset_fake_temporarily(),
        own_levels(),
        quiet(),
        caches_dropped(),
        caught_failures(),
        swallowed() as caught,
    ):
        program: torch.export.ExportedProgram = strategy(module, args, kwargs, form)
    if caught:
        raise caught[0]
    if asked:
        program._works_on_nothing = [*getattr(program, "_works_on_nothing", []), *asked]  # type: ignore[attr-defined]
    decide(program)
    refuse_nothing(program, module)
    refuse_unfaithful(program, module)
    program._seeded = seeded(program, seeds)  # type: ignore[attr-defined]
    return program


def run_strategy(
    name: str, strategy: Callable[..., Any], module: torch.nn.Module, inputs: Inputs, form: Any
) -> torch.export.ExportedProgram:
    """As `_run`, and where torch's first way meets a decision by data once more: with what factories make known, and
    loops over what is not zero as loops over every place.
    """
    if name == BOTH_WAYS:  # which is tried where the first way failed of a decision
        try:
            return _knowing(name, strategy, module, inputs, form)
        except _WrittenBufferError:
            return _run(name, strategy, module, inputs, form)
    try:
        return _run(name, strategy, module, inputs, form)
    except Exception as error:
        if name == NON_STRICT and is_of_recording(error) and record_for(module):
            return run_strategy(name, strategy, module, inputs, form)
        if name != NON_STRICT or decision_on_data(error) is None:
            raise
        try:
            return _knowing(name, strategy, module, inputs, form)
        except Exception:
            raise error from error.__cause__


class _WrittenBufferError(RuntimeError):
    """What was known of a buffer does not hold: forward writes to it."""


def _knowing(
    name: str, strategy: Callable[..., Any], module: torch.nn.Module, inputs: Inputs, form: Any
) -> torch.export.ExportedProgram:
    impossible: set[Place] = set()
    while True:
        known = len(impossible)
        try:
            with known_factories(), known_buffers() as held, numbers_of_sizes(), hit_loops(impossible):
                program = _run(name, strategy, module, inputs, form, constants_are_known=True)
        except Exception:
            if len(impossible) == known:
                raise
            continue
        if are_written(held):
            raise _WrittenBufferError("forward writes to a buffer whose numbers were taken as they are")
        return program
