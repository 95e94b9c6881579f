"""Ways through a model that part at decisions by data, and what they give.

Arrives: for every way its program, without writes, and the decisions that it took. Leaves: where the results of each
way are among its values, what it writes to among them, and what it asked. Nothing is captured or run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.forced_decisions import Decision, OneWayOnlyError
from batch_export.exporter.capture.numbered_values import Numbers
from batch_export.exporter.capture.way_sizes import Taken, WaySizes, condition_of, known_on, known_on_all


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


class Gathered:
    """The values of all ways of a tree, by number.

    Args:
        tree: the ways.

    Attributes:
        numbers: those of all values.
        orders: by the id of a way, what it calls.
        written: what is written to on some way.
        out_spec: how the model's results are nested.
        known: by the id of a way, what is known of sizes on it.
        behind: by what a choice goes by and the side, what is known on all ways behind it.

    Raises:
        OneWayOnlyError: the ways give results of another structure.
    """

    def __init__(self, tree: Tree) -> None:
        self.numbers = Numbers()
        ways = tree.ways
        known = known_on([(way.program, taken) for way, taken in _taken(tree, ())])
        self.known = dict(zip(map(id, ways), known, strict=True))
        self.orders = {id(way): self.numbers.add(way.program, self.known[id(way)]) for way in ways}
        self.written: list[State] = list(dict.fromkeys(one for way in ways for one in _writes(way.program)))
        specs = [way.program.call_spec.out_spec.child(0) for way in ways]
        if any(spec != specs[0] for spec in specs):
            told = f"{tree.decision.text} chooses between" if isinstance(tree, Choice) else "there are"
            raise OneWayOnlyError(f"{told} results of another structure")
        self.out_spec: pytree.TreeSpec = specs[0]
        held = {place: number for number, place in self.numbers.given.items() if place[0] != "constant"}
        self._asked: dict[int, list[Result]] = {}
        self._results: dict[int, list[Result]] = {}
        self.behind: dict[tuple[int, bool], WaySizes] = {}
        for way in ways:
            of = {node.name: self.numbers.of[node] for node in way.program.graph.nodes if node.op != "output"}
            writes = _writes(way.program)
            given = [_result(argument, of) for argument in _user_results(way.program)]
            state: list[Result] = [of[writes[one]] if one in writes else held[one] for one in self.written]
            self._results[id(way)] = [*state, *given[: self.out_spec.num_leaves]]
            self._asked[id(way)] = given[self.out_spec.num_leaves :]

    def results(self, way: Way) -> list[Result]:
        """What a way writes, and what it gives."""
        return self._results[id(way)]

    def effects(self, way: Way) -> list[int]:
        """What a way calls for nothing but its effect, such as what it asserts."""
        nodes = way.program.graph.nodes
        return [self.numbers.of[node] for node in nodes if node.op == "call_function" and not node.users]

    def asked(self, choice: Choice) -> int:
        """What a choice goes by.

        Raises:
            OneWayOnlyError: its ways differ before it.
        """
        asked = {self._asked[id(way)][choice.decision.place] for way in choice.ways}
        if choice.decision.condition is not None:
            number = self.numbers.condition(condition_of(choice.decision), self._line_of(asked))
            for side, behind in ((True, choice.if_true), (False, choice.if_false)):
                known = [self.known[id(way)] for way in behind.ways]
                if (number, side) in self.behind:  # it is asked behind another decision as well
                    known.append(self.behind[number, side])
                self.behind[number, side] = known_on_all(known)
            return number
        (only,) = asked if len(asked) == 1 else (None,)
        if not isinstance(only, int):
            raise OneWayOnlyError(
                f"what {choice.decision.text} asks of the data is computed in another way on each side of a decision "
                "before it, so that no one value is there to choose by (compute what is asked before them)"
            )
        return only

    def _line_of(self, asked: Collection[Result]) -> torch.fx.Node | None:
        """A node at the line of what was asked."""
        calls = [self.numbers.calls[one] for one in asked if isinstance(one, int) and one in self.numbers.calls]
        return calls[0].node if calls else None


def _taken(tree: Tree, before: tuple[Taken, ...]) -> Iterator[tuple[Way, tuple[Taken, ...]]]:
    """The ways of a tree, each with the decisions on it."""
    if isinstance(tree, Choice):
        yield from _taken(tree.if_true, (*before, (tree.decision, True)))
        yield from _taken(tree.if_false, (*before, (tree.decision, False)))
    else:
        yield tree, before


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
