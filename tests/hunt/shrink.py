"""The delta debugger: a failing program becomes a small one that fails in the same way.

A program and its two cases (the example, the one that fails) arrive; a smaller program with cases leaves. Every
candidate is judged again, and kept when outcome and kind are the same. Reductions, most effective first: one output,
what it needs, a later start (values of eager become inputs), single steps left out, fewer axes, plainer leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from hunt.judge import Case, Finding, judge
from hunt.programs import Leaf, Program, Step, Tensors, fresh, statement


@dataclass(frozen=True)
class Subject:
    """A program with the cases at which it fails."""

    program: Program
    cases: tuple[Case, ...]

    @property
    def weight(self) -> tuple[int, ...]:
        """What shrinking makes smaller."""
        program = self.program
        elements = sum(one.numel() for case in self.cases for one in case.values.values())
        return len(program.steps), len(program.outputs), len(program.leaves), len(program.axes), elements


class Shrinker:
    """Judges candidates within limits of number and time."""

    def __init__(self, subject: Subject, cause: tuple[str, str], *, trials: int = 80, seconds: float = 40.0) -> None:
        self.best, self._cause = subject, cause
        self._left, self._end = trials, time.monotonic() + seconds
        self.finding: Finding | None = None

    def run(self, reductions: Sequence[Callable[[Subject], Iterator[Subject]]]) -> Subject:
        """The smallest subject that these reductions find."""
        for reduce in reductions:
            self._exhaust(reduce)
        return self.best

    def _exhaust(self, reduce: Callable[[Subject], Iterator[Subject]]) -> None:
        again = True
        while again and self._left > 0 and time.monotonic() < self._end:
            again = any(self.accepts(candidate) for candidate in reduce(self.best))

    def accepts(self, candidate: Subject) -> bool:
        """Judges a candidate; it is the best from now on when it fails alike."""
        if self._left <= 0 or time.monotonic() > self._end:
            return False
        self._left -= 1
        try:
            finding = judge(candidate.program, candidate.cases)
        except Exception:  # a candidate that makes no sense is no candidate
            return False
        if finding.cause != self._cause:
            return False
        self.best, self.finding = candidate, finding
        return True


def _needed(program: Program) -> Program:
    """Without steps and leaves that no output needs; a write is needed by what shares the written tensor's memory."""
    wanted = set(program.outputs)
    kept: list[Step] = []
    relatives = _relatives(program)
    for step in reversed(program.steps):
        touched = set(step.writes) if step.writes else relatives.get(step.reads[0], set())
        if touched & wanted:
            kept.append(step)
            wanted |= set(step.reads)
    leaves = tuple(leaf for leaf in program.leaves if leaf.name in wanted)
    nested = tuple(name for name in program.nested if name in wanted)
    if not any(not leaf.is_buffer for leaf in leaves):
        leaves = tuple(leaf for leaf in program.leaves if leaf.name in wanted or leaf == program.inputs[0])
        nested = tuple(name for name in program.nested if name in {leaf.name for leaf in leaves})
    return replace(program, leaves=leaves, steps=tuple(reversed(kept)), nested=nested)


def _relatives(program: Program) -> dict[str, set[str]]:
    """For each variable all that may share its memory: it is read or written together with it somewhere."""
    groups: dict[str, set[str]] = {}
    for step in program.steps:
        joined = set().union(*(groups.get(name, {name}) for name in (*step.reads[:1], *step.writes)))
        for name in joined:
            groups[name] = joined
    return groups


def _with(subject: Subject, program: Program, cases: Sequence[Case] | None = None) -> Subject:
    program = _needed(program)
    names = {leaf.name for leaf in program.leaves}
    given = subject.cases if cases is None else cases
    kept = tuple(replace(case, values={k: v for k, v in case.values.items() if k in names}) for case in given)
    return Subject(program, kept)


def _one_output(subject: Subject) -> Iterator[Subject]:
    program = subject.program
    if len(program.outputs) > 1:
        for name in dict.fromkeys(program.outputs):
            yield _with(subject, replace(program, outputs=(name,), form="one"))
        for index in range(len(program.outputs)):
            rest = program.outputs[:index] + program.outputs[index + 1 :]
            yield _with(subject, replace(program, outputs=rest))
    elif program.form != "one":
        yield _with(subject, replace(program, form="one"))


