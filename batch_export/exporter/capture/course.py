"""From which examples a model is captured: the given one, one with two elements or more in each free axis, others.

Arrives: a module, the given inputs, and what was asked for. Leaves: the program that holds for most sizes, checked
against the model at the given inputs.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import assumptions, guard_points
from batch_export.exporter.capture.captured import Attempt, Captured
from batch_export.exporter.capture.chosen_numbers import any_choice, numbers_chosen
from batch_export.exporter.capture.data_choices import any_choice as any_data_choice
from batch_export.exporter.capture.data_choices import choices_of_values
from batch_export.exporter.capture.data_loops import any_loop, loops_as_operators
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.from_example import Request, Strategies, by_strategies
from batch_export.exporter.capture.guard_trials import Trials
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.numbers_beside import give_another_dtype
from batch_export.exporter.capture.other_inputs import Inputs, of_other_reach, of_unlike_rows
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.real_sizes import real_sizes
from batch_export.exporter.capture.refusals import narrower, one_only
from batch_export.exporter.capture.refused_again import is_in_vain
from batch_export.exporter.capture.second_looks import Untried, otherwise_beyond
from batch_export.exporter.capture.size_conditions import conditions_met
from batch_export.exporter.capture.size_decisions import any_decision, any_equality, decisions_as_data
from batch_export.exporter.capture.strategies import ASSUMING, BOTH_WAYS, NON_STRICT, STRICT, TRACE
from batch_export.exporter.capture.taken_crops import any_crop, crops_taken
from batch_export.exporter.capture.taken_pads import any_pad, pads_taken
from batch_export.exporter.capture.taken_resizes import any_resize, resizes_taken

_OTHERS = 2
"""From how many examples of other sizes both ways are captured, where that fails from the given one."""
_TURNS = 3
"""How often from each of them."""
_SECONDS = 45.0
"""Seconds of this thread's own computing after which no further example of other sizes is captured."""
_SECONDS_BOTH_WAYS = 60.0
"""Likewise after which what sizes decide is not captured both ways once more."""


