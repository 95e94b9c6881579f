"""Loops of a model's code over a size (`for step in range(n):`, `for one in x.unbind(1):`), with a round as a function.

Arrives: a function's code. Leaves: code that does the same, in which a loop over a free size may be run as one operator
(`free_loops.py`): a round takes what goes on from round to round, and of each tensor that it reads at the step's place
the slice there; it gives what goes on anew, and what it puts into lists or writes at the step's place
(`loop_rounds.py`, `loop_code.py`). Loops that use the step for anything else, or reach further than their function's
names, stay as they are.
"""

from __future__ import annotations

import ast
import copy
import dis
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from types import CodeType

from batch_export.exporter.capture import (
    filled_lists,
    function_sources,
    listed_loops,
    loop_bodies,
    loop_choices,
    loop_guarded_reads,
    loop_named_places,
    loop_reasons,
    loop_results,
    loop_soundness,
    loop_statements,
)
from batch_export.exporter.capture.loop_code import (
    BODY,
    LAST,
    TRACED_BODY,
    WrittenLoop,
)
from batch_export.exporter.capture.loop_forms import LoopForm
from batch_export.exporter.capture.loop_reads import Slice
from batch_export.exporter.capture.loop_rounds import Round
from batch_export.exporter.capture.loop_ways import WALKED, LoopWay


def with_rounds(code: CodeType, *, over_names: bool = False, numbered: Collection[int] = ()) -> CodeType:
    """The same function, with rounds of loops as functions; the code itself where it has no such loop.

    Args:
        code: the function's own.
        over_names: whether loops over what a name stands for are such, too.
        numbered: lines of loops that go over whole numbers by such a name.
    """
    if code.co_name.startswith(("<", BODY, TRACED_BODY)):
        return code
    if not (over_names or (WALKED.intersection(code.co_names) and _is_looping(code)) or _is_counting(code)):
        return code
    made = function_sources.tree_of(code)
    if made is None:
        return code
    changing = _Loops(code, made, over_names, numbered)
    made.body = [one for statement in filled_lists.appended(made.body) for one in changing.changed(statement)]
    if not changing.followed:
        return code
    return function_sources.compiled(made, code) or code


def _is_looping(code: CodeType) -> bool:
    """Whether there may be a loop that nothing leaves, which is quickly told: few functions are read."""
    if any(isinstance(one, CodeType) and one.co_name == "<listcomp>" and _is_looping(one) for one in code.co_consts):
        return True
    if _NEXT not in code.co_code[::2]:
        return "reduce" in code.co_names
    instructions = list(dis.get_instructions(code))
    loops = [one for one in instructions if one.opcode == _NEXT]
    return any(_is_not_left(instructions, loop) for loop in loops)


def _is_not_left(instructions: Sequence[dis.Instruction], loop: dis.Instruction) -> bool:
    """Whether a round goes nowhere else than to the next one."""
    inside = [one for one in instructions if loop.offset < one.offset < loop.argval - 2]
    jumps = [one for one in inside if one.opcode in dis.hasjrel]
    return all(loop.offset <= one.argval <= loop.argval for one in jumps)


def _is_counting(code: CodeType) -> bool:
    """Whether there may be a loop that ends by a test."""
    if _BACKWARD.isdisjoint(code.co_code[::2]):
        return False
    instructions = list(dis.get_instructions(code))
    steps = {one.offset for one in instructions if one.opcode == _NEXT}
    return any(
        one.opcode in dis.hasjrel and one.argval < one.offset and one.argval not in steps for one in instructions
    )


_NEXT = dis.opmap["FOR_ITER"]
_BACKWARD = frozenset(number for name, number in dis.opmap.items() if "BACKWARD" in name)


