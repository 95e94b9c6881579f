"""A small `if` on data as a choice of values: both sides are computed where it stands, and all that follows is one way.

Arrives: lines at which data decide. Leaves: a context in which an `if` there whose sides only give names new values, by
functions of tensors and arithmetic, gives them what the side that holds gives. So a decision in a loop is one choice in
each round, where ways through the whole model would be twice as many with each of them. Sides that call the model's own
code or leave their function stay as they are.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import torch

from batch_export.exporter.capture import (
    choice_expressions,
    choice_writes,
    data_crops,
    decided_lines,
    size_answers,
    size_decisions,
)
from batch_export.exporter.capture.choice_code import computing
from batch_export.exporter.capture.choice_effects import Effects
from batch_export.exporter.capture.choice_forms import (
    attributes,
    called_of,
    handed_on,
    is_choice,
    is_in_parts,
    may_share,
    names_of,
    statements,
)
from batch_export.exporter.capture.choice_numbers import Uses, is_forward
from batch_export.exporter.capture.choice_values import (
    APART,
    AUGMENTED,
    BY_DATA,
    CALLED,
    CHOSEN,
    COMPUTED,
    SHARED,
    WRITTEN,
)
from batch_export.exporter.capture.loop_guarded_reads import IN_ROUND
from batch_export.exporter.capture.loop_soundness import in_place
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.rewritten_code import rewritten


def any_choice(places: Iterable[str]) -> bool:
    """Returns whether there is such an `if` at some of several places (`file:line`)."""
    return decided_lines.any_of(places, _lines)


@contextlib.contextmanager
def choices_of_values(module: torch.nn.Module, places: Iterable[str]) -> Iterator[list[str]]:
    """Within, each such `if` of a model's functions at such lines is a choice.

    Args:
        module: the model.
        places: the lines.

    Yields:
        What has been given values that may share memory with something else, of which a choice is a copy.
    """
    shared: list[str] = []
    token = SHARED.set(shared)
    try:
        write = functools.partial(_written_anew, module=module)
        changed = decided_lines.written_anew(module, places, _lines, write)
        with rewritten(changed, {**size_answers.CALLED, **CALLED, **choice_writes.CALLED, **data_crops.CALLED}):
            yield shared
    finally:
        SHARED.reset(token)


def writes_in_place(program: torch.export.ExportedProgram) -> bool:
    """Whether a program writes to something, which another name of its memory would see."""
    graphs = [one for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    called = [node.target for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
    overloads = [one for one in called if isinstance(one, torch._ops.OpOverload) and one not in _HARMLESS]
    return any(one._schema.is_mutable for one in overloads)


_HARMLESS = (torch.ops.aten.detach_.default,)


@functools.lru_cache(maxsize=16)
def _lines(file: str) -> frozenset[int]:
    tree = copy.deepcopy(parsed(file))
    for loop in ast.walk(tree) if tree is not None else ():
        if isinstance(loop, (ast.For, ast.While)):
            loop.body = choice_expressions.as_statements(_without_continue(loop.body, None), is_choice)
    found = [one for one in ast.walk(tree) if isinstance(one, ast.If)] if tree is not None else []
    writes = _writes(tree) if tree is not None else set()
    lines = {line for one in found if is_choice(one) or id(one) in writes for line in _lines_of(one.test)}
    crops = (data_crops.lines_of(one, tree) for one in found if tree is not None and data_crops.is_crop(one))
    return frozenset(lines.union(*crops))


def _writes(tree: ast.AST) -> set[int]:
    """Those `if` in rounds of loops whose sides only write, as their ids."""
    loops = (one for one in ast.walk(tree) if isinstance(one, (ast.For, ast.While)))
    within = (one for loop in loops for one in loop.body if isinstance(one, ast.If))
    return {id(one) for one in within if choice_writes.is_of_writes(one)}


def _lines_of(test: ast.expr) -> range:
    return range(test.lineno, (test.end_lineno or test.lineno) + 1)


def _without_continue(body: list[ast.stmt], only: set[int] | None) -> list[ast.stmt]:
    """A round with what stands behind `if test: ...; continue` on the other side of that test.

    Args:
        body: the round.
        only: the lines at which it is written so; None for all.
    """
    for place, one in enumerate(body):
        match one:
            case ast.If(test=test, body=[*first, ast.Continue()], orelse=[]) if place + 1 < len(body):
                if only is None or only.intersection(_lines_of(test)):
                    rest = _without_continue(body[place + 1 :], only)
                    return [*body[:place], ast.copy_location(ast.If(test, first or [ast.Pass()], rest), one)]
    return body


def _written_anew(function: ast.FunctionDef, lines: set[int], module: torch.nn.Module) -> ast.FunctionDef | None:
    """A function with its choices at some lines as such; None where there is none."""
    choices = _Choices(function, lines, gives_outputs=is_forward(function, module))
    changed: ast.FunctionDef = choices.visit(function)
    return changed if choices.count else None


@dataclass(slots=True)
class _Choices(ast.NodeTransformer):
    """Writes choices.

    Attributes:
        function: in which they stand.
        only: the lines at which they do.
        count: how many were written.
        known: names that have values, besides the function's.
        wanted: names that are read behind it, besides the function's.
        gives_outputs: whether what the function returns are the model's outputs.
    """

    function: ast.FunctionDef
    only: set[int]
    count: int = 0
    known: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    gives_outputs: bool = False
    _names: list[ast.Name] = field(default_factory=list)
    _parameters: set[str] = field(default_factory=set)
    _in_place: set[str] = field(default_factory=set)
    _outer: set[str] = field(default_factory=set)
    _written: set[str] = field(default_factory=set)
    _uses: Uses | None = None
    _in_rounds: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for loop in ast.walk(self.function):
            if isinstance(loop, (ast.For, ast.While)):
                loop.body = choice_expressions.as_statements(_without_continue(loop.body, self.only), self._is_one_of)
        self._in_rounds = _writes(self.function)
        self._names = [copy.copy(one) for one in ast.walk(self.function) if isinstance(one, ast.Name)]
        self._parameters = {one.arg for one in ast.walk(self.function.args) if isinstance(one, ast.arg)}
        self._in_place = in_place(ast.walk(self.function))
        outer = (one for one in ast.walk(self.function) if isinstance(one, (ast.Global, ast.Nonlocal)))
        self._outer = {name for one in outer for name in one.names}
        self._uses = Uses.of(copy.deepcopy(self.function), gives_outputs=self.gives_outputs)
        choices = [one for one in ast.walk(self.function) if isinstance(one, ast.If) and self._is_asked(one)]
        inside = {id(part) for one in choices for part in ast.walk(one)}
        outside = (
            one.target for one in ast.walk(self.function) if id(one) not in inside and isinstance(one, ast.AugAssign)
        )
        self._written = {name for one in outside for name in _names_in(one)}

    def _is_one_of(self, node: ast.If) -> bool:
        return bool(self.only.intersection(_lines_of(node.test))) and is_choice(node)

    def _is_asked(self, node: ast.If) -> bool:
        is_here = bool(self.only.intersection(_lines_of(node.test)))
        return is_here and (id(node) in self._in_rounds or is_choice(node))

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """`if test:`."""
        if data_crops.is_crop(node) and self.only & data_crops.lines_of(node, self.function):
            self.count += 1
            return [ast.fix_missing_locations(_at(one, node)) for one in data_crops.cuts(node)]
        if not self._is_asked(node):
            return self.generic_visit(node)
        if id(node) in self._in_rounds:
            return self._with_writes(node)
        return self._as_choice(node)

    def _within(self, node: ast.If) -> ast.stmt:
        """An `if` that stays, with the choices within it."""
        made = self.generic_visit(node)
        assert isinstance(made, ast.stmt)
        return made

    def _with_writes(self, node: ast.If) -> list[ast.stmt]:
        """An `if` in a round whose sides only write: these, for an operator's round, beside what else it is."""
        self.count += 1
        of = sorted(called_of([*node.body, *node.orelse, node.test]))
        writes = [*_checked(of, self.count), *choice_writes.in_round(node, computing)]
        plain = self._as_choice(node) if is_choice(node) else self._within(node)
        test = ast.parse(f"{IN_ROUND}()", mode="eval").body
        made = ast.If(test, writes, plain if isinstance(plain, list) else [plain])
        return [ast.fix_missing_locations(_at(made, node))]

    def _as_choice(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        """An `if` as a choice of values; itself where it is none."""
        whole, effects = node, Effects.of(node)
        node = effects.node
        parts = [*statements(node)]
        before = {one.id for one in self._names if one.lineno < node.lineno and isinstance(one.ctx, ast.Store)}
        before |= self._parameters | effects.begun | self.known
        given = [_surely(side) for side in (node.body, node.orelse)]
        all_given, written = names_of(parts, ast.Assign), names_of(parts, ast.AugAssign)
        elsewhere = {one.id for one in self._names if not self._is_within(one, whole) and isinstance(one.ctx, ast.Load)}
        elsewhere |= _read_first(node.body) | _read_first(node.orelse)  # a round before may have given it
        changed = (all_given | written) & (elsewhere | before | effects.names | self.wanted)
        is_there = all(name in before or all(name in side for side in given) for name in changed)
        is_elsewhere = not self._outer.isdisjoint(changed)
        if not is_there or is_elsewhere or self._in_place & (all_given | handed_on(parts)):
            return self._within(whole)
        self.count += 1
        made = self._made(effects, sorted(changed), before, written, self.count)
        return [ast.fix_missing_locations(_at(one, whole)) for one in made]

    @staticmethod
    def _is_within(one: ast.Name, node: ast.If) -> bool:
        begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
        return begin <= (one.lineno, one.col_offset) < end

    def _made(
        self, effects: Effects, changed: list[str], before: set[str], written: set[str], number: int
    ) -> list[ast.stmt]:
        node = effects.node
        asked = f"__asked_{number}__"
        question = ast.Assign([ast.Name(asked, ast.Store())], size_decisions.as_calls(computing(node.test)))
        choice: list[ast.stmt] = []
        kept = {name: f"__before_{number}_{name}__" for name in changed if name in before}
        choice += [_line(f"{own} = {name}") for name, own in kept.items()]
        for own, side in (("then", node.body), ("else", node.orelse)):
            choice += [_line(f"{name} = {held}") for name, held in kept.items()]
            choice += [one for each in side for one in self._computed(each, effects)]
            choice += [_line(f"__{own}_{number}_{name}__ = {name}") for name in changed]
        for name in changed:
            told = f"{self._kinds(name)}, {name in written or _is_fresh(node, name)}"
            both = f"{CHOSEN}({asked}, __then_{number}_{name}__, __else_{number}_{name}__, {told})"
            choice.append(_line(f"{name} = {WRITTEN}({kept[name]}, {both})" if name in written else f"{name} = {both}"))
        read = sorted({one.id for part in statements(node) for one in ast.walk(part) if isinstance(one, ast.Name)})
        alone = sorted(written & kept.keys())
        made_here = {one.id for part in statements(node) for one in ast.walk(part) if _is_stored(one)} - before
        others = [name for name in read if name not in (*made_here, *written, *effects.containers)]
        others += sorted(attributes(statements(node)))
        check = [_line(f"{APART}(({_listed(alone)}), ({_listed(others)}))")] if alone else []
        if effects.containers:  # a loop looks itself at what its rounds fill
            apart = f"{APART}(({_listed([*alone, *sorted(effects.containers)])}), ({_listed(others)}))"
            check.append(_line(f"if not {IN_ROUND}():\n    {apart}"))
        asks = [node.test] if is_in_parts(node.test) else []
        of = sorted(called_of([*statements(node), *asks]))
        if any(text in made_here for text, _ in of):  # it may be something that was given another name
            of = [*((text, name) for text, name in of if text not in made_here)]
            of += [(name, "add") for name in sorted(handed_on(statements(node)) - made_here)]
        check += _checked(of, number)
        test = ast.parse(f"{BY_DATA}({asked})", mode="eval").body
        plain = ast.If(ast.Name(asked, ast.Load()), copy.deepcopy(node.body), copy.deepcopy(node.orelse))
        return [question, *effects.before, ast.If(test, [*check, *choice], [plain]), *effects.behind]

    def _kinds(self, name: str) -> str:
        """The kinds of numbers in whose place a name may be a tensor."""
        if self._uses is None or name.startswith("__"):  # an element of something, with uses of its own
            return "()"
        is_counted = self._written.isdisjoint(self._uses.names_of(name))  # `+=` elsewhere writes to a tensor
        return repr(tuple(kind for kind in self._uses.kinds_of(name) if kind == "bool" or is_counted))

    def _computed(self, statement: ast.stmt, effects: Effects) -> list[ast.stmt]:
        """A statement of a side, by which nothing is written to.

        Args:
            statement: which stays as it is.
            effects: what the choice does besides.
        """
        match statement:
            case ast.Pass():
                return []
            case ast.AugAssign(target=ast.Name(id=name), op=kind, value=value):
                given = [ast.Constant(type(kind).__name__), ast.Name(name, ast.Load()), computing(value)]
                return [ast.Assign([ast.Name(name, ast.Store())], ast.Call(ast.Name(AUGMENTED, ast.Load()), given, []))]
            case ast.If():
                own = self.known | effects.begun, self.wanted | effects.names
                inner = _Choices(self.function, {*_lines_of(statement.test)}, self.count, *own, self.gives_outputs)
                made = inner.visit_If(copy.deepcopy(statement))
                self.count = inner.count
                return made if isinstance(made, list) else [statement]
        return [computing(statement)]


def _checked(of: Sequence[tuple[str, str]], number: int) -> list[ast.stmt]:
    """A look at what is called, which may do more than compute; a statement that a loop's round may have, too."""
    called = _listed(f"({text}, {name!r})" for text, name in of)
    return [_line(f"__called_{number}__ = {COMPUTED}(({called}))")] if of else []


def _is_fresh(node: ast.If, name: str) -> bool:
    """Whether a name is given values with memory of their own on both sides; a part is copied where it is written."""
    if name.startswith("__part_"):
        return True
    given = [one for part in statements(node) for one in ast.walk(part) if isinstance(one, ast.Assign)]
    values = [one.value for one in given if any(_is_stored(each) and each.id == name for each in ast.walk(one))]
    return name in _surely(node.body) & _surely(node.orelse) and not any(map(may_share, values))


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _surely(side: Iterable[ast.stmt]) -> set[str]:
    """The names that a side gives values whatever is decided within it."""
    found: set[str] = set()
    for one in side:
        found |= _surely(one.body) & _surely(one.orelse) if isinstance(one, ast.If) else names_of([one], ast.Assign)
    return found


def _read_first(side: Iterable[ast.stmt], given: frozenset[str] = frozenset()) -> set[str]:
    """The names that a side reads before it has given them values whatever is decided within it."""
    found: set[str] = set()
    for one in side:
        if isinstance(one, ast.If):
            found |= _read(one.test) - given
            found |= _read_first(one.body, given) | _read_first(one.orelse, given)
        else:
            found |= _read(one) - given
        given |= _surely([one])
    return found


def _read(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _line(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _listed(names: Iterable[str]) -> str:
    return "".join(f"{one}, " for one in names)


def _at(made: ast.stmt, where: ast.stmt) -> ast.stmt:
    """New code at the place of the old one, where it has none of its own."""
    for one in ast.walk(made):
        if isinstance(one, (ast.stmt, ast.expr)) and getattr(one, "lineno", 1) < where.lineno:
            ast.copy_location(one, where)
    return made
