"""Decisions by sizes (`if n < 4: return x`) as decisions by data, which are captured both ways.

Arrives: lines of a model; a context is opened round a capture. Leaves: a capture in which an `if` at such a line asks a
tensor that holds what the sizes say, so that both of its ways are captured, and the file takes one of them. Ways whose
results differ in rank, dtype or in sizes that the file cannot tell are refused as those of data are.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from batch_export.exporter.capture import decided_lines
from batch_export.exporter.capture.choice_numbers import Uses
from batch_export.exporter.capture.counted_pieces import for_of
from batch_export.exporter.capture.identities import may_be_answers
from batch_export.exporter.capture.listed_loops import ListedLoop, as_loop
from batch_export.exporter.capture.loop_tails import TailedLoop
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.rewritten_code import rewritten
from batch_export.exporter.capture.size_answers import (
    ALL,
    ALL_OF,
    ANY,
    ANY_OF,
    CALLED,
    COMPARED,
    FIRST,
    FLAG,
    IDENTICAL,
    KINDS,
    LAST,
    NOT,
    NUMBER,
    ONCE,
    TRUTH,
)


def any_decision(places: Iterable[str]) -> bool:
    """Returns whether there is an `if` at some of several places (`file:line`)."""
    return decided_lines.any_of(places, _lines)


def any_equality(places: Iterable[str]) -> bool:
    """Returns whether there is an `if` at some of several places that may ask whether two things are equal."""
    return decided_lines.any_of(places, _lines_of_equalities)


@contextlib.contextmanager
def decisions_as_data(module: torch.nn.Module, places: Iterable[str]) -> Iterator[None]:
    """Within, an `if` at such lines of a model's functions is one by data where it asks for free sizes.

    Args:
        module: the model.
        places: the lines.
    """
    changed = decided_lines.written_anew(module, places, _lines, _written_anew)
    with rewritten(changed, CALLED):
        yield


def _written_anew(function: ast.FunctionDef, lines: set[int]) -> ast.FunctionDef | None:
    """A function that asks what sizes decide by calls at some lines; None where there is nothing of that."""
    decisions = _Decisions(lines, Uses.of(copy.deepcopy(function)))
    changed: ast.FunctionDef = decisions.visit(function)
    return changed if decisions.lines else None


@functools.lru_cache(maxsize=16)
def _lines(file: str) -> frozenset[int]:
    tree = parsed(file)
    tests = (each for one in ast.walk(tree) for each in _tests(one)) if tree is not None else ()
    return frozenset(line for test in tests for line in _lines_of(test))


@functools.lru_cache(maxsize=16)
def _lines_of_equalities(file: str) -> frozenset[int]:
    tree = parsed(file)
    tests = (each for one in ast.walk(tree) for each in _tests(one)) if tree is not None else ()
    return frozenset(line for test in tests if _asks_if_equal(test) for line in _lines_of(test))


def _asks_if_equal(test: ast.AST) -> bool:
    """Whether a test has such a comparison, or an answer that was kept under a name, which may be one."""
    match test:
        case ast.BoolOp(values=parts):
            return any(map(_asks_if_equal, parts))
        case ast.UnaryOp(operand=operand):
            return _asks_if_equal(operand)
        case ast.Compare(ops=kinds):
            return any(isinstance(kind, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for kind in kinds)
    return isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.pattern))


def _lines_of(node: ast.expr | ast.pattern | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _tests(node: ast.AST) -> Iterator[ast.expr | ast.pattern]:
    """What something decides by, where it can be asked otherwise."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield test
        case ast.Match(subject=subject, cases=cases) if _is_of_numbers(cases):
            yield subject
            yield from (one.pattern for one in cases)
            yield from (one.guard for one in cases if one.guard is not None)
        case ast.Call(func=ast.Name(id="int" | "float"), args=[ast.Compare() as test], keywords=[]):
            yield test
        case ast.Call(keywords=[_, *_] as named):
            yield from (one.value for one in named if _is_flag(one))
        case ast.Return(value=ast.BoolOp() | ast.UnaryOp(op=ast.Not()) as test):
            yield test
        case ast.Assign(targets=[ast.Name()], value=ast.BoolOp() | ast.UnaryOp(op=ast.Not()) as test):
            yield test
        case ast.For(iter=over) if TailedLoop.of(node, 0) is not None:
            yield over
        case ast.While(test=test) if (pieces := for_of(node)) is not None and TailedLoop.of(pieces, 0) is not None:
            yield test
        case ast.Assign() | ast.AugAssign() | ast.Return() | ast.Expr() if _tail_of(node) is not None:
            yield node.value  # type: ignore[misc]
        case ast.comprehension(ifs=tests):
            yield from tests
        case ast.BinOp(left=left, right=right):
            yield from (one for one in (left, right) if _is_truth(one))