@dataclass(slots=True)
class _Loops:
    """Changes the loops of one function."""

    code: CodeType
    function: ast.FunctionDef
    over_names: bool
    numbered: Collection[int]
    count: int = 0
    followed: int = 0
    _depth: int = 0
    _generated: frozenset[str] = frozenset()

    def changed(self, statement: ast.stmt) -> list[ast.stmt]:
        """A statement with its loops changed."""
        form = LoopForm.of(statement, self.count + 1)
        if form is not None and (made := self._followed(form)) is not None:
            return made
        listed = listed_loops.as_loop(statement, self.count + 1)
        if listed is not None:
            plain = LoopForm.of_listed(listed.loop, self.count + 1)
            made = self._followed(plain, frozenset({listed.summed} - {""}), over_names=listed.is_reduction)
            if made is not None:
                return [listed.begun, *made, *(self.changed(listed.behind) if listed.behind else ())]
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                changed = [one for each in filled_lists.appended(inner) for one in self.changed(each)]
                setattr(statement, name, changed)
        return [statement]

    def _followed(
        self, form: LoopForm, carried: frozenset[str] | None = None, *, over_names: bool = False
    ) -> list[ast.stmt] | None:
        """A loop as a choice; None of one that goes over nothing free, or that nothing here follows, which is noted.

        Args:
            form: the loop.
            carried: the names that go on, where that is known.
            over_names: whether it may go over what a name stands for.
        """
        is_of_numbers = form.loop.iter.lineno in self.numbered
        way = LoopWay.of(form.loop, over_names=over_names or self.over_names, is_of_numbers=is_of_numbers)
        if way is None:
            return None
        try:
            return self._loop(form, way, carried)
        except _UnfollowedError as error:
            loop_reasons.note(self.code.co_filename, form.plain.lineno, str(error))
            return None

    def _loop(self, form: LoopForm, way: LoopWay, carried: frozenset[str] | None) -> list[ast.stmt]:
        read_besides = loop_statements.changed_and_read(form.loop, loop_statements.changed(form.loop))
        form = replace(form, loop=loop_results.written_anew(self.function, form.loop, read_besides))
        if way.step:
            form = replace(form, loop=loop_guarded_reads.by_step(form.loop, way.step))
        loop = form.loop
        self.count += 1
        number = self.count
        leaving = next((one for one in loop.body if not loop_statements.is_straight(one)), None)
        if leaving is not None or loop.orelse:
            raise _UnfollowedError(f"{loop_reasons.part(leaving or loop.orelse[0])} is no part of one operator")
        carried = loop_bodies.carried_from(self.code, form.plain) if carried is None else carried
        if carried is None:
            raise _UnfollowedError("a round changes more than names of its function (a global name, an element)")
        if foreign := loop_statements.foreign_attribute(loop):
            raise _UnfollowedError(f"{loop_reasons.part(foreign)} changes more than names of its function")
        carried = (carried - form.named) | form.written
        if isinstance(loop, ast.For) and way.step:
            loop = loop_named_places.by_step(loop, way.step, self.code.co_varnames, carried)
            form = replace(form, loop=loop)
        if way.step in carried and not form.is_shorter and way.step not in loop_choices.names_given(loop.body):
            last = ast.parse(f"{way.step} = {LAST}(__steps_{number}__)").body
            carried, form = carried - {way.step}, replace(form, behind=[*form.behind, *last])
        if form.written.intersection(way.elements):
            raise _UnfollowedError("a round writes to the tensor that the loop goes over")
        if kept := sorted(carried & {way.step, *way.elements}):
            raise _UnfollowedError(f"`{kept[0]}` is read behind it")
        stored, changed = loop_statements.stored(loop), loop_statements.changed(loop)
        going = {*carried, *stored, *changed, *loop_statements.filled(loop, way.step)}
        if seen := sorted(loop_soundness.read_by_functions_before(self.function, loop, going)):
            raise _UnfollowedError(f"`{seen[0]}`, which it changes, is read by a function that was made before it")
        extended = {added[0] for one in loop.body if (added := loop_statements.added(one)) is not None} & carried
        carried -= extended
        own = stored - carried - extended
        names = frozenset((*self.code.co_varnames, *self.code.co_cellvars, *self.code.co_freevars, *self._generated))
        tensors = {*carried, *(one for one in way.elements if one not in stored)}
        filled = {name: axis for name, axis in loop_statements.filled(loop, way.step).items() if name not in own}
        parted = {one: at for one, at in loop_statements.filled_in_part(loop, way.step).items() if one not in own}
        body = Round(
            names,
            way,
            own=frozenset(own),
            stored=frozenset(stored),
            tensors=tensors,
            filled={**filled, **parted},
            parted=parted,
            read_again=loop_statements.read_by_place(loop),
        )
        body.summed = loop_statements.summed(loop, carried)
        body.counted = loop_statements.changed_and_read(loop, carried)
        body.numbers += form.numbers
        body.has_elements = loop_statements.keeps_parts(loop.body, names)
        body.read += [Slice(f"__rows_{number}__[{place}]", 0, 0, name) for place, name in enumerate(way.elements)]
        statements = body.statements([copy.deepcopy(one) for one in loop.body])
        if body.unfollowed:
            raise _UnfollowedError(f"{body.unfollowed} is no part of one operator")
        read = {one.of for one in body.read if not one.is_own}
        later = self._written_later({*carried, *read, *body.lists}, names, loop)  # in a list may be the same tensor
        apart = {one for one in later & carried - read if loop_results.stands_apart(self.function, loop, one)}
        if joined := sorted(later - apart):
            raise _UnfollowedError(f"`{joined[0]}`, which it reads or gives, is written to behind it")
        form = replace(form, behind=[*form.behind, *loop_results.copies(sorted(apart), number)])
        written = {one.id for part in loop_statements.parts(loop.body) for one in _written_names(part, names)}
        if body.has_choice and (twice := sorted(written - body.summed - body.counted - filled.keys())):
            raise _UnfollowedError(f"`{twice[0]}`, which may be one of two tensors by the step, is written to")
        if changed.intersection(way.elements):  # the slice is written to, and the tensor with it
            raise _UnfollowedError("a round writes to the tensor that the loop goes over")
        known = read | body.lists.keys() | body.written.keys() | body.changed
        if twice := sorted((stored - extended) & known | body.changed & (carried | filled.keys())):
            raise _UnfollowedError(f"`{twice[0]}` stands for something else in each round")
        if body.touches(statements):
            raise _UnfollowedError("a round reads more of what it fills than its last element")
        followed = self.followed
        body.renamed(statements, number, {*names, *self.code.co_names, *carried})
        statements = self._with_inner(statements)
        is_traced = self._depth > 0 or self.followed > followed or body.is_numbered
        self.followed += 1
        form.plain.body = [each for one in form.plain.body for each in self.changed(one)]
        return WrittenLoop(form, body, sorted(carried), number, is_traced).statements(statements)

    def _with_inner(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A round's statements with the loops among them changed."""
        before = self._generated
        self._generated = before | {one.id for one in loop_statements.parts(statements) if isinstance(one, ast.Name)}
        self._depth += 1
        made = [each for one in statements for each in self.changed(one)]
        self._depth -= 1
        self._generated = before
        return made

    def _written_later(self, names: Collection[str], known: Collection[str], loop: ast.For) -> set[str]:
        """Those of some names of which what they stand for, or are part of, is written to behind the loop."""
        later = (one for one in ast.walk(self.function) if getattr(one, "lineno", 0) > (loop.end_lineno or 0))
        written = (part for one in later for part in loop_statements.written(one, known))
        found = {each.id for one in written for each in ast.walk(one) if isinstance(each, ast.Name)}
        return found & set(names)


def _written_names(part: ast.AST, known: Collection[str]) -> Iterable[ast.Name]:
    """The names of what a part of a round writes to."""
    return (one for one in loop_statements.written(part, known) if isinstance(one, ast.Name))


class _UnfollowedError(ValueError):
    """A loop stays as it is, and why."""
