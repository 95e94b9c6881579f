"""A loop over a free size as code: a choice between one operator and what was there.

Arrives: a loop, and one of its rounds by names (`loop_rounds.py`). Leaves: statements that hand the round over as a
function, with what goes on, what is read along an axis and what is filled, and the loop as it was behind an `else`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from batch_export.exporter.capture import loop_statements
from batch_export.exporter.capture.loop_forms import LoopForm
from batch_export.exporter.capture.loop_places import StepIndex
from batch_export.exporter.capture.loop_reads import Slice
from batch_export.exporter.capture.loop_rounds import Round, own_name
from batch_export.exporter.capture.loop_values import COUNT, FIRST, HIGHEST, LOWEST, NUMBER, NUMBER_OF

STEPS, FREE, BEFORE = "__steps_of_a_free_loop__", "__free_loop__", "__before_a_free_loop__"
LATER, LIMITS, LAST = "__later_in_a_free_loop__", "__limits_in_a_free_loop__", "__last_of_a_free_loop__"
"""What the new code calls: a loop's steps, the loop as one operator, what a tensor or a list holds before it, a
place that the first round does not come to, the lowest and the highest step, and the last round's."""
BODY, TRACED_BODY = "__round_of_a_loop__", "__traced_round_of_a_loop__"
"""What rounds are called; those that dynamo does not read have sizes that stay free like any other function."""


