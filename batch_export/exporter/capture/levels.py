"""What one program of all ways through a model computes at which place.

Arrives: the values that the ways give (see `joined_values.py`). Leaves: levels, each with what it computes in order,
among it choices between two inner levels. A value stands in a branch where nothing outside reads it: what only one way
computes is computed on no other. Nothing is captured or run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from batch_export.exporter.capture.joined_values import Joined
from batch_export.exporter.capture.numbered_values import Numbers, draws
from batch_export.exporter.capture.path_tree import Gathered, Result, Tree


@dataclass(slots=True)
class Fork:
    """A choice between two levels.

    Attributes:
        asked: the number of what it goes by.
        gives: numbers of the values that it chooses.
        branches: for true, for false.
        operands: numbers of what the branches read of the levels around them.
    """

    asked: int
    gives: list[int]
    branches: tuple[Level, Level]
    operands: list[int]


@dataclass(slots=True)
class Level:
    """What is computed, in order.

    Attributes:
        steps: numbers of values, and choices.
        results: where each result is.
    """

    steps: list[int | Fork]
    results: Sequence[Result]


@dataclass(slots=True)
class _Branching:
    """A choice that is being made: its place, and those of its branches."""

    asked: int
    inside: int
    if_true: int
    if_false: int
    gives: list[int] = field(default_factory=list)


class Planner:
    """Makes the levels of a tree.

    Args:
        tree: the ways.
        shares: whether what both ways of a decision do alike behind it is done once.

    Attributes:
        numbers: those of all values.
        written: what is written to on some way.
        out_spec: how the model's results are nested.
        level: the outermost level.
        known: by the id of a way, what is known of sizes on it.
        behind: by what a choice goes by and the side, what is known on all ways behind it.

    Raises:
        OneWayOnlyError: the ways do not fit together.
    """

    def __init__(self, tree: Tree, *, shares: bool) -> None:
        gathered = Gathered(tree)
        self.numbers: Numbers = gathered.numbers
        self.written, self.out_spec, self.known = gathered.written, gathered.out_spec, gathered.known
        self.behind = gathered.behind
        joined = Joined(gathered, tree, shares=shares)
        self.level = _Placing(self.numbers, joined).level()


class _Placing:
    """Which value stands in which place: 0 is outside of all choices, each choice has two of its own."""

    def __init__(self, numbers: Numbers, joined: Joined) -> None:
        self._numbers, self._joined = numbers, joined
        self._turns: dict[int, dict[int, int]] = {}
        self._branchings: dict[tuple[int, int, int], _Branching] = {}
        self._of_place: dict[int, _Branching] = {}
        self._kept: dict[int, set[int]] = {}
        begun = -1
        while begun != len(self._branchings):  # a choice that is found late may have effects of its own
            begun = len(self._branchings)
            self._place()

    def level(self) -> Level:
        """The outermost level."""
        return self._level(0, self._joined.results)

    def _place(self) -> None:
        """Gives every value that is read the places where it is computed, readers first."""
        self._kept.clear()
        for branching in self._branchings.values():
            branching.gives.clear()
        uses: dict[int, set[int]] = {}
        waiting: list[int] = []

        def read(number: int, place: int) -> None:
            if number not in uses:
                heapq.heappush(waiting, -number)
            uses.setdefault(number, set()).add(place)

        for one in (*self._joined.results, *self._joined.effects):
            if isinstance(one, int):
                read(one, 0)
        for branching in self._branchings.values():
            effects = self._joined.effects_of.get(branching.asked, ((), ()))
            for place, some in zip((branching.if_true, branching.if_false), effects, strict=True):
                for number in some:
                    read(number, place)
        while waiting:
            number = -heapq.heappop(waiting)
            is_again = self._numbers.is_made_again(number)
            places = uses[number] if is_again else self._reduced(number, uses[number])
            for place in sorted(places):
                if number in self._numbers.choices:
                    self._fork(number, place, read)
                elif number in self._numbers.calls:
                    self._kept.setdefault(place, set()).add(number)
                    for operand in self._numbers.operands(number):
                        read(operand, place)

    def _fork(self, number: int, place: int, read: object) -> None:
        choice = self._numbers.choices[number]
        key = (choice.asked, self._turn(number), place)
        if key not in self._branchings:
            first = 2 * len(self._branchings) + 1
            made = _Branching(choice.asked, place, first, first + 1)
            self._branchings[key] = self._of_place[first] = self._of_place[first + 1] = made
        branching = self._branchings[key]
        branching.gives.append(number)
        assert callable(read)
        read(choice.asked, place)
        read(choice.if_true, branching.if_true)
        read(choice.if_false, branching.if_false)

    def _reduced(self, number: int, places: Iterable[int]) -> set[int]:
        """The fewest places whence all of these can read it, none of which computes it without need."""
        found = set(places)
        if number in self._numbers.calls and draws(self._numbers.calls[number].node):
            return {0}  # a draw is made once
        while True:
            inner = {one for one in found if any(outer in found for outer in self._around(one))}
            both = {
                one.inside for one in map(self._of_place.get, found) if one and {one.if_true, one.if_false} <= found
            }
            if not inner and both <= found:
                return found
            found = (found - inner) | both

    def _around(self, place: int) -> Iterable[int]:
        while place in self._of_place:
            place = self._of_place[place].inside
            yield place

    def _turn(self, number: int) -> int:
        """How many choices by the same truth value a choice reads, one behind the other."""
        stack = [number]
        while stack:
            one = stack[-1]
            missing = [other for other in self._numbers.operands(one) if other not in self._turns]
            if missing and one not in self._turns:
                stack.extend(missing)
                continue
            stack.pop()
            self._turns.setdefault(one, self._counted(one))
        return self._turns[number][self._numbers.choices[number].asked]

    def _counted(self, number: int) -> dict[int, int]:
        some = [table for other in self._numbers.operands(number) if (table := self._turns[other])]
        counted = some[0] if some else {}
        for table in some[1:]:
            if table is not counted:
                counted = {one: max(counted.get(one, 0), table.get(one, 0)) for one in counted.keys() | table.keys()}
        if number in self._numbers.choices:
            asked = self._numbers.choices[number].asked
            counted = {**counted, asked: counted.get(asked, 0) + 1}
        return counted

    def _level(self, place: int, results: Sequence[Result]) -> Level:
        forks = [self._made(one) for one in self._branchings.values() if one.inside == place and one.gives]
        units: list[int | Fork] = [*sorted(self._kept.get(place, ())), *forks]
        by: dict[int, int] = {}
        for at, unit in enumerate(units):
            by.update(dict.fromkeys([unit] if isinstance(unit, int) else unit.gives, at))
        order: dict[int, None] = {}
        for first in range(len(units)):
            stack = [first]
            while stack:
                at = stack[-1]
                needed = (by[one] for one in self._read_by(units[at]) if one in by)
                missing = [one for one in needed if one not in order] if at not in order else []
                stack.extend(missing)
                if not missing:
                    order[stack.pop()] = None
        return Level([units[at] for at in order], results)

    def _made(self, branching: _Branching) -> Fork:
        choices = [self._numbers.choices[number] for number in branching.gives]
        true = self._level(branching.if_true, [one.if_true for one in choices])
        false = self._level(branching.if_false, [one.if_false for one in choices])
        read = {one for level in (true, false) for one in self._read(level)}
        operands = sorted(read - self._numbers.submodules.keys())
        return Fork(branching.asked, list(branching.gives), (true, false), operands)

    def _read_by(self, unit: int | Fork) -> list[int]:
        return self._numbers.operands(unit) if isinstance(unit, int) else [unit.asked, *unit.operands]

    def _read(self, level: Level) -> set[int]:
        """What a level reads from outside."""
        made: set[int] = set()
        read = {one for one in level.results if isinstance(one, int)}
        for unit in level.steps:
            read.update(self._read_by(unit))
            made.update([unit] if isinstance(unit, int) else unit.gives)
        return read - made
