"""Ways through a model that part at decisions by data, and what one program of all of them computes at which place.

Arrives: for every way its program, without writes, and the decisions that it took. Leaves: levels, each with the values
that all ways behind it compute, and the choice at its end. That this is the model follows from its making: what has one
number is one operator of the same operands. Nothing is captured or run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.forced_decisions import Decision, OneWayOnlyError
from batch_export.exporter.capture.numbered_values import Numbers


@dataclass(frozen=True, slots=True)
class Way:
    """One way through a model.

    Attributes:
        program: what is computed on it, without writes. Beside its results it gives what was asked by data.
    """

    program: torch.export.ExportedProgram

    @property
    def ways(self) -> list[Way]:
        """Itself."""
        return [self]


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision, and what is behind it."""

    decision: Decision
    if_true: Tree
    if_false: Tree

    @property
    def ways(self) -> list[Way]:
        """All ways behind it."""
        return [*self.if_true.ways, *self.if_false.ways]


Tree = Way | Choice


@dataclass(frozen=True, slots=True)
class Constant:
    """A result that is no value of the graph."""

    value: object


Result = int | Constant
State = tuple[str, Any]
"""What is written to: ("weight", its name) or ("input", its place)."""


@dataclass(slots=True)
class Level:
    """What is computed before a choice, in order, and the choice.

    Attributes:
        computed: numbers of values.
        results: where each result is; None for what the branches give.
        asked: the number of what the choice goes by.
        branches: for true, for false; none where nothing is left to choose.
        operands: numbers of what the branches read of this level and those around it.
    """

    computed: list[int]
    results: list[Result | None]
    asked: int = -1
    branches: tuple[Level, ...] = ()
    operands: list[int] = field(default_factory=list)


