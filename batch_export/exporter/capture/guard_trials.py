"""Runs of a model and its captured program at other sizes, by which guards are judged (`guard_judging.py`).

Arrives: a captured program, the model and its example inputs. Leaves: what comes of some sizes, each run once, however
many guards are false there.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import chosen_points, named_in_texts
from batch_export.exporter.capture.assertions import without_assertions
from batch_export.exporter.capture.fake_runs import fake_run
from batch_export.exporter.capture.guard_points import Point
from batch_export.exporter.capture.guard_symbols import Symbols
from batch_export.exporter.capture.kept_state import RunsUndone
from batch_export.exporter.capture.missing_pieces import pieces_as_slices
from batch_export.exporter.capture.one_thread import one_thread_if_small
from batch_export.exporter.capture.other_inputs import Inputs, one_apart, other_values
from batch_export.exporter.capture.other_sizes import Resizing
from batch_export.exporter.capture.perturbed_weights import perturbed_weights
from batch_export.exporter.capture.quiet import quiet
from batch_export.exporter.capture.shown_shapes import is_free_of_sizes, other_shapes
from batch_export.exporter.capture.trial import NO_TENSOR, Outcome, Trial, accepts, apart, is_fake, tried
from batch_export.exporter.capture.trial_costs import TrialCosts, computing
from batch_export.exporter.capture.unmade_runs import UnmadeRuns

_TRIED = 8
"""Sizes at which one guard is tried."""
_RUNS, _LEAST = 32, 5
"""Sizes at which model and program are run at all, and for each guard even where others took them all: one that nobody
tries counts as one that restricts.
"""
_BESIDE = 16
"""Further sizes for guards that took nothing away, with other axes than their own at other sizes, too."""
_TRIALS = 256
"""Sizes that are tried at all, those that the model refuses at once among them."""
AGREEING = frozenset({Outcome.AGREES, Outcome.SHAPES})
"""The program does what the model does, though perhaps by other shapes than it shows."""
_GRAVEST = (
    *(Outcome.DIFFERS, Outcome.FAILS, Outcome.SHAPES, Outcome.NOTHING, Outcome.AGREES, Outcome.UNSOLVED),
    *(Outcome.REFUSED, Outcome.UNTRIED),
)
"""Which of several outcomes at one point counts."""
_SAYING = frozenset({Outcome.AGREES, Outcome.NOTHING})
_TAKEN = frozenset({Outcome.AGREES, Outcome.DIFFERS, Outcome.FAILS})
"""The model takes the inputs."""
_SMALL = 8
"""Up to which size an axis is small."""
_WIDE, _WIDE_POINTS = 2, 8
"""For how many sizes of one guard, and for how many at all, numbers far from the example's are tried."""
_OTHERS = 3
"""Further values at sizes at which no number is finite."""
_LARGER = 16
"""How many times the example's elements an input has that is first tried without numbers, and how many times as long an
axis is that is left alone once the program has failed at less."""


