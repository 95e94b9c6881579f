"""Loops of a model's code over a size (`for step in range(n):`, `for one in x.unbind(1):`), with a round as a function.

Arrives: a function's code. Leaves: code that does the same, in which a loop over a free size may be run as one operator
(`free_loops.py`): a round takes the names that go on from round to round, and of each tensor that it reads at the
step's place the slice there; it gives these names anew, and what it puts into lists or writes at the step's place. It
may compute with the step as a whole number. Loops that use the step for anything else, or reach further than their
function's names, stay as they are.
"""

from __future__ import annotations

import ast
import copy
import dis
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from batch_export.exporter.capture import function_sources, listed_loops, loop_bodies, loop_statements, step_numbers
from batch_export.exporter.capture.loop_ways import WALKED, LoopWay

STEPS, IS_FREE, RUN = "__steps_of_a_free_loop__", "__is_a_free_loop__", "__run_a_free_loop__"
"""What the new code calls: what a loop goes over, whether it can be run as one operator now, and that operator."""
TURNED = "__turned_in_a_loop__"
BODY = "__round_of_a_loop__"
COUNT = "__count_of_a_loop__"
"""A round's name for the step as a tensor."""


def with_rounds(code: CodeType, *, over_names: bool = False) -> CodeType:
    """The same function, with rounds of loops as functions; the code itself where it has no such loop.

    Args:
        code: the function's own.
        over_names: whether loops over what a name stands for are such, too.
    """
    if code.co_name.startswith("<") or not (over_names or (WALKED.intersection(code.co_names) and _is_looping(code))):
        return code
    made = function_sources.tree_of(code)
    if made is None:
        return code
    changing = _Loops(code, made, over_names)
    made.body = [one for statement in made.body for one in changing.changed(statement)]
    if not changing.count:
        return code
    return function_sources.compiled(made, code) or code


def _is_looping(code: CodeType) -> bool:
    """Whether there may be a loop without loops of its own, which is quickly told: few functions are read."""
    if any(isinstance(one, CodeType) and one.co_name == "<listcomp>" and _is_looping(one) for one in code.co_consts):
        return True
    if _NEXT not in code.co_code[::2]:
        return False
    instructions = list(dis.get_instructions(code))
    loops = [one for one in instructions if one.opcode == _NEXT]
    return any(_is_without_loops(instructions, loop) for loop in loops)


def _is_without_loops(instructions: Sequence[dis.Instruction], loop: dis.Instruction) -> bool:
    """Whether a round has no loops of its own, and leaves it nowhere else."""
    inside = [one for one in instructions if loop.offset < one.offset < loop.argval - 2]
    jumps = [one for one in inside if one.opcode in dis.hasjrel]
    return all(one.opcode != _NEXT and loop.offset < one.argval <= loop.argval for one in jumps)


_NEXT = dis.opmap["FOR_ITER"]


@dataclass(slots=True)
class _Loops:
    """Changes the loops of one function."""

    code: CodeType
    function: ast.FunctionDef
    over_names: bool
    count: int = 0

    def changed(self, statement: ast.stmt) -> list[ast.stmt]:
        """A statement with its loops changed."""
        if isinstance(statement, ast.For) and (made := self._loop(statement)) is not None:
            return made
        listed = listed_loops.as_loop(statement, self.count + 1)
        if listed is not None and (made := self._loop(listed.loop, is_list=True)) is not None:
            return [listed.begun, *made, *(self.changed(listed.behind) if listed.behind else ())]
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                setattr(statement, name, [one for each in inner for one in self.changed(each)])
        return [statement]

    def _loop(self, loop: ast.For, *, is_list: bool = False) -> list[ast.stmt] | None:
        way, over = LoopWay.of(loop, over_names=self.over_names), loop.iter
        if way is None or loop.orelse:
            return None
        last = over.end_lineno or over.lineno
        carried = frozenset[str]() if is_list else loop_bodies.carried_from(self.code, over.lineno, last)
        if carried is None or carried & {way.step, way.element}:
            return None
        extended = {added[0] for one in loop.body if (added := loop_statements.added(one)) is not None}
        carried -= extended
        names = frozenset((*self.code.co_varnames, *self.code.co_cellvars, *self.code.co_freevars))
        stored, changed = loop_statements.stored(loop), loop_statements.changed(loop)
        tensors = carried | {way.element} if way.element and way.element not in stored else carried
        body = _Round(way.step, names, way, tensors, loop_statements.summed(loop, carried))
        if way.element:
            body.read.append(_Slice(f"__rows_{self.count + 1}__", 0, way.element))
        statements = [body.visit(copy.deepcopy(one)) for one in loop.body]
        if not body.is_followed or not all(map(loop_statements.is_straight, loop.body)):
            return None
        read = {one.of for one in body.read}
        if self._is_written_later({*carried, *read, *body.lists}, names, loop):  # in a list may be the same tensor
            return None
        if body.summed and (body.lists or body.written):
            return None
        if way.element in changed:  # the slice is written to, and the tensor with it
            return None
        if (stored - extended) & (read | body.lists.keys() | body.written.keys()) or body.touches(statements):
            return None
        self.count += 1
        return body.written_out(loop, sorted(carried), statements, self.count)

    def _is_written_later(self, names: Collection[str], known: Collection[str], loop: ast.For) -> bool:
        """Whether what one of some names stands for, or is part of, is written to behind the loop."""
        later = (one for one in ast.walk(self.function) if getattr(one, "lineno", 0) > (loop.end_lineno or 0))
        written = (part for one in later for part in loop_statements.written(one, known))
        return any(isinstance(each, ast.Name) and each.id in names for one in written for each in ast.walk(one))


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _is_whole(index: ast.expr) -> bool:
    """Whether an index is `:`."""
    return isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)