def _tail_of(node: ast.stmt) -> tuple[ListedLoop, TailedLoop] | None:
    """A comprehension over pieces of which the last one may be shorter, as a loop, and that loop over whole ones."""
    listed = as_loop(node, node.lineno)
    tailed = TailedLoop.of(listed.loop, node.lineno) if listed is not None else None
    return None if listed is None or tailed is None else (listed, tailed)


def _is_flag(named: ast.keyword) -> bool:
    """Whether an argument is an answer by its form, or has the name of one (`is_causal=same`)."""
    is_named = isinstance(named.value, ast.Name) and (named.arg or "").startswith("is_")
    parts = named.value.values if isinstance(named.value, ast.BoolOp) else [named.value]
    return is_named or all(map(_is_truth, parts))


def _is_truth(value: ast.expr) -> bool:
    """Whether something is a truth value by its form, which arithmetic takes for 1 or 0."""
    return isinstance(value, ast.Compare) or (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not))


def _is_of_numbers(cases: Iterable[ast.match_case]) -> bool:
    """Whether a `match` asks for whole numbers or answers, and perhaps for anything else, with a name and a test."""
    return all(_numbers(one.pattern) is not None for one in cases)


def _numbers(pattern: ast.pattern) -> list[ast.expr] | None:
    """The numbers that a pattern is for; none of anything else, None of other patterns."""
    match pattern:
        case ast.MatchValue(value=ast.Constant(value=int()) as number):
            return [number]
        case ast.MatchSingleton(value=bool() as answer):
            return [ast.Constant(answer)]
        case ast.MatchOr(patterns=patterns):
            parts = [_numbers(one) for one in patterns]
            return [number for part in parts for number in part or []] if all(parts) else None
        case ast.MatchAs(pattern=None):
            return []
    return None


def _case(case: ast.match_case, name: str, others: list[ast.stmt]) -> list[ast.stmt]:
    """What a case of a `match` does.

    Args:
        case: the case.
        name: that of what is matched.
        others: what the cases behind it do.
    """
    numbers = _numbers(case.pattern)
    made: list[ast.stmt] = case.body if case.guard is None else [ast.If(as_calls(case.guard), case.body, others)]
    if numbers:
        tests: list[ast.expr] = [_is_it(name, number) for number in numbers]
        return [ast.If(as_calls(tests[0] if len(tests) == 1 else ast.BoolOp(ast.Or(), tests)), made, others)]
    is_named = isinstance(case.pattern, ast.MatchAs) and case.pattern.name is not None
    return [*([ast.parse(f"{case.pattern.name} = {name}").body[0]] if is_named else []), *made]  # type: ignore[attr-defined]


def _is_it(name: str, value: ast.expr) -> ast.Compare:
    """Whether what has a name is what a pattern is for, as Python compares it."""
    is_answer = isinstance(value, ast.Constant) and isinstance(value.value, bool)
    return ast.Compare(ast.Name(name, ast.Load()), [ast.Is() if is_answer else ast.Eq()], [value])