class Trials:
    """Runs of a model and its captured program at other sizes, each size once.

    Attributes:
        resizing: the inputs at other sizes.
        can_run: whether there are numbers to run with and sizes to change.
        not_shown: the name of a node -> axes of its value that were seen to be empty where another size is shown, which
            matters to nobody once the file does not show it.
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
        self.not_shown: dict[str, tuple[int, ...]] = {}
        self.can_run = bool(self.resizing.example) and not is_fake(module, args, kwargs)
        self._module = module
        self._symbols = symbols
        self._exported = program
        self._program: torch.nn.Module | None = None
        self._known: dict[tuple[tuple[str, int], ...], Trial] = {}
        self._ran = 0
        self._allowed = _RUNS
        self._is_beside = False
        self._takes: dict[bool, bool] = {}
        self._unmade = UnmadeRuns(module, self.resizing)
        self._apart: float | None = None
        self._named: list[Point] | None = None
        self._wide: dict[tuple[tuple[str, int], ...], bool] = {}
        self._usual: dict[int, bool] = {}
        self._costs = TrialCosts()
        self._undone: tuple[RunsUndone, RunsUndone] | None = None

    def at(self, point: Point) -> Trial | None:
        """What comes of some sizes; None where no such inputs can be made, or enough was run."""
        sizes = {**self.resizing.example, **point}
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            if not self.can_run or self._ran >= self._allowed or len(self._known) >= _TRIALS:
                return None
            if self._costs.are_left_alone(self.resizing.elements(sizes)):
                return None
            spread = self.resizing.is_uniform and self._takes_other_values(spread=True)
            inputs = self.resizing.at(sizes, spread=spread)
            instead = self.resizing.in_place_of_less(sizes) if inputs is None else [inputs]
            if not instead:
                refused = self._unmade.refused(sizes)
                if refused:
                    self._known[key] = Trial(Outcome.REFUSED, refused)
                return self._known.get(key)
            trials = [self._run(*one, is_large=self._is_large(sizes)) for one in instead]
            trial = min(trials, key=lambda one: _GRAVEST.index(one.outcome))
            if inputs is not None and trial.outcome in _TAKEN:  # values like these are taken, here as at the example
                self._takes[spread] = True
            if trial == Trial(Outcome.NOTHING) and inputs is not None and 0 not in sizes.values():
                trial = self._of_the_sizes(inputs) or trial
            if trial.outcome in (Outcome.AGREES, Outcome.NOTHING) and not trial.problem and inputs is not None:
                shown = self._shown(sizes, inputs)
                trial = shown if shown is not None and trial.outcome is Outcome.AGREES else trial
            may_take_others = not trial.is_of_sizes and self._counts(sizes)
            if trial.outcome in (Outcome.REFUSED, Outcome.UNSOLVED) and inputs is not None and may_take_others:
                trial = self._of_other_numbers(sizes, trial)
            if trial.outcome is Outcome.REFUSED and may_take_others and not self._takes_other_values(spread=spread):
                trial = self._of_own_elements(sizes) or Trial(Outcome.NOTHING, trial.problem)
            if trial.problem == NO_TENSOR and 0 in sizes.values():  # where the file gives a tensor
                trial = Trial(Outcome.FAILS, trial.problem)
            self._ran += trial.outcome not in (Outcome.REFUSED, Outcome.UNTRIED)
            self._known[key] = trial
        return self._known[key] if self._known[key].outcome is not Outcome.UNTRIED else None

    def leave_runs(self) -> None:
        """Another guard is tried, for which there are runs left, unless those before it have taken long."""
        if self._costs.has_time_left:
            self._allowed = max(self._allowed, self._ran + _LEAST)

    def _takes_other_values(self, *, spread: bool) -> bool:
        """Whether the model takes made-up values at the example's sizes; if not, refusals may be because of these.

        What it takes at smaller sizes it takes there, too, and takes less time.
        """
        if spread not in self._takes:
            example = self.resizing.example
            smaller = {axis: min(size, _SMALL) for axis, size in example.items()}
            several = (smaller, example) if smaller != example else (example,)
            made = (self.resizing.at(sizes, anew=True, spread=spread) for sizes in several)
            self._takes[spread] = any(one is not None and accepts(self._module, *one) for one in made)
        return self._takes[spread]

    def _of_other_numbers(self, sizes: Point, refused: Trial) -> Trial:
        """What comes of sizes at which the model takes no numbers like the example's: an index may be too large there.

        Where a matrix cannot be decomposed whatever it is made of, nothing is known.
        """
        for inputs in self.resizing.at_other_numbers(sizes):
            trial = self._run(*inputs, is_large=False)
            if trial.outcome not in (Outcome.REFUSED, Outcome.UNSOLVED):
                return trial
        return Trial(Outcome.NOTHING, refused.problem) if refused.outcome is Outcome.UNSOLVED else refused

    def differ_widely(self, points: Sequence[Point]) -> bool:
        """Whether program and model differ at some sizes for numbers far from the example's, which say more.

        A mask that is one throughout, numbers that no `clamp` touches and weights that are still zero hide what a
        decision does. Only what does not differ at the example's sizes counts.

        Args:
            points: sizes at which they agree for numbers like the example's.
        """
        example = self.resizing.example
        near = [one for one in points if 0 not in one.values() and not self._is_large({**example, **one})]
        near.sort(key=lambda one: sum(abs(size - example[axis]) for axis, size in one.items()))
        for point in near[:_WIDE]:
            key = self._key(point)
            if key not in self._wide and len(self._wide) < _WIDE_POINTS:
                self._wide[key] = self._differs_widely(dict(key))
            if self._wide.get(key, False):
                return True
        return False

    def _differs_widely(self, sizes: Point) -> bool:
        if self._program is None:
            return False
        with perturbed_weights(self._module, self._program), self._anew():
            for kind in self.resizing.wide_kinds:
                inputs = self.resizing.at_wide_numbers(sizes, kind) if self._usual.get(kind, True) else None
                differs = inputs is not None and self._run(*inputs, is_large=False).outcome is Outcome.DIFFERS
                if differs and self._is_usual(kind):
                    return True
        return False

    @contextlib.contextmanager
    def _anew(self) -> Iterator[None]:
        """Within, model and program are kept as they are now, with other weights."""
        before, self._undone = self._undone, None
        try:
            yield
        finally:
            self._undone = before

    def _is_usual(self, kind: int) -> bool:
        """Whether numbers far from the example's make no difference at its sizes."""
        if kind not in self._usual:
            inputs = self.resizing.at_wide_numbers(self.resizing.example, kind)
            self._usual[kind] = inputs is not None and self._run(*inputs, is_large=False).outcome in _SAYING
        return self._usual[kind]

    def _of_own_elements(self, sizes: Point) -> Trial | None:
        """What comes of some sizes of a model that made-up numbers do not suit (lengths that have to be sorted).

        Its inputs are parts of the example. A refusal is because of the sizes where it shows without numbers, or where
        the model takes the same parts once axes that are alike in the example are so here; None where neither is so.
        """
        refused = self._unmade.refused(sizes)
        if refused:
            return Trial(Outcome.REFUSED, refused)
        alike = self._alike(sizes)
        inputs = self.resizing.like_example(sizes)
        control = None if alike is None else self.resizing.like_example(alike)
        if inputs is None or control is None or not accepts(self._module, *control):
            return None
        return self._run(*inputs, is_large=self._is_large(sizes))

    def _alike(self, sizes: Point) -> dict[str, int] | None:
        """The sizes with axes that are as long as one another in the example moved together; None where they part."""
        example, moved = self.resizing.example, dict[int, int]()
        for axis, size in sizes.items():
            if size != example[axis] and moved.setdefault(example[axis], size) != size:
                return None
        return {axis: moved.get(size, size) for axis, size in example.items()}

    def beside(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Trial:
        """What comes of some inputs."""
        return self._run(args, kwargs, is_large=False)

    def _of_the_sizes(self, inputs: Inputs) -> Trial | None:
        """What to say where neither side has a finite number: that they agree where no number of the inputs matters.

        A deviation of one element is not a number, whatever the element is; a sum that is too large is one for others.
        At the example's sizes numbers like these are finite.
        """
        example = self.resizing.at({}, anew=True)
        if example is None or self._run(*example, is_large=False).outcome is not Outcome.AGREES:
            return None
        others = [self._run(*one, is_large=False) for one in (*other_values(*inputs, _OTHERS), *one_apart(*inputs))]
        found = [trial for trial in others if trial.outcome is not Outcome.REFUSED]
        if len(found) < _OTHERS:
            return None
        gravest = min(found, key=lambda one: _GRAVEST.index(one.outcome))
        return Trial(Outcome.AGREES) if gravest.outcome is Outcome.NOTHING and not gravest.problem else gravest

    def _shown(self, sizes: Point, inputs: Inputs) -> Trial | None:
        """What to say where a value of the program has another shape than it shows, and a translation may go by it."""
        assert self._program is not None
        given, keywords = copy.deepcopy(inputs)
        threads, unknown = one_thread_if_small(self._module, inputs), contextlib.suppress(Exception)
        with threads, quiet(), unknown:  # what cannot be run node by node is not known to be wrong
            found = other_shapes(self._program, given, keywords, lambda name: self._symbols.value(name, sizes))
            if not found.beside and is_free_of_sizes(self._exported.graph, found.axes):
                for name, axes in found.axes.items():
                    self.not_shown[name] = (*self.not_shown.get(name, ()), *axes)
                return None
            return Trial(Outcome.SHAPES, found.first)
        return None

    def _counts(self, sizes: Point) -> bool:
        """Whether inputs have numbers at all, for which a model may refuse them."""
        return self.resizing.elements(sizes) > 0

    def _is_large(self, sizes: Point) -> bool:
        return self.resizing.elements(sizes) > _LARGER * max(1, self.resizing.elements(self.resizing.example))

    def are_large(self, points: Sequence[Point]) -> bool:
        """Whether all sizes with elements are far larger than the example's, at which not everything can be run."""
        example = self.resizing.example
        return all(self._is_large({**example, **point}) for point in points if 0 not in point.values())

    def _is_far(self, point: Point) -> bool:
        """Whether some axis is so much longer than in the example that running may cost the square of that."""
        return any(size > _LARGER * max(1, self.resizing.example.get(axis, 1)) for axis, size in point.items())

    def _run(self, args: tuple[object, ...], kwargs: dict[str, object], *, is_large: bool) -> Trial:
        """One trial; inputs of more elements than one that took long are left alone, what it takes may grow fast."""
        with computing() as seconds:
            trial = self._tried(args, kwargs, is_large=is_large)
        tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        has_ended = trial.outcome in (Outcome.AGREES, Outcome.DIFFERS)
        self._costs.note(sum(one.numel() for one in tensors), seconds[0], has_ended=has_ended)
        return trial

    def _tried(self, args: tuple[object, ...], kwargs: dict[str, object], *, is_large: bool) -> Trial:
        run = fake_run(self._module, args, kwargs) if is_large else None
        if run is not None and not run.refused:
            self._unmade.note_possible()
        if run is not None and run.refused and (self._unmade.are_possible() or not run.is_too_large):
            return Trial(Outcome.REFUSED, run.refused, is_of_sizes=self._unmade.are_possible())
        if run is not None and run.is_too_large:
            return Trial(Outcome.UNTRIED)
        if self._program is None:
            self._program = pieces_as_slices(without_assertions(self._exported.module(check_guards=False)))
        self._undone = self._undone or (RunsUndone(self._program), RunsUndone(self._module))
        return tried(self._program, self._module, args, kwargs, self._noise, self._undone)

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
        model computes may grow with the square of a size. Once several agree and took long together, only sizes of
        fewer elements than these are tried.
        """
        known = [point for point in points if self._key(point) in self._known]
        far = chosen_points.far_of(expression)
        several = chosen_points.choose(points, self.resizing.example, _TRIED, far)
        further = chosen_points.of_each_kind(points, expression, self._symbols, self.resizing.example)
        chosen = [*several, *chosen_points.whole(points, expression), *further, *known]
        found: list[tuple[Point, Trial]] = []
        failing, agreeing = math.inf, self._costs.of_one_guard()
        for point in chosen:
            sizes = {**self.resizing.example, **point}
            elements = self.resizing.elements(sizes)
            is_new = self._key(point) not in self._known
            if is_new and elements > failing and self._is_far(point):
                continue
            if is_new and agreeing.say_enough_of(elements):
                continue
            trial = self.at(point)
            if trial is not None:
                found.append((point, trial))
            if trial is not None and trial.outcome is Outcome.FAILS:
                failing = min(failing, elements)
            elif trial is not None and trial.outcome is Outcome.AGREES and elements:
                agreeing.elements.append(elements)
        return list({self._key(point): (point, trial) for point, trial in found}.values())

    def at_others(self, points: Sequence[Point]) -> list[tuple[Point, Trial]]:
        """Trials at a few of many sizes, with the axes that these leave alone at another size than the example's.

        Sizes at which all axes are as long answer several questions alike (`h % 2 and w % 2`, `h < 4 and w < 4`), of
        which the example answered only the first one.
        """
        example = self.resizing.example
        few = [point for point in chosen_points.choose(points, example, _TRIED // 2) if 0 not in point.values()]
        alike = [{**dict.fromkeys(example, max(point.values())), **point} for point in few]
        longer = [
            {**{axis: times * size + 1 for axis, size in example.items()}, **point}
            for times in (1, 2)
            for point in few[:1]
        ]
        shorter = [{**{axis: max(1, size // 3) for axis, size in example.items()}, **point} for point in few[:1]]
        if not self._is_beside:
            self._is_beside, self._allowed = True, max(_RUNS, self._ran) + _BESIDE
        found = [
            (point, self.at(point)) for point in (*alike, *longer, *shorter) if not self._is_large({**example, **point})
        ]
        return [(point, trial) for point, trial in found if trial is not None]

    def holds_at(self, sizes: Sequence[Mapping[str, int]]) -> bool:
        """Whether the program does what the model does at some sizes such as `not_held` gives."""
        names = {self._symbols.text(name): name for name in self.resizing.example}
        points = [{names[text]: size for text, size in one.items() if text in names} for one in sizes]
        trials = [self.at(point) for point in points[:_TRIED]]
        return not any(trial is not None and trial.outcome in (Outcome.DIFFERS, Outcome.FAILS) for trial in trials)

    def at_named(self) -> list[tuple[Point, Trial]]:
        """Trials at sizes that names and texts of the model speak of."""
        if self._named is None:
            numbers = named_in_texts.numbers_in_texts(self._module)
            self._named = named_in_texts.points(numbers, list(self.resizing.example))
            self._allowed = max(self._allowed, self._ran + len(self._named))
        found = [
            (point, self.at(point)) for point in self._named if not self._is_large({**self.resizing.example, **point})
        ]
        return [(point, trial) for point, trial in found if trial is not None]

    def agree_beyond(self) -> bool:
        """Whether program and model give the same numbers, some of them finite, at somewhat larger sizes."""
        example = self.resizing.example
        larger = (
            {axis: size + 1 for axis, size in example.items()},
            {axis: 2 * size for axis, size in example.items()},
        )
        return any(trial is not None and trial.outcome in AGREEING for trial in map(self.at, larger))

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