def _later_start(subject: Subject) -> Iterator[Subject]:
    """Leaves out the first steps; what they made becomes inputs with eager's values. Late starts come first."""
    steps = subject.program.steps
    places = sorted({len(steps) - 1, len(steps) - 2, len(steps) // 2, 1}, reverse=True)
    for place in places:
        if 0 < place < len(steps):
            found = _started_at(subject, place)
            if found is not None:
                yield found


def _started_at(subject: Subject, place: int) -> Subject | None:
    program = subject.program
    try:
        values = [_variables(program, case.values, place) for case in subject.cases]
    except Exception:  # a special case at which eager stops
        return None
    rest = program.steps[place:]
    made = {name for step in rest for name in step.writes}
    wanted = [name for step in rest for name in step.reads] + list(program.outputs)
    names = [name for name in dict.fromkeys(wanted) if name not in made]
    if any(len({one[name].dim() for one in values}) > 1 for name in names):
        return None  # the number of axes depends on the sizes, and a leaf's does not
    old = {leaf.name: leaf for leaf in program.leaves}
    sizes = [dict(case.sizes) for case in subject.cases]
    leaves = [old.get(name) or _leaf(name, [one[name] for one in values], sizes) for name in names]
    cases = []
    for case, found, known in zip(subject.cases, values, sizes, strict=True):
        cases.append(Case({name: fresh(found[name]) for name in names}, known, case.mode))
    return _with(subject, replace(program, leaves=tuple(leaves), steps=rest), cases)


def _variables(program: Program, values: Tensors, place: int) -> Tensors:
    """Every variable after the first steps."""
    names: dict[str, object] = {"torch": torch, "F": torch.nn.functional, "math": __import__("math")}
    names.update({name: fresh(one) for name, one in values.items()})
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for step in program.steps[:place]:
            exec(statement(step), names)
    return {name: one for name, one in names.items() if isinstance(one, torch.Tensor)}


def _leaf(name: str, values: list[torch.Tensor], sizes: list[dict[str, int]]) -> Leaf:
    """An input for a value: an axis that moves with the cases is free, under the name of an axis that moves alike."""
    shape: list[int | str] = []
    for axis, first in enumerate(values[0].shape):
        moving = [one.shape[axis] for one in values]
        if len(set(moving)) == 1 and not any(
            known.get(axis_name) == first for known in sizes[:1] for axis_name in known
        ):
            shape.append(first)
            continue
        alike = [one for one in sizes[0] if [known[one] for known in sizes] == moving]
        if not alike and len(set(moving)) == 1:
            shape.append(first)
            continue
        chosen = alike[0] if alike else f"{name}_{axis}"
        for known, size in zip(sizes, moving, strict=True):
            known[chosen] = size
        shape.append(chosen)
    return Leaf(name, str(values[0].dtype).removeprefix("torch."), tuple(shape))


def _without_a_step(subject: Subject) -> Iterator[Subject]:
    program = subject.program
    for index in reversed(range(len(program.steps))):
        step = program.steps[index]
        before, after = program.steps[:index], program.steps[index + 1 :]
        if not step.writes:
            yield _with(subject, replace(program, steps=before + after))
            continue
        for stand_in in step.reads:
            names = dict.fromkeys(step.writes, stand_in)
            renamed = tuple(_renamed(one, names) for one in after)
            outputs = tuple(names.get(name, name) for name in program.outputs)
            yield _with(subject, replace(program, steps=before + renamed, outputs=outputs))


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    return replace(step, reads=tuple(names.get(name, name) for name in step.reads))


def _fewer_axes(subject: Subject) -> Iterator[Subject]:
    program = subject.program
    for axis in program.axes:
        sizes = {case.sizes[axis] for case in subject.cases}
        if len(sizes) == 1:
            leaves = tuple(
                replace(leaf, shape=tuple(_fixed(size, axis, subject) for size in leaf.shape))
                for leaf in program.leaves
            )
            yield _with(subject, replace(program, leaves=leaves))


def _fixed(size: int | str, axis: str, subject: Subject) -> int | str:
    return subject.cases[0].sizes[axis] if size == axis else size


def _plainer(subject: Subject) -> Iterator[Subject]:
    program = subject.program
    if program.nested:
        yield _with(subject, replace(program, nested=()))
    for leaf in program.leaves:
        if leaf.layout != "plain":
            leaves = tuple(replace(one, layout="plain") if one == leaf else one for one in program.leaves)
            plain = [
                replace(case, values={k: v.contiguous() for k, v in case.values.items()}) for case in subject.cases
            ]
            yield _with(subject, replace(program, leaves=leaves), plain)
        if leaf.is_buffer:
            leaves = tuple(replace(one, is_buffer=False) if one == leaf else one for one in program.leaves)
            yield _with(subject, replace(program, leaves=leaves))
        yield from _plainer_values(subject, leaf)


def _plainer_values(subject: Subject, leaf: Leaf) -> Iterator[Subject]:
    """One element for all: the first that shows the difference is enough."""
    case = subject.cases[-1]
    values = case.values[leaf.name]
    if values.numel() < 2 or len(set(map(str, values.flatten().tolist()))) == 1 or leaf.below:
        return
    for element in list(dict.fromkeys(values.flatten().tolist()))[:6]:
        same = torch.full_like(values, element)
        changed = replace(case, values={**case.values, leaf.name: same})
        yield Subject(subject.program, (*subject.cases[:-1], changed))


def _fewer_cases(subject: Subject) -> Iterator[Subject]:
    if len(subject.cases) > 1 and not subject.program.axes:
        yield Subject(subject.program, subject.cases[-1:])


QUICK = (_later_start,)
"""Enough for a defect of one operator."""
THOROUGH = (_one_output, _later_start, _without_a_step, _later_start, _fewer_axes, _plainer, _fewer_cases)


def shrunk(
    program: Program,
    cases: Sequence[Case],
    finding: Finding,
    is_known: Callable[[Subject, Finding], bool],
    seconds: float,
) -> tuple[Subject, Finding]:
    """The smallest form of a failing program, and what is found there.

    Args:
        program: it fails.
        cases: at which it was judged.
        finding: what was found.
        is_known: whether a form shrunk in a hurry is one of a known cause, which then is left as it is.
        seconds: to spend.
    """
    chosen = (cases[0],) if finding.case == 0 else (cases[0], cases[finding.case])
    shrinker = Shrinker(Subject(program, chosen), finding.cause, seconds=seconds)
    if 0 <= finding.output < len(program.outputs):
        shrinker.accepts(_with(shrinker.best, replace(program, outputs=(program.outputs[finding.output],), form="one")))
    best = shrinker.run(QUICK)
    if shrinker.finding is None or not is_known(best, shrinker.finding):
        best = shrinker.run(THOROUGH)
    return best, shrinker.finding or finding