class Planner:
    """Makes the levels of a tree.

    Args:
        tree: the ways.

    Attributes:
        numbers: those of all values.
        written: what is written to on some way.
        out_spec: how the model's results are nested.

    Raises:
        OneWayOnlyError: the ways give results of another structure.
    """

    def __init__(self, tree: Tree) -> None:
        self.numbers = Numbers()
        ways = tree.ways
        self._orders = {id(way): self.numbers.add(way.program) for way in ways}
        self.written: list[State] = list(dict.fromkeys(one for way in ways for one in _writes(way.program)))
        specs = [way.program.call_spec.out_spec.child(0) for way in ways]
        if any(spec != specs[0] for spec in specs):
            told = f"{tree.decision.text} chooses between" if isinstance(tree, Choice) else "there are"
            raise OneWayOnlyError(f"{told} results of another structure")
        self.out_spec: pytree.TreeSpec = specs[0]
        held = {place: number for number, place in self.numbers.given.items() if place[0] != "constant"}
        self._asked: dict[int, list[Result]] = {}
        self._results: dict[int, list[Result]] = {}
        for way in ways:
            of = {node.name: self.numbers.of[node] for node in way.program.graph.nodes if node.op != "output"}
            writes = _writes(way.program)
            given = [_result(argument, of) for argument in _user_results(way.program)]
            state: list[Result] = [of[writes[one]] if one in writes else held[one] for one in self.written]
            self._results[id(way)] = [*state, *given[: self.out_spec.num_leaves]]
            self._asked[id(way)] = given[self.out_spec.num_leaves :]
        self._every = range(len(self._results[id(ways[0])]))
        self.level = self._planned(tree, {*self.numbers.given, *self.numbers.submodules}, self._every)

    def _planned(self, tree: Tree, known: set[int], wanted: Sequence[int]) -> Level:
        ways = tree.ways
        common = set.intersection(*(set(self._orders[id(way)]) for way in ways)) - known
        now = known | common
        several = {place: [self._results[id(way)][place] for way in ways] for place in wanted}
        results = [some[0] if _is_one(some, now) else None for some in several.values()]
        level = Level([number for number in self._orders[id(ways[0])] if number in common], results)
        left = [place for place, one in zip(wanted, results, strict=True) if one is None]
        if isinstance(tree, Choice) and left:
            for place in left:
                self._fit(tree, several[place])
            asked = {self._asked[id(way)][tree.decision.place] for way in ways}
            level.asked = next((one for one in asked if isinstance(one, int)), -1)
            if len(asked) != 1 or level.asked not in now:
                raise OneWayOnlyError(f"the ways differ before {tree.decision.text} already")
            inner = {number for number in now if not self._is_made_again(number)}
            level.branches = tuple(self._planned(one, inner, left) for one in (tree.if_true, tree.if_false))
            read = set().union(*map(self._reads, level.branches))
            level.operands = sorted(read - self.numbers.submodules.keys())
        self._leave_out(level)
        return level

    def _is_made_again(self, number: int) -> bool:
        """Truth values and fractions of Python are no operands of a branch: it makes them of tensors by itself."""
        value = self.numbers.nodes[number].meta.get("val")
        return isinstance(value, (torch.SymBool, torch.SymFloat)) and number not in self.numbers.given

    def _leave_out(self, level: Level) -> None:
        """Leaves out what was to be made again and is not read."""
        read = {level.asked, *level.operands, *(one for one in level.results if isinstance(one, int))}
        kept: list[int] = []
        for number in reversed(level.computed):
            if number in read or not self._is_made_again(number):
                kept.append(number)
                read.update(self._operands(number))
        level.computed = kept[::-1]

    def _reads(self, level: Level) -> set[int]:
        """What a level reads from outside."""
        read = {*level.operands, *(one for one in level.results if isinstance(one, int))}
        read |= {level.asked} if level.branches else set()
        for number in level.computed:
            read.update(self._operands(number))
        return read - set(level.computed)

    def _operands(self, number: int) -> list[int]:
        return [self.numbers.of[one] for one in self.numbers.nodes[number].all_input_nodes]

    def _fit(self, choice: Choice, results: Sequence[Result]) -> None:
        """Refuses results of several kinds, of which an operator that chooses cannot give one."""
        kinds = list(dict.fromkeys(map(self._kind, results)))
        if len(kinds) > 1:
            raise OneWayOnlyError(f"{choice.decision.text} chooses between {' and '.join(kinds)}")
        if not isinstance(results[0], int) or not self._is_tensor(results[0]):
            raise OneWayOnlyError(f"{choice.decision.text} chooses between numbers, and only tensors can be chosen")

    def _is_tensor(self, number: int) -> bool:
        return isinstance(self.numbers.nodes[number].meta.get("val"), torch.Tensor)

    def _kind(self, result: Result) -> str:
        if isinstance(result, Constant):
            return f"{result.value!r}"
        value = self.numbers.nodes[result].meta.get("val")
        if isinstance(value, torch.Tensor):
            return f"a tensor of {str(value.dtype).removeprefix('torch.')} with {value.dim()} axes"
        return "a number of the data"


def _is_one(results: Sequence[Result], known: set[int]) -> bool:
    """Whether all ways give the same, which is at hand."""
    first = results[0]
    if isinstance(first, Constant):
        return all(
            isinstance(one, Constant) and type(one.value) is type(first.value) and one.value == first.value
            for one in results
        )
    return first in known and all(one == first for one in results)


def _result(argument: Any, of: Mapping[str, int]) -> Result:
    return Constant(argument.value) if isinstance(argument, ConstantArgument) else of[argument.name]


def _writes(program: torch.export.ExportedProgram) -> dict[State, str]:
    """What a program writes to, with the name of the new value."""
    inputs = program.graph_signature.user_inputs
    found: dict[State, str] = {}
    for spec in program.graph_signature.output_specs:
        if spec.kind in (OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", None)):
            found["weight", spec.target] = spec.arg.name
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            found["input", inputs.index(str(spec.target))] = spec.arg.name
    return found


def _user_results(program: torch.export.ExportedProgram) -> list[Any]:
    return [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
