"""A captured program with its guards, tried on the model, or why it is not given to the caller.

Arrives: what a strategy captured, the model and its inputs. Leaves: the program, beyond whose guards nothing is wrong
that was not asked for. Nothing is captured here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import sympy
import torch

from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.captured import Attempt, Captured
from batch_export.exporter.capture.data_choices import writes_in_place
from batch_export.exporter.capture.guard_judging import judge
from batch_export.exporter.capture.guard_symbols import Symbols
from batch_export.exporter.capture.guard_trials import Trials
from batch_export.exporter.capture.guards import Guard, collect, environment_of, sides_taken, symbols_of, taken_as
from batch_export.exporter.capture.models_limits import hold_to_models_limits
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.rank_limits import sizes_not_one
from batch_export.exporter.capture.refusals import hold_against_given, narrower, other_rank
from batch_export.exporter.capture.refused_again import Refused, refused_for
from batch_export.exporter.capture.shown_shapes import keep_apart
from batch_export.exporter.capture.strategies import TRACE
from batch_export.exporter.capture.trial import is_fake
from batch_export.exporter.graph.sure_sizes import doubt

GuardMode = Literal["warn", "error", "allow"]
GUARD_MODES: tuple[GuardMode, ...] = get_args(GuardMode)


@dataclass(frozen=True, slots=True)
class Called:
    """A model, the inputs that it was captured from, those that its caller gave, and whether 0 and 1 are not free.

    Attributes:
        not_held: gets the sizes at which the program was seen not to do what the model does.
        refused: gets what is to be known of the program where it is refused.
        untried: gets the program before its guards are tried, of which it may leave some out.
    """

    module: torch.nn.Module
    inputs: Inputs
    given: Inputs
    takes_sides: bool
    not_held: list[dict[str, int]]
    refused: list[Refused]
    untried: Callable[[Captured], None] | None = None


def finished(
    program: torch.export.ExportedProgram,
    asked: shapes.DynamicShapes,
    attempts: list[Attempt],
    mode: GuardMode,
    called: Called | None = None,
    texts: Mapping[sympy.Basic, str] | None = None,
) -> Captured:
    """The program with its guards, which are tried on the model and its inputs where they are at hand.

    What Python took of sizes as it is in the example is among them: text, and in a trace everything.
    """
    names = shapes.axis_names(program, asked)
    symbols = symbols_of(program, asked.axes, asked.aliases)
    derived = shapes.derived_names(program, asked, names)
    captured = Captured(program, names, collect(program, symbols), attempts, derived, symbols=symbols)
    captured.other_names = shapes.other_names(program, asked, names)
    captured.writes = any(map(writes_in_place, (program, *vars(program).get("_ways", ()))))
    captured.not_one = _kept_axes(program, asked)
    if called is not None and symbols is not None:
        if called.takes_sides:
            captured.guards = [*captured.guards, *sides_taken(program, symbols)]
        captured.guards += taken_as(program, symbols, texts or {}, "the model's code makes text of a size")
        if captured.strategy == TRACE:
            captured.guards += taken_as(
                program, symbols, _free_as_given(program, symbols), "in a trace Python's are so"
            )
        if called.untried is not None:
            called.untried(captured)
        trials = Trials(program, symbols, called.module, *called.inputs)
        judge(captured, trials)
        hold_to_models_limits(program, captured.guards)
        doubt(environment_of(program), (one.expression for one in captured.guards if one.holds_beyond))
        keep_apart(program.graph, trials.not_shown)
        called.not_held.extend(trials.not_held())
        if mode != "allow" and captured.harmful:
            called.refused.extend(refused_for(captured, trials.resizing.example))
        if called.inputs is not called.given and not is_fake(called.module, *called.given):
            hold_against_given(captured, asked, trials.beside(*called.given))
    refused = {"warn": captured.harmful, "error": captured.restrictions, "allow": []}[mode]
    if refused:
        raise narrower(refused, asked)
    dropped = [guard for guard in captured.not_one if guard.restricts and (mode == "error" or not guard.is_limit)]
    if dropped and mode != "allow":
        raise other_rank(dropped[0])
    return captured


def _kept_axes(program: torch.export.ExportedProgram, asked: shapes.DynamicShapes) -> list[Guard]:
    """What `sizes_not_one` finds in a program, and in the ways through the model that it was made of.

    A squeeze of which a way reads the shape only is in no program that was made of it. The ways come first: their lines
    are the model's.
    """
    ways: list[torch.export.ExportedProgram] = vars(program).pop("_ways", [])
    found = [
        guard
        for one in (*ways, program)
        for guard in sizes_not_one(one, asked.axes, asked.aliases, shapes.axis_names(one, asked))
    ]
    return list({guard.condition: guard for guard in reversed(found)}.values())[::-1]


def _free_as_given(program: torch.export.ExportedProgram, symbols: Symbols) -> dict[sympy.Basic, str]:
    """That each free size of the inputs is what it is in the example, as `taken_as` has it."""
    fakes = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    sizes: list[Any] = [size for fake in fakes if isinstance(fake, torch.Tensor) for size in fake.shape]
    nodes = [size.node for size in sizes if isinstance(size, torch.SymInt)]
    known = [node for node in nodes if node.expr.is_Symbol and str(node.expr) in symbols.axes and node.has_hint()]
    return {sympy.Eq(node.expr, int(node.hint), evaluate=False): "" for node in known}