@dataclass(frozen=True, slots=True)
class WrittenLoop:
    """A loop as a choice between one operator and what was there.

    Attributes:
        form: the loop.
        body: a round.
        carried: the names that go on.
        number: tells the loops of a function apart.
        is_traced: whether it stands in a round of another one, or such a loop stands in its rounds.
    """

    form: LoopForm
    body: Round
    carried: Sequence[str]
    number: int
    is_traced: bool

    def statements(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """What stands in the loop's place.

        Args:
            statements: those of a round.
        """
        number, body, loop = self.number, self.body, self.form.plain
        over = [f"__over_{number}_{place}__" for place in range(len(body.way.over))]
        before = {one.name: one for one in body.before.values()}
        going = [*self.carried, *sorted(body.changed), *before]
        given = [name for names in body.lists.values() for name in names]
        names = {name: own_name(name, number) for name in (COUNT, FIRST, NUMBER, LOWEST, HIGHEST)}
        counted = f"{names[NUMBER]} = {NUMBER_OF}({names[COUNT]}, {names[LOWEST]}, {names[HIGHEST]})"
        rounds = ast.parse(
            f"def {self._name}(__carried__, __slices__, {names[COUNT]}, {names[FIRST]}):\n"
            f"    {_listed(going)} = __carried__\n"
            f"    {_listed(one.name for one in body.read)} = __slices__\n"
            f"    {counted if body.is_numbered else 'pass'}\n"
            f"    return {_listed(going)}, {_listed((*given, *(name for name, *_ in body.written.values())))}\n"
        ).body[0]
        assert isinstance(rounds, ast.FunctionDef)
        rounds.body[3:3] = list(statements)
        begun = "".join(
            f"try:\n    __begun_{name}__ = {name}\nexcept NameError:\n    __begun_{name}__ = None\n"
            for name in self.carried
        ) + "".join(
            f"__begun_{one.name}__ = {BEFORE}({one.of}, {_where(one.at)}, __steps_{number}__, {one.is_by_place})\n"
            for one in before.values()
        )
        way = f"{body.way.is_backwards}, {bool(body.way.elements)}"
        choice = ast.parse(
            f"__own_{number}__ = []\n"
            f"__steps_{number}__, __rows_{number}__ = {STEPS}({_listed(over)}, {way})\n"
            f"{self._limits()}"
            f"try:\n{_indented(begun + self._made(rounds, going, self._has_trial(), set(before)))}"
            f"except NameError:\n    __loop_{number}__ = None\n"
            f"__made_{number}__ = None if __loop_{number}__ is None else __loop_{number}__.run()\n"
            f"if __made_{number}__ is not None:\n"
            f"    {_listed(going)}, {_listed(body.lists)} = __made_{number}__\n"
        ).body
        first: list[ast.stmt] = [
            ast.Assign([ast.Name(name, ast.Store())], one) for name, one in zip(over, body.way.over, strict=True)
        ]
        if isinstance(loop, ast.For) and not self.form.is_shorter:
            body.way.over_these(loop, over)
        else:  # what its test compares may be no whole numbers
            none = ast.parse(f"try:\n    pass\nexcept Exception:\n    {over[0]} = None").body[0]
            assert isinstance(none, ast.Try)
            none.body, first = first, [none]
        chosen = choice[-1]
        assert isinstance(chosen, ast.If)
        chosen.body += self.form.behind
        first = [*self.form.counted, *first, *self.form.begun]
        for one in (*first, *choice):
            _at(one, loop.lineno)
        _at(rounds.args, loop.lineno)
        chosen.orelse = [loop]
        return [ast.fix_missing_locations(ast.copy_location(one, loop)) for one in (*first, rounds, *choice)]

    def _limits(self) -> str:
        """The lowest and the highest step, where rounds read the step as a number."""
        if not self.body.is_numbered:
            return ""
        names = (own_name(name, self.number) for name in (LOWEST, HIGHEST))
        return f"{_listed(names)} = {LIMITS}(__steps_{self.number}__)\n"

    @property
    def _name(self) -> str:
        return f"{TRACED_BODY if self.is_traced else BODY}{self.number}"

    def _has_trial(self) -> bool:
        """Whether a round has something that is to be tried first: an `if`, which data may decide, a loop."""
        kinds = (ast.If, ast.IfExp, ast.For)
        return (
            self.body.has_first
            or self.body.is_tried
            or self.body.is_numbered
            or any(isinstance(one, kinds) for one in loop_statements.parts(self.form.loop.body))
        )

    def _made(self, rounds: ast.FunctionDef, going: Sequence[str], has_trial: bool, before: Collection[str]) -> str:
        """The call that makes the operator, or nothing of it."""
        body, number = self.body, self.number
        carried = [f"__begun_{name}__" if name in self.carried or name in before else name for name in going]
        slices = ", ".join(f"({one.of}, {one.axis}, {_beside(one)}, {one.is_own})" for one in body.read)
        written = ", ".join(f"({name}, {_where(at)}, {added})" for name, (_, at, added) in body.written.items())
        options = {
            "others": _listed(body.others(rounds, going)),
            "numbers": _listed(body.numbers),
            "compared": _listed(body.compared),
            "counted": tuple(place for place, name in enumerate(going) if name in body.counted),
            "counts": tuple(map(len, body.lists.values())),
            "turned": tuple(place for place, name in enumerate(body.lists) if name in body.turned),
            "summed": tuple(place for place, name in enumerate(going) if name in body.summed),
            "changed": tuple(place for place, name in enumerate(going) if name in body.changed),
            "is_counted": body.is_counted,
            "has_first": body.has_first,
            "has_trial": has_trial,
            "is_traced": self.is_traced,
            "has_choice": self.body.has_choice,
        }
        told = ", ".join(f"{name}={value}" for name, value in options.items())
        return (  # the list of its own beside the others has as many references as one that nobody else knows
            f"__loop_{number}__ = {FREE}({self._name}, __steps_{number}__, {_listed(carried)}, [{slices}], "
            f"{_listed((*body.lists, f'__own_{number}__'))}, [{written}], {told})\n"
        )


def _listed(names: Mapping[str, object] | Iterable[str]) -> str:
    """Names as a tuple, on both sides of an assignment."""
    listed = list(names)
    return f"({', '.join(listed)},)" if listed else "()"


def _beside(one: Slice) -> str:
    """How many places behind the step's, or the place."""
    return f"{LATER}({one.beside})" if one.is_later else str(one.beside)


def _where(at: StepIndex | None) -> str:
    """The axis, and how far beside the step's place."""
    return "None, 0" if at is None else f"{at.axis}, {at.beside}"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _at(node: ast.AST, line: int) -> None:
    for one in ast.walk(node):
        if hasattr(one, "lineno"):
            one.lineno = one.end_lineno = line  # type: ignore[attr-defined]