@dataclass(frozen=True, slots=True)
class Course:
    """One capture: what was asked for, and the strategies for it.

    Attributes:
        vain: lines that were captured so that nothing is decided there, which gave no program for all sizes.
        reasons: why what sizes decide could not be captured both ways.
        begun: when, as `time.thread_time` has it.
    """

    request: Request
    strategies: Strategies
    vain: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.thread_time)

    def from_examples(self) -> Captured:
        """The program captured from the given example, or from another one where that says more.

        Raises:
            CaptureError, DynamicShapeError: as `capture`.
        """
        examples = Examples(self.request.asked, self.request.module, self.request.given)
        try:
            captured = self._looked_at_again(self._chosen(examples), examples)
        except CaptureError as error:
            captured = self._by_rounds(error, examples)
        except DynamicShapeError as error:
            captured = self._by_choices_in_rounds(error, examples)
        self._hold_for_example(captured, examples)
        return captured

    def _hold_for_example(self, captured: Captured, examples: Examples) -> None:
        """Raises where a program says itself that it is none at the example's sizes."""
        symbols = captured.symbols
        if symbols is None or self.request.guards == "allow" or captured.strategy in ASSUMING:
            return
        texts = {name: examples.given.get(symbols.text(name)) for name in symbols.axes}
        sizes = {name: size for name, size in texts.items() if size is not None}
        beyond = [one for one in captured.restrictions if guard_points.is_false_at(one.expression, sizes)]
        if beyond:
            raise narrower(beyond, self.request.asked)

    def _by_rounds(self, first: CaptureError, examples: Examples) -> Captured:
        """The program with loops that end by data as operators, and small decisions by data as choices of values.

        Raises:
            CaptureError: the first error, and why, where that is no program.
        """
        places: set[str] = set()
        found, reason = {_place(first)}, ""
        while found := {one for one in found if any_loop([one]) or any_data_choice([one])} - places:
            places |= found
            ways = self.strategies
            if any_data_choice(places):  # a strict capture does not tell which tensors share memory
                ways = [one for one in ways if one[0] != STRICT]
            module = self.request.module
            with loops_as_operators(module, places) as why, choices_of_values(module, places) as shared:
                try:
                    captured = replace(self, strategies=ways)._chosen(examples)
                except (CaptureError, DynamicShapeError) as another:
                    other = another.problem if another.problem != first.problem else ""
                    reason = reason or (why[0] if why else assumptions.why_one_way(another) or other)
                    is_of_sizes = isinstance(another, DynamicShapeError)
                    found = set(_choices_within(another)) if is_of_sizes else {_place(another)}
                    continue
            if reason := self._why_no_choice(captured, shared):
                break
            self._check_choices(captured, places)
            return captured
        if not reason:
            raise first
        what = "loop there is no operator of the file" if any_loop(places) else "`if` there is no choice of values"
        raise first.saying_more(f"the {what}: {reason}")

    def _by_choices_in_rounds(self, first: DynamicShapeError, examples: Examples) -> Captured:
        """The program with what data decide in a loop's rounds as choices of values, so that the loop is an operator.

        From a small example each round was captured both ways, with as many rounds as there are in the example.

        Raises:
            DynamicShapeError: the first error, where that is no program.
        """
        module, places = self.request.module, {place for place in _choices_within(first) if any_data_choice([place])}
        if not places:
            raise first
        ways = [one for one in self.strategies if one[0] != STRICT]
        with choices_of_values(module, places) as shared:
            try:
                captured = replace(self, strategies=ways)._chosen(examples)
            except (CaptureError, DynamicShapeError):
                raise first from None
        if captured.strategy in ASSUMING or captured.harmful or self._why_no_choice(captured, shared):
            raise first
        self._check_choices(captured, places)
        return captured

    def _why_no_choice(self, captured: Captured, shared: Sequence[str]) -> str:
        """Why a program with choices of values may give something else than the model; empty where it does not."""
        if shared and captured.writes:
            return f"{shared[0]} is one of two things there, and something is written to in place"
        if give_another_dtype(captured.traced):
            return "a number that the data say gives another dtype than Python's beside tensors of one element"
        return ""

    def _check_choices(self, captured: Captured, places: Collection[str]) -> None:
        args, kwargs = self.request.given
        sizes = assumptions.some_sizes(captured, args, kwargs)
        elsewhere = itertools.chain(of_other_reach(args, kwargs), of_unlike_rows(args, kwargs), sizes)
        assumptions.check_both_ways(captured.traced, self.request.module, args, kwargs, sorted(places), elsewhere)

    def _chosen(self, examples: Examples) -> Captured:
        try:
            captured = self._from_first(examples)
        except (DynamicShapeError, CaptureError) as error:
            if not isinstance(error, DynamicShapeError) and not _is_traced_only(error):
                raise
            others = self._taken(examples), self._from_others(examples), self._both_ways(examples)
            for captured in itertools.chain(*others):
                return captured
            if self.reasons:
                error.saying_more(f"both ways are not one file: {self.reasons[0]}")
            raise
        if captured.strategy in ASSUMING:
            return captured
        if captured.harmful:
            others = self._taken(examples), self._from_others(examples, captured), self._both_ways(examples)
            for other in itertools.chain(*others):
                return other
        limiting = _limiting_lines(captured)
        if not captured.harmful and _any_taken(limiting):
            for other in self._taken(examples):
                if not _any_taken(_limiting_lines(other)):
                    return other
        if not captured.harmful and any_decision(limiting):
            for other in self._both_ways(examples):
                if not any_decision(_limiting_lines(other)):
                    return other
        elif not captured.harmful and _is_of_equal(captured) and any_equality(self.request.decided_at):
            for other in self._both_ways(examples):
                if not _is_of_equal(other):
                    return other
        return captured

    def _looked_at_again(self, captured: Captured, examples: Examples) -> Captured:
        """The program, or one of both ways where the model does something else beyond what trials found harmless.

        Where nothing captures both ways, or what they have in common, such a guard is a limit.
        """
        beyond = [] if captured.harmful or captured.has_both_sides else self._otherwise_beyond(captured, examples)
        if not beyond:
            return captured
        for other in itertools.chain(self._taken(examples), self._both_ways(examples)):
            if not {one.condition for one in beyond} & {one.condition for one in other.guards}:
                return other
        limits = [replace(one, restricts=True, is_limit=True, holds_beyond=False) for one in beyond]
        captured.guards = [limits[beyond.index(one)] if one in beyond else one for one in captured.guards]
        if self.request.guards == "error":
            raise narrower(limits, self.request.asked)
        return captured

    def _otherwise_beyond(self, captured: Captured, examples: Examples) -> list[Guard]:
        ways = [one for one in self._unassuming if one[0] in (NON_STRICT, BOTH_WAYS)]
        if captured.strategy not in (NON_STRICT, BOTH_WAYS) or not ways:
            return []

        def capture(inputs: Inputs, untried: Untried, fixed: Collection[str]) -> Captured:
            return self._beyond(inputs, untried, ways, fixed)

        def differs(inputs: Inputs) -> str:
            larger = of_unlike_rows(*inputs)
            return assumptions.difference(captured.traced, self.request.module, *inputs, larger)

        return list(otherwise_beyond(captured, examples, examples.given, capture, differs))

    def _beyond(self, inputs: Inputs, untried: Untried, strategies: Strategies, fixed: Collection[str]) -> Captured:
        """The program at other sizes, however few it holds for.

        Axes of one element are fixed there, as torch would take them for a constant.

        Args:
            inputs, untried, strategies: as for `otherwise_beyond`.
            fixed: further axes that are fixed, as messages call them.
        """
        request = replace(self.request, given=inputs, untried=untried, guards="allow")
        asked, leaves = request.asked, pytree.tree_leaves(inputs)
        sizes = {axis: leaves[asked.positions[axis.where]].shape[axis.axis] for axis in asked.axes}
        single = [(axis.where, axis.axis) for axis, size in sizes.items() if size == 1 or axis.text in fixed]
        if not single:
            return by_strategies(request, inputs, strategies)
        asked = copy.deepcopy(asked)
        asked.fix(single)
        request = replace(request, asked=asked, not_held=[], refused=[], taken=[])
        return by_strategies(request, inputs, strategies)

    def _taken(self, examples: Examples) -> Iterator[Captured]:
        """The program that crops, pads and chooses numbers at every size, where that makes it hold for all."""
        if not _any_taken(self.request.decided_at - self.vain):
            return
        inputs = examples.lifted(examples.small(required=True))
        captured: Captured | None = None
        seen: set[str] = set()
        while inputs is not None and _any_taken(self.request.decided_at - seen):
            if captured is not None and not captured.restrictions:
                break
            seen |= self.request.decided_at  # a capture that ends at the next such line tells of that one
            chosen = numbers_chosen(self.request.module, seen)
            taken = (crops_taken(), pads_taken(), resizes_taken(), chosen)
            with contextlib.suppress(CaptureError, DynamicShapeError), contextlib.ExitStack() as stack:
                for one in taken:
                    stack.enter_context(one)
                captured = self._from(inputs, self._unassuming)
        if captured is not None and self._holds_everywhere(captured) and self._is_model(captured):
            captured.has_both_sides = True
            yield captured
        self.vain.update(seen)

    def _both_ways(self, examples: Examples) -> Iterator[Captured]:
        """The program with both ways of what sizes decide, where that makes it hold for all.

        It has to do what the model does where programs before did not.
        """
        if not any_decision(self.request.decided_at):
            return
        given = examples.lifted(examples.small(required=True))
        others = list(itertools.islice(examples.at_some(self.request.not_held), _OTHERS))
        strategies = [one for one in self._unassuming if one[0] in (NON_STRICT, BOTH_WAYS)]
        several = [inputs for inputs in (given, *others) if inputs is not None]
        met: list[sympy.Basic] = []
        others_said: list[str] | None = None
        for is_real, inputs in itertools.product((False, True), several):  # a way may fail at one of them alone
            if is_real and not met:
                return
            if self._is_late():
                break
            if is_real and others_said is None:  # what is said of sizes that are no way's comes last
                others_said, self.reasons[:] = [*self.reasons], []
            with real_sizes(examples, self.request.asked) if is_real else conditions_met(met):
                captured = self._decided(inputs, strategies)
            if captured is None or captured.symbols is None or not self._holds_everywhere(captured):
                continue
            trials = Trials(captured.traced, captured.symbols, self.request.module, *inputs)
            if trials.holds_at(self.request.not_held) and self._is_model(captured):
                yield captured
        self.reasons.extend(others_said or ())

    def _is_late(self) -> bool:
        """Whether both ways were tried for so long that it ends here; then it is a reason of its own."""
        if time.thread_time() - self.begun <= _SECONDS_BOTH_WAYS:
            return False
        self.reasons.append(f"none was found in {_SECONDS_BOTH_WAYS:.0f} s of computing")
        return True

    def _is_model(self, captured: Captured) -> bool:
        """Whether a program of code that was written anew is the model, at the example and at other sizes."""
        args, kwargs = self.request.given
        sizes = itertools.islice(assumptions.some_sizes(captured, args, kwargs), 2)  # larger ones take their time
        problem = assumptions.difference(captured.traced, self.request.module, args, kwargs, sizes)
        self.reasons.extend([problem] if problem else [])
        return not problem

    def _decided(self, inputs: Inputs, strategies: Strategies) -> Captured | None:
        """The program with decisions as data, where there is one; a way may come to decisions that no other came to."""
        found, places = None, set[str]()
        for _ in range(_TURNS):
            if not any_decision(self.request.decided_at - places) or (places and self._is_late()):
                break
            places = set(self.request.decided_at)
            try:
                with decisions_as_data(self.request.module, places):
                    found = self._from(inputs, strategies)
            except (CaptureError, DynamicShapeError) as error:
                self.reasons.extend(filter(None, [assumptions.why_one_way(error)]))
        if found is not None:
            found.has_both_sides = not any_decision(self.request.decided_at - places)
        return found

    def _from_first(self, examples: Examples) -> Captured:
        firm, left = examples.small(required=True), examples.small(required=False)
        if left:
            inputs = examples.lifted([*firm, *left])
            with contextlib.suppress(CaptureError, DynamicShapeError):
                captured = None if inputs is None else self._from(inputs)
                if captured is not None and self._are_free(captured, left):
                    return captured
            self.request.asked.fix([(axis.where, axis.axis) for axis in self.request.asked.axes if axis.text in left])
            examples = Examples(self.request.asked, self.request.module, self.request.given)
        inputs = examples.lifted(firm)
        if inputs is None:
            raise one_only(self.request.asked, examples.given, firm)
        return self._from(inputs)

    def _from_others(self, examples: Examples, first: Captured | None = None) -> Iterator[Captured]:
        """Programs captured from examples of other sizes that hold for all sizes, the given ones among them.

        There are none where Python counts with a size (`for place in range(n // 64)`), nor where torch takes one as a
        number on the same way (`x.unbind()`): each capture has its own number.

        Args:
            examples: the given one, and others.
            first: what was captured before. Where its conditions hold a capture takes the same branches again.
        """
        if first is not None and any(guard.counts for guard in first.harmful):
            return
        multiples = ((inputs, False) for inputs in examples.others())
        searched = ((inputs, True) for inputs in examples.at_some(self.request.not_held))
        for inputs, is_searched in itertools.chain(multiples, searched):
            sizes = examples.sizes_of(inputs)
            if any(taken.is_taken_at(sizes) for taken in self.request.taken) or is_in_vain(self.request.refused, sizes):
                continue
            if time.thread_time() - self.begun > _SECONDS:
                return
            if first is not None and not is_searched and _takes_same_branches(first, sizes):
                continue
            with contextlib.suppress(CaptureError, DynamicShapeError):
                captured = self._from(inputs, self._unassuming)
                if is_searched and any(_is_of_few(guard) for guard in captured.guards):
                    continue
                if self._holds_everywhere(captured):
                    yield captured

    def _holds_everywhere(self, captured: Captured) -> bool:
        return not captured.harmful and captured.free_axes() >= len(self.request.asked.axes)

    @property
    def _unassuming(self) -> Strategies:
        return [one for one in self.strategies if one[0] not in ASSUMING]

    def _from(self, inputs: Inputs, strategies: Strategies | None = None) -> Captured:
        return by_strategies(self.request, inputs, strategies or self.strategies)

    def _are_free(self, captured: Captured, axes: Sequence[str]) -> bool:
        """Whether axes that were left to the exporter are free, and no guard takes sizes from them."""
        wanted = [(axis.where, axis.axis) for axis in self.request.asked.axes if axis.text in axes]
        held = {place for guard in (*captured.guards, *captured.not_one) for place in (*guard.fixes, *guard.narrows)}
        return captured.free_axes() == len(self.request.asked.axes) and not held.intersection(wanted)


