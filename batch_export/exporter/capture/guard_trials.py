"""Guards tried: whether a condition of the captured program takes sizes away that the model has.

Arrives: a captured program with its guards, the model and its example inputs. Leaves: the guards with what became of
them at sizes at which they are false. Where the model itself refuses these sizes, or gives what the program gives, a
guard takes nothing away. Where the program fails it is a limit of the file; where the program gives something else the
file would be wrong. Each size is run once, however many guards are false there.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.exporter.capture import guard_points
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guard_points import Point
from batch_export.exporter.capture.guard_symbols import AskedAxis, Symbols
from batch_export.exporter.capture.guard_words import RELATIONS, as_limit, counted
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.other_sizes import Resizing
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.shown_shapes import other_shape
from batch_export.exporter.capture.trial import Outcome, Trial, accepts, apart, is_fake, refusal, tried

_TRIED = 8
"""Sizes at which one guard is tried."""
_RUNS = 32
"""Sizes at which model and program are run at all; a guard that would need more counts as one that restricts."""
_BESIDE = 16
"""Further sizes for guards that took nothing away, with other axes than their own at other sizes, too."""
_TRIALS = 256
"""Sizes that are tried at all, those that the model refuses at once among them."""
_AGREEING = frozenset({Outcome.AGREES, Outcome.SHAPES})
"""The program does what the model does, though perhaps by other shapes than it shows."""
_GRAVEST = (Outcome.DIFFERS, Outcome.FAILS, Outcome.SHAPES, Outcome.NOTHING, Outcome.AGREES, Outcome.REFUSED)
"""Which of several outcomes at one point counts."""
_LARGER = 16
"""How many times the example's elements an input has that is first tried without numbers, and how many times as long an
axis is that is left alone once the program has failed at less."""


class Trials:
    """Runs of a model and its captured program at other sizes, each size once.

    Attributes:
        resizing: the inputs at other sizes.
        can_run: whether there are numbers to run with and sizes to change.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        symbols: Symbols,
        module: torch.nn.Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        self.resizing = Resizing(program, symbols, args, kwargs)
        self.can_run = bool(self.resizing.example) and not is_fake(module, args, kwargs)
        self._module = module
        self._symbols = symbols
        self._exported = program
        self._program: torch.nn.Module | None = None
        self._known: dict[tuple[tuple[str, int], ...], Trial] = {}
        self._ran = 0
        self._allowed = _RUNS
        self._takes: dict[bool, bool] = {}
        self._apart: float | None = None

    def at(self, point: Point) -> Trial | None:
        """What comes of some sizes; None where no such inputs can be made, or enough was run."""
        sizes = {**self.resizing.example, **point}
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            if not self.can_run or self._ran >= self._allowed or len(self._known) >= _TRIALS:
                return None
            spread = self.resizing.is_uniform and self._takes_other_values(spread=True)
            inputs = self.resizing.at(sizes, spread=spread)
            instead = self.resizing.in_place_of_less(sizes) if inputs is None else [inputs]
            if not instead:
                refused = self._refused_unmade(sizes)
                if refused:
                    self._known[key] = Trial(Outcome.REFUSED, refused)
                return self._known.get(key)
            trials = [self._run(*one, is_large=self._is_large(sizes)) for one in instead]
            trial = min(trials, key=lambda one: _GRAVEST.index(one.outcome))
            if trial.outcome is Outcome.AGREES and inputs is not None:
                trial = self._shown(sizes, inputs) or trial
            if trial.outcome is Outcome.REFUSED and not self._takes_other_values(spread=spread):
                trial = Trial(Outcome.NOTHING, trial.problem)
            self._ran += trial.outcome is not Outcome.REFUSED
            self._known[key] = trial
        return self._known[key]

    def _takes_other_values(self, *, spread: bool) -> bool:
        """Whether the model takes made-up values at the example's sizes; if not, no refusal is because of sizes."""
        if spread not in self._takes:
            inputs = self.resizing.at({}, anew=True, spread=spread)
            self._takes[spread] = inputs is not None and accepts(self._module, *inputs)
        return self._takes[spread]

    def beside(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Trial:
        """What comes of some inputs."""
        return self._run(args, kwargs, is_large=False)

    def _shown(self, sizes: Point, inputs: Inputs) -> Trial | None:
        """What to say where a value of the program has another shape than it shows."""
        assert self._program is not None
        given, keywords = copy.deepcopy(inputs)
        with quiet(), contextlib.suppress(Exception):  # what cannot be run node by node is not known to be wrong
            found = other_shape(self._program, given, keywords, lambda name: self._symbols.value(name, sizes))
            return Trial(Outcome.SHAPES, found) if found else None
        return None

    def _refused_unmade(self, sizes: Point) -> str:
        """Why the model does not take sizes that are too large to be made; empty where it may take them."""
        symbols = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=symbols)  # an index by data is some index
        inputs, example = (self.resizing.without_numbers(at, mode) for at in (sizes, self.resizing.example))
        if inputs is None or example is None or refusal(self._module, *example, mode):
            return ""  # what it refuses without numbers at the example's sizes too is not because of sizes
        return refusal(self._module, *inputs, mode)

    def _is_large(self, sizes: Point) -> bool:
        return self.resizing.elements(sizes) > _LARGER * max(1, self.resizing.elements(self.resizing.example))

    def _is_far(self, point: Point) -> bool:
        """Whether some axis is so much longer than in the example that running may cost the square of that."""
        return any(size > _LARGER * max(1, self.resizing.example.get(axis, 1)) for axis, size in point.items())

    def _run(self, args: tuple[object, ...], kwargs: dict[str, object], *, is_large: bool) -> Trial:
        if is_large and (refused := refusal(self._module, args, kwargs)):
            return Trial(Outcome.REFUSED, refused)
        if self._program is None:
            self._program = without_assertions(self._exported.module(check_guards=False))
        return tried(self._program, self._module, args, kwargs, self._noise)

    def _noise(self) -> float:
        """How far apart program and model are at the example's sizes; more than anything where that is not known."""
        if self._apart is None:
            inputs, self._apart = self.resizing.at({}), math.inf
            if inputs is not None and self._program is not None:
                with contextlib.suppress(Exception):
                    self._apart = apart(self._program, self._module, *inputs)
        return self._apart

    def at_some(self, points: Sequence[Point], expression: object = None) -> list[tuple[Point, Trial]]:
        """Trials at a few of many sizes, and at those among them that were run before.

        Args:
            points: the sizes.
            expression: the guard that is false there, if there is one.

        Where the program fails at large sizes already, larger ones are left alone: they would say no more, and what a
        model computes may grow with the square of a size.
        """
        known = [point for point in points if self._key(point) in self._known]
        far = guard_points.far_of(expression)
        chosen = [*guard_points.choose(points, self.resizing.example, _TRIED, far), *known]
        found: list[tuple[Point, Trial]] = []
        failing = math.inf
        for point in chosen:
            sizes = {**self.resizing.example, **point}
            elements = self.resizing.elements(sizes)
            if elements > failing and self._is_far(point) and self._key(point) not in self._known:
                continue
            trial = self.at(point)
            if trial is not None:
                found.append((point, trial))
            if trial is not None and trial.outcome is Outcome.FAILS:
                failing = min(failing, elements)
        return list({self._key(point): (point, trial) for point, trial in found}.values())

    def at_others(self, points: Sequence[Point]) -> list[tuple[Point, Trial]]:
        """Trials at a few of many sizes, with the axes that these leave alone at another size than the example's.

        Sizes at which all axes are as long answer several questions alike (`h % 2 and w % 2`, `h < 4 and w < 4`), of
        which the example answered only the first one.
        """
        example = self.resizing.example
        few = [point for point in guard_points.choose(points, example, _TRIED // 2) if 0 not in point.values()]
        alike = [{**dict.fromkeys(example, max(point.values())), **point} for point in few]
        longer = [
            {**{axis: times * size + 1 for axis, size in example.items()}, **point}
            for times in (1, 2)
            for point in few[:1]
        ]
        self._allowed = max(self._allowed, _RUNS + _BESIDE)
        found = [(point, self.at(point)) for point in (*alike, *longer) if not self._is_large({**example, **point})]
        return [(point, trial) for point, trial in found if trial is not None]

    def holds_at(self, sizes: Sequence[Mapping[str, int]]) -> bool:
        """Whether the program does what the model does at some sizes such as `not_held` gives."""
        names = {self._symbols.text(name): name for name in self.resizing.example}
        points = [{names[text]: size for text, size in one.items() if text in names} for one in sizes]
        trials = [self.at(point) for point in points[:_TRIED]]
        return not any(trial is not None and trial.outcome in (Outcome.DIFFERS, Outcome.FAILS) for trial in trials)

    def agree_beyond(self) -> bool:
        """Whether program and model give the same numbers, some of them finite, at somewhat larger sizes."""
        example = self.resizing.example
        larger = (
            {axis: size + 1 for axis, size in example.items()},
            {axis: 2 * size for axis, size in example.items()},
        )
        return any(trial is not None and trial.outcome in _AGREEING for trial in map(self.at, larger))

    def not_held(self) -> list[dict[str, int]]:
        """The sizes of the axes at which the program does not do what the model does.

        Sizes of 0 and 1 are cases of their own. Those come first that are not smaller than the example's.
        """
        found = [
            dict(sizes)
            for sizes, trial in self._known.items()
            if trial.outcome in (Outcome.DIFFERS, Outcome.FAILS) and all(size > 1 for _, size in sizes)
        ]
        example = self.resizing.example
        found.sort(key=lambda at: (sum(at[name] < example[name] for name in at), self.resizing.elements(at)))
        return [{self._symbols.text(name): size for name, size in sizes.items()} for sizes in found]

    def _key(self, point: Point) -> tuple[tuple[str, int], ...]:
        return tuple(sorted({**self.resizing.example, **point}.items()))


def without_assertions(program: torch.nn.Module) -> torch.nn.Module:
    """Returns the program as the file is, which asserts nothing; it is changed in place.

    torch's bounds of a size by data (`u0 >= 2`) may be those of a size of the example that it was compared with. A
    bound that matters shows in what the program gives.
    """
    graph = getattr(program, "graph", None)
    if isinstance(graph, torch.fx.Graph) and isinstance(program, torch.fx.GraphModule):
        for node in reversed(list(graph.nodes)):
            if node.target is torch.ops.aten._assert_scalar.default and not node.users:
                graph.erase_node(node)
        program.recompile()
    return program


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
        digits = ((point, trials.at(point)) for point in guard_points.of_each_digit(points))
        made += [(point, trial) for point, trial in digits if trial is not None]
    if all(trial.outcome is Outcome.REFUSED for _, trial in made):  # perhaps for another reason: not a multiple, say
        likely = guard_points.likely(points, others, symbols, trials.resizing.example)
        made += trials.at_some(likely)
    vain = [(point, trial) for point, trial in made if trial.outcome is Outcome.NOTHING]
    made = [(point, trial) for point, trial in made if trial.outcome is not Outcome.NOTHING]
    filled = [(point, trial.outcome) for point, trial in made if 0 not in point.values()]
    if points and (not made or (not filled and any(0 not in point.values() for point, _ in vain))):
        if counted(guard.expression) is not None and not any(one.problem for _, one in vain) and trials.agree_beyond():
            return as_limit(guard, points, symbols)  # a mean of nothing, in the model as in the program
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
        words = guard_points.limit(shown, guard.expression, symbols) if outcomes == {Outcome.AGREES} else None
        return replace(guard, is_limit=True, condition=words or guard.condition)  # where an axis is empty, perhaps
    return replace(guard, restricts=False, narrows=(), fixes=(), unites=united, holds_beyond=bool(outcomes & _AGREEING))


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
