"""Guards tried: whether a condition of the captured program takes sizes away that the model has.

Arrives: a captured program with its guards, and trials of it beside the model (`guard_trials.py`). Leaves: the guards
with what became of them at sizes at which they are false. Where the model itself refuses these sizes, or gives what the
program gives, a guard takes nothing away. Where the program fails it is a limit of the file; where the program gives
something else the file would be wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import sympy

from batch_export.exporter.capture import chosen_points, guard_points
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guard_points import Point
from batch_export.exporter.capture.guard_symbols import AskedAxis, Symbols
from batch_export.exporter.capture.guard_trials import AGREEING, Trials
from batch_export.exporter.capture.guard_words import RELATIONS, as_limit, counted
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.trial import Outcome


def judge(captured: Captured, trials: Trials) -> None:
    """Replaces the captured program's guards by what trials made of them.

    Equalities come first: axes that they tie together move together when the others are tried. Guards that are false
    only where an axis is empty come before others that are false there as well. Guards on axes left to the exporter
    (`narrows`) keep that mark only where the model has more sizes than the program.
    """
    symbols = captured.symbols
    if symbols is None:
        return
    if not trials.can_run:
        captured.guards = [_untried(guard, trials, symbols) for guard in captured.guards]
        return
    kept = frozenset(captured.axis_names.values())
    order = sorted(
        captured.guards,
        key=lambda guard: (
            not _united(guard, symbols, kept),
            not _is_equality(guard),
            not _is_false_where_empty_only(guard, trials, symbols),
        ),
    )
    pending = [guard.expression for guard in order if _is_pending(guard)]
    judged: list[Guard] = []
    for guard in order:
        if _is_pending(guard):
            others = [one for one in pending if one is not guard.expression]
            limits = [one.expression for one in judged if one.restricts and one.is_limit]
            trials.leave_runs()
            guard = _judged(guard, trials, symbols, others, limits, _united(guard, symbols, kept))
        judged.append(guard)
        if guard.unites:
            symbols.names.unite(guard.unites[1], guard.unites[0])
        elif guard.expression is not None and not guard.restricts and not guard.holds_beyond:
            symbols.solves(guard.expression, named=True)
    for place, (guard, was) in enumerate(zip(judged, order, strict=True)):
        if (
            _is_pending(was)
            and not _is_pending(guard)
            and not guard.unites
            and _differs_beside(was, trials, symbols, judged)
        ):
            judged[place] = was
    captured.guards = sorted(judged, key=lambda guard: not guard.restricts)


def _differs_beside(guard: Guard, trials: Trials, symbols: Symbols, judged: Sequence[Guard]) -> bool:
    """Whether the program gives something else than the model where a guard is false and other axes differ, too.

    A model that asks two questions at a time (`if h % 2 and w % 2:`) asks the second one at some sizes only, so that
    there is no guard for it. What other guards take away says nothing.
    """
    points = guard_points.against(guard.expression, symbols, trials.resizing.example)
    own = {axis for point in (points or ())[:1] for axis in point}
    if not points or own >= trials.resizing.example.keys():
        return False
    others = [one.expression for one in judged if one.restricts and one.expression is not None]
    example = trials.resizing.example
    return any(
        trial.outcome is Outcome.DIFFERS and not guard_points.one_is_false(others, symbols, {**example, **point})
        for point, trial in trials.at_others(points)
    )


def _untried(guard: Guard, trials: Trials, symbols: Symbols) -> Guard:
    """A guard that cannot be tried: what is false only where an axis is empty takes no more than that away."""
    if not _is_pending(guard):
        return guard
    points = guard_points.against(guard.expression, symbols, trials.resizing.example)
    if guard.reason:  # most text is only shown: a warning says that nobody tried
        return replace(guard, is_limit=True)
    return _limit_where_empty(guard, points or (), symbols)


def _limit_where_empty(guard: Guard, points: Sequence[Point], symbols: Symbols) -> Guard:
    """A guard of which trials prove nothing: one that is false only where an axis is empty is a limit."""
    return as_limit(guard, points, symbols) if _are_empty(points) else guard


def _is_pending(guard: Guard) -> bool:
    return guard.expression is not None and (guard.restricts or bool(guard.narrows or guard.fixes))


def _is_equality(guard: Guard) -> bool:
    return isinstance(guard.expression, sympy.Eq)


def _is_false_where_empty_only(guard: Guard, trials: Trials, symbols: Symbols) -> bool:
    if not _is_pending(guard):
        return False
    points = guard_points.against(guard.expression, symbols, trials.resizing.example)
    return _are_empty(points or ())


def _are_empty(points: Sequence[Point]) -> bool:
    return bool(points) and all(0 in point.values() for point in points)


def _judged(
    guard: Guard,
    trials: Trials,
    symbols: Symbols,
    others: Sequence[object],
    limits: Sequence[object],
    united: tuple[str, ...],
) -> Guard:
    points = guard_points.against(guard.expression, symbols, trials.resizing.example)
    if points is None:
        return guard
    made = trials.at_some(points, guard.expression)
    if guard.reason:
        digits = ((point, trials.at(point)) for point in chosen_points.of_each_digit(points))
        made += [(point, trial) for point, trial in digits if trial is not None]
        made += trials.at_named()
    if all(trial.outcome is Outcome.REFUSED for _, trial in made):  # perhaps for another reason: not a multiple, say
        likely = chosen_points.likely(points, others, symbols, trials.resizing.example)
        made += trials.at_some(likely)
    vain = [(point, trial) for point, trial in made if trial.outcome is Outcome.NOTHING]
    made = [(point, trial) for point, trial in made if trial.outcome is not Outcome.NOTHING]
    filled = [(point, trial.outcome) for point, trial in made if 0 not in point.values()]
    if points and (not made or (not filled and any(0 not in point.values() for point, _ in vain))):
        if counted(guard.expression) is not None and not any(one.problem for _, one in vain) and trials.agree_beyond():
            return as_limit(guard, points, symbols)  # a mean of nothing, in the model as in the program
        if not made and not vain and trials.are_large(points):
            return as_limit(guard, points, symbols)
        return _limit_where_empty(guard, points, symbols)
    outcomes = {outcome for _, outcome in filled}
    if Outcome.DIFFERS in outcomes:
        return guard
    if Outcome.FAILS in outcomes:
        failing = [point for point, outcome in filled if outcome is Outcome.FAILS]
        if united and all(1 in point.values() for point in failing):
            return replace(guard, is_limit=True, unites=united)
        return _limited(guard, points, symbols)
    differing = [point for point, trial in made if trial.outcome in (Outcome.DIFFERS, Outcome.FAILS)]
    example = trials.resizing.example
    if not all(guard_points.one_is_false(limits, symbols, {**example, **point}) for point in differing):
        return as_limit(guard, points, symbols)  # else another guard says so already, which takes fewer sizes away
    shown = [point for point, trial in made if trial.outcome is Outcome.SHAPES]
    if not united and shown:
        is_known = outcomes <= {Outcome.AGREES} or len(made) == len(points)
        words = guard_points.limit(shown, guard.expression, symbols) if is_known else None
        whole = guard if outcomes else as_limit(guard, points, symbols)
        return replace(guard, is_limit=True, condition=words or whole.condition)  # where an axis is empty, perhaps
    agreed = [point for point, trial in made if trial.outcome is Outcome.AGREES and 0 not in point.values()]
    if not united and trials.differ_widely(agreed):
        return guard
    return replace(
        guard,
        restricts=False,
        narrows=(),
        fixes=(),
        unites=united,
        holds_beyond=bool(outcomes & AGREEING),
        is_models=outcomes == {Outcome.REFUSED},
    )


def _limited(guard: Guard, points: Sequence[Point], symbols: Symbols) -> Guard:
    """A guard beyond which the program fails: a limit where it is false beyond some size only, and said as one."""
    if guard_points.limit(points, guard.expression, symbols) is not None:
        return as_limit(guard, points, symbols)
    parts = guard.expression.args if isinstance(guard.expression, sympy.And) else (guard.expression,)
    variables = {variable for one in guard.expression.free_symbols for variable in symbols.variables(str(one))}
    return replace(guard, is_limit=len(variables) > 1 and all(isinstance(part, RELATIONS) for part in parts))


def _united(guard: Guard, symbols: Symbols, kept: Collection[str]) -> tuple[str, ...]:
    """The names of two axes that an equality makes one, that which the file has first."""
    if not guard.is_equality:
        return ()
    axes: list[AskedAxis | None] = [symbols.axes.get(str(side)) for side in guard.expression.args]
    names = [axis.name for axis in axes if axis is not None and axis.name and not axis.derived]
    if len(names) != 2 or names[0] == names[1]:
        return ()
    return (names[0], names[1]) if names[0] in kept else (names[1], names[0])