def _choices_within(error: CaptureError | DynamicShapeError) -> list[str]:
    """Where the rounds of the loop that an error names ask something (`file:line`)."""
    file, _, line = str(error.source or "").rpartition(":")
    tree = parsed(file) if line.isdecimal() else None
    loops = [one for one in ast.walk(tree) if isinstance(one, (ast.For, ast.While))] if tree is not None else []
    within = [one for one in loops if one.lineno <= int(line) <= (one.end_lineno or one.lineno)]
    asked = (one for loop in within for one in ast.walk(loop) if isinstance(one, (ast.If, ast.IfExp)))
    return [f"{file}:{one.test.lineno}" for one in asked]


def _place(error: CaptureError | DynamicShapeError) -> str:
    """`file:line` of what a capture ended at."""
    return str(error.source or "")


def _is_of_few(guard: Guard) -> bool:
    """Whether a guard is of a branch that few sizes take, or of shapes that are shown as at one of them.

    What is a number at each size that the model takes (what `view(..., -1)` leaves for channels) is neither.
    """
    return guard.restricts or (guard.fixes_size and guard.holds_beyond)


def _is_traced_only(error: CaptureError) -> bool:
    """Whether all that could capture the example was a trace, which holds for its sizes only."""
    last = error.attempts[-1] if error.attempts else None
    return isinstance(last, Attempt) and last.strategy == TRACE and not last.error


def _any_taken(places: Collection[str]) -> bool:
    """Whether some places do nothing but crop, pad or choose numbers, which may be done at every size."""
    return any_crop(places) or any_pad(places) or any_resize(places) or any_choice(places)


def _limiting_lines(captured: Captured) -> list[str]:
    """Where the model asks what the program holds to only for the sizes that it shows."""
    return [guard.source for guard in captured.restrictions if guard.is_limit]


def _is_of_equal(captured: Captured) -> bool:
    """Whether a program holds only for sizes that are equal, where the model has others, too."""
    return any(isinstance(guard.expression, sympy.Eq) for guard in captured.restrictions if guard.is_limit)


def _takes_same_branches(captured: Captured, sizes: Mapping[str, int]) -> bool:
    conditions = [guard.expression for guard in captured.guards if guard.expression is not None]
    return captured.symbols is not None and guard_points.all_hold(conditions, captured.symbols, sizes)