@dataclass(slots=True)
class _Decisions(ast.NodeTransformer):
    """Writes what an `if` asks as calls.

    Attributes:
        only: the lines at which it does.
        uses: those of the function's names.
        lines: those at which it has.
    """

    only: set[int]
    uses: Uses
    lines: set[int] = field(default_factory=set)

    def visit_If(self, node: ast.If) -> ast.AST:
        """`if test:`."""
        self.generic_visit(node)
        node.test = self._asked_once(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`a if test else b`."""
        self.generic_visit(node)
        node.test = self._asked_once(node.test)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """`if test` of a comprehension or a generator."""
        self.generic_visit(node)
        node.ifs = [self._asked_once(test) for test in node.ifs]
        return node

    def _asked_once(self, test: ast.expr) -> ast.expr:
        """A test as calls, of which the same question is one decision."""
        asked = self._asked(test)
        return asked if asked is test else ast.fix_missing_locations(ast.copy_location(_call(ONCE, asked), test))

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        """A loop over pieces, of which the last one may be shorter."""
        self.generic_visit(node)
        tailed = TailedLoop.of(node, node.lineno) if self.only.intersection(_lines_of(node.iter)) else None
        return node if tailed is None else self._apart(node, tailed)

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        """A loop over such pieces by the place at which they begin."""
        self.generic_visit(node)
        pieces = for_of(node) if self.only.intersection(_lines_of(node.test)) else None
        tailed = None if pieces is None else TailedLoop.of(pieces, node.lineno)
        return node if pieces is None or tailed is None else self._apart(pieces, tailed)

    def visit(self, node: ast.AST) -> Any:
        """Whatever stands there; a statement may have a comprehension over such pieces."""
        is_plain = isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr))
        return self._listed(node) if is_plain else super(_Decisions, self).visit(node)

    def _listed(self, node: Any) -> ast.AST | list[ast.stmt]:
        is_answer = isinstance(node, (ast.Return, ast.Assign)) and isinstance(node.value, (ast.BoolOp, ast.UnaryOp))
        if is_answer and any(test is node.value for test in _tests(node)):  # `return a and b`
            node.value = self._asked(node.value, as_calls if self._is_only_asked(node) else as_values)
            return self.generic_visit(node)
        found = _tail_of(node) if self.only.intersection(_lines_of(node)) else None
        if found is None:
            return self.generic_visit(node)
        listed, tailed = found
        return [listed.begun, *self._apart(listed.loop, tailed), *([listed.behind] if listed.behind else [])]

    def _is_only_asked(self, node: ast.Return | ast.Assign) -> bool:
        """Whether a name is given a truth value, as far as the function goes."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return self.uses.are_of_answers(name)
        return False

    def _apart(self, node: ast.For, tailed: TailedLoop) -> list[ast.stmt]:
        self.lines.update(_lines_of(node.iter))
        tailed.left.test = ast.copy_location(as_calls(tailed.left.test), node.iter)
        made = (*tailed.begun, tailed.loop, tailed.left)
        return [ast.fix_missing_locations(one) for one in made]

    def visit_Match(self, node: ast.Match) -> ast.AST | list[ast.stmt]:
        """`match n:` as a chain of `if`."""
        self.generic_visit(node)
        lines = {line for test in _tests(node) for line in _lines_of(test)} & self.only
        if not lines:
            return node
        self.lines |= lines
        name = f"__matched_at_{node.lineno}__"
        made: list[ast.stmt] = []
        for one in reversed(node.cases):
            made = _case(one, name, made)
        begun = ast.Assign([ast.Name(name, ast.Store())], node.subject)
        return [ast.fix_missing_locations(ast.copy_location(one, node)) for one in (begun, *made)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`int(n > 4)`, `attention(q, k, v, is_causal=n == m)`."""
        self.generic_visit(node)
        for named in filter(_is_flag, node.keywords):
            flag = self._asked(named.value)
            named.value = flag if flag is named.value else ast.copy_location(_call(FLAG, flag), named.value)
        asked = [self._counted(test) for test in _tests(node) if isinstance(test, ast.expr)]
        node.args = asked or node.args
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`(n > 2) + (not n % 3)`."""
        self.generic_visit(node)
        node.left, node.right = (self._counted(one) if _is_truth(one) else one for one in (node.left, node.right))
        return node

    def _counted(self, test: ast.expr) -> ast.expr:
        asked = self._asked(test)
        return asked if asked is test else ast.copy_location(_call(NUMBER, asked), test)

    def _asked(self, test: ast.expr, written: Callable[[ast.expr], ast.expr] | None = None) -> ast.expr:
        own = self.only.intersection(_lines_of(test))
        if not own:
            return test
        self.lines |= own
        return ast.fix_missing_locations(ast.copy_location((written or as_calls)(test), test))


def as_values(value: ast.expr) -> ast.expr:
    """What a name is given as such calls: `a and b` is `b` itself where that is what Python gives."""
    match value:
        case ast.BoolOp(op=kind, values=values):
            parts = [ast.Lambda(_NOTHING, as_values(one)) for one in values]
            return _call(LAST if isinstance(kind, ast.And) else FIRST, *parts)
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return as_calls(value)
    return value


def as_calls(test: ast.expr) -> ast.expr:
    """A test as calls that give a tensor where it asks for free sizes."""
    match test:
        case ast.BoolOp(op=kind, values=values):
            parts = [ast.Lambda(_NOTHING, as_calls(one)) for one in values]
            return _call(ALL if isinstance(kind, ast.And) else ANY, *parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _call(NOT, as_calls(operand))
        case ast.Compare(left=left, ops=[kind], comparators=[right]) if type(kind).__name__ in KINDS:
            return _call(COMPARED, left, ast.Constant(type(kind).__name__), right)
        case ast.Compare(left=left, ops=[_, _, *_] as kinds, comparators=others):
            sides = zip([left, *others], kinds, others, strict=False)
            return as_calls(ast.BoolOp(ast.And(), [ast.Compare(one, [kind], [other]) for one, kind, other in sides]))
        case ast.Compare(
            left=left, ops=[ast.In() | ast.NotIn() as kind], comparators=[ast.Tuple() | ast.List() | ast.Set() as right]
        ):
            among: ast.expr = ast.BoolOp(ast.Or(), [ast.Compare(left, [ast.Eq()], [one]) for one in right.elts])
            return as_calls(among if isinstance(kind, ast.In) else ast.UnaryOp(ast.Not(), among))
        case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp() as each], keywords=[]):
            asked = ast.ListComp(as_calls(each.elt), each.generators)
            return _call(ANY_OF if name == "any" else ALL_OF, asked)
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as kind], comparators=[right]) if may_be_answers(
            left, right
        ):
            return _call(TRUTH, _call(IDENTICAL, left, right, ast.Constant(isinstance(kind, ast.Is))))
        case ast.Compare() | ast.Constant():
            return test
    return _call(TRUTH, test)


_NOTHING = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _call(name: str, *given: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])