def _is_rest(index: ast.expr) -> bool:
    """Whether an index is `...`."""
    return isinstance(index, ast.Constant) and index.value is ...


@dataclass(frozen=True, slots=True)
class _Slice:
    """A tensor that is read at the step's place along one of its axes."""

    of: str
    axis: int
    name: str


@dataclass(slots=True)
class _Round(ast.NodeTransformer):
    """One round: what it reads at the step's place, and what it gives besides the names that go on.

    Attributes:
        step: the loop's name for the step.
        known: the names of the loop's function.
        way: what the loop goes over.
        read: tensors that are read at the step's place.
        lists: lists that get one element, and the name of that element.
        turned: those of them that get it at their beginning.
        written: tensors that are written at the step's place: the name of what is written, and the axis.
        tensors: names that are known to stand for tensors.
        summed: names that go on and that `+=` and its like give a new value, if a number is what they begin with.
        is_counted: whether a number that the step is a part of goes into a tensor.
        is_followed: whether nothing else is done with the step or the lists.
    """

    step: str
    known: frozenset[str]
    way: LoopWay
    tensors: frozenset[str] = frozenset()
    summed: frozenset[str] = frozenset()
    read: list[_Slice] = field(default_factory=list)
    lists: dict[str, str] = field(default_factory=dict)
    turned: list[str] = field(default_factory=list)
    written: dict[str, tuple[str, int]] = field(default_factory=dict)
    is_counted: bool = False
    is_followed: bool = True

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Arithmetic of a tensor with whole numbers that the step is a part of, which is then a tensor too."""
        if not self._has_step(node) or step_numbers.kind(node, self.step, self._is_tensor) is not step_numbers.TENSOR:
            return self.generic_visit(node)
        sides = (self._counted(one) for one in (node.left, node.right))
        return ast.BinOp(next(sides), node.op, next(sides))

    def _counted(self, node: ast.expr) -> Any:
        """One side of such arithmetic, with the step's tensor in the place of the step."""
        if step_numbers.kind(node, self.step, self._is_tensor) is step_numbers.TENSOR:
            return self.visit(node)
        self.is_counted = self.is_counted or self._has_step(node)
        return step_numbers.as_tensor(node, self.step, COUNT)

    def _has_step(self, node: ast.expr) -> bool:
        return any(isinstance(one, ast.Name) and one.id == self.step for one in ast.walk(node))

    def _is_tensor(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript):
            return self._axis(node) is not None
        return isinstance(node, ast.Name) and node.id in self.tensors

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The step by itself."""
        self.is_followed = self.is_followed and node.id != self.step
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A matrix turned round: as an attribute dynamo takes it for an input that shares the memory of another."""
        turned = self.generic_visit(node)
        if node.attr not in ("T", "mT") or not isinstance(node.ctx, ast.Load):
            return turned
        return ast.Call(ast.Name(TURNED, ast.Load()), [node.value, ast.Constant(node.attr)], [])

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """A slice at the step's place."""
        axis = self._axis(node)
        if axis is None or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        of = node.value.id  # type: ignore[attr-defined]
        known = next((one for one in self.read if (one.of, one.axis) == (of, axis)), None)
        if known is None:
            known = _Slice(of, axis, f"__slice_{len(self.read)}__")
            self.read.append(known)
        listed = _indices(node)
        rest = [self.visit(one) for place, one in enumerate(listed) if place != self._place(listed)]
        taken = ast.Name(known.name, ast.Load())
        if not rest:
            return taken
        return ast.Subscript(taken, ast.Tuple(rest, ast.Load()), ast.Load())

    def _axis(self, node: ast.Subscript) -> int | None:
        """Which axis of a named tensor the step is an index of, from its end behind `...`; None for any other index."""
        listed = _indices(node)
        place = self._place(listed)
        if place is None or not isinstance(node.value, ast.Name):
            return None
        before, behind = listed[:place], listed[place + 1 :]
        if not any(_is_rest(one) for one in before):
            return place if all(_is_whole(one) for one in before) else None
        is_plain = all(_is_whole(one) or _is_rest(one) for one in before) and all(_is_whole(one) for one in behind)
        return -1 - len(behind) if is_plain else None

    def _place(self, listed: Sequence[ast.expr]) -> int | None:
        """Where among the indices the step stands first."""
        places = (place for place, one in enumerate(listed) if isinstance(one, ast.Name) and one.id == self.step)
        return next(places, None)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A write at the step's place."""
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            return self.generic_visit(node)
        axis, listed = self._axis(target), _indices(target)
        behind = listed[(self._place(listed) or 0) + 1 :]
        is_all = all(_is_whole(one) or _is_rest(one) for one in behind)
        if axis is None or not is_all or target.value.id in self.written:  # type: ignore[attr-defined]
            self.is_followed = False
            return node
        name = f"__written_{len(self.written)}__"
        self.written[target.value.id] = name, axis  # type: ignore[attr-defined]
        return ast.Assign([ast.Name(name, ast.Store())], self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """An element of a list, as one that is added to it."""
        added = loop_statements.added(node)
        if added is not None:
            return self._element(*added, node, is_first=False)
        if not isinstance(node.target, ast.Name) or node.target.id not in self.summed:
            return self.generic_visit(node)
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.Assign([node.target], self.visit(value))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """An element of a list, behind the others or before them."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="append"), args=[element], keywords=[]):
                is_first = False
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=of), attr="insert"),
                args=[ast.Constant(value=0), element],
                keywords=[],
            ):
                is_first = True
            case _:
                self.is_followed = False
                return node
        return self._element(of, element, node, is_first=is_first)

    def _element(self, of: str, element: ast.expr, node: ast.stmt, *, is_first: bool) -> ast.AST:
        if of in self.lists:
            self.is_followed = False
            return node
        self.lists[of] = f"__element_{len(self.lists)}__"
        self.turned += [of] if is_first else []
        return ast.Assign([ast.Name(self.lists[of], ast.Store())], self.visit(element))

    def _others(self, rounds: ast.FunctionDef, carried: Sequence[str]) -> list[str]:
        """What a round reads of the function's names besides."""
        names = [one for each in rounds.body for one in ast.walk(each) if isinstance(one, ast.Name)]
        stored = {one.id for one in names if loop_statements.is_store(one)} | {"__carried__", "__slices__", COUNT}
        return sorted({one.id for one in names if one.id in self.known} - stored - {*carried})

    def touches(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether a round does more with a list or a tensor that it writes to."""
        names = {one.id for each in statements for one in ast.walk(each) if isinstance(one, ast.Name)}
        return bool(names & {*self.lists, *self.written}) or bool({one.of for one in self.read} & {*self.written})

    def written_out(
        self, loop: ast.For, carried: Sequence[str], statements: Sequence[ast.stmt], number: int
    ) -> list[ast.stmt]:
        """The loop, as a choice between one operator and what was there."""
        over, body, steps = f"__over_{number}__", f"{BODY}{number}", f"__steps_{number}__"
        rounds = ast.parse(
            f"def {body}(__carried__, __slices__, {COUNT}):\n"
            f"    {_listed(carried)} = __carried__\n"
            f"    {_listed(one.name for one in self.read)} = __slices__\n"
            f"    return {_listed(carried)}, "
            f"{_listed((*self.lists.values(), *(name for name, _ in self.written.values())))}\n"
        ).body[0]
        assert isinstance(rounds, ast.FunctionDef)
        rounds.body[2:2] = list(statements)
        others = self._others(rounds, carried)
        slices = ", ".join(f"({one.of}, {one.axis})" for one in self.read)
        written = ", ".join(f"({name}, {axis})" for name, (_, axis) in self.written.items())
        parts = f"{steps}, {_listed(carried)}, [{slices}], {_listed(self.lists)}, [{written}]"
        summed = tuple(place for place, name in enumerate(carried) if name in self.summed)
        has_branches = any(isinstance(one, (ast.If, ast.IfExp)) for one in loop_statements.parts(loop.body))
        turned = "".join(f"    {name} = {name}[::-1]\n" for name in self.turned)
        chosen = ast.parse(
            f"{steps}, __rows_{number}__ = {STEPS}({over}, {self.way.is_backwards})\n"
            f"try:\n    {over}_free = {IS_FREE}({body}, {parts}, {_listed(others)}, {self.is_counted}, {summed}, "
            f"{has_branches})\n"
            f"except NameError:\n    {over}_free = False\n"
            f"if {over}_free:\n    {_listed(carried)}, {_listed(self.lists)} = {RUN}({body}, {parts})\n{turned}"
        ).body
        first = ast.Assign([ast.Name(over, ast.Store())], self.way.over)
        self.way.over_name(loop, over)
        choice = chosen[2]
        assert isinstance(choice, ast.If)
        choice.orelse = [loop]
        made = [first, rounds, *chosen]
        for one in (first, *chosen[:2], *choice.body, choice.test):
            _at(one, loop.lineno)
        _at(rounds.args, loop.lineno)
        return [ast.fix_missing_locations(ast.copy_location(one, loop)) for one in made]


def _listed(names: Mapping[str, str] | Sequence[str] | Iterator[str]) -> str:
    """Names as a tuple, on both sides of an assignment."""
    listed = list(names)
    return f"({', '.join(listed)},)" if listed else "()"


def _at(node: ast.AST, line: int) -> None:
    for one in ast.walk(node):
        if hasattr(one, "lineno"):
            one.lineno = one.end_lineno = line  # type: ignore[attr-defined]
