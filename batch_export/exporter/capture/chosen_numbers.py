"""Numbers chosen by a condition on sizes (`pad = 8 - n % 8 if n % 8 else 0`), which stay functions of them.

Arrives: lines of a model, or nothing; a context is opened round a capture. Leaves: a capture in which an `if` takes no
side where it does nothing but give numbers to names: both numbers are worked out, and one of them is chosen by
arithmetic (`number_choice.py`). What is no whole number is decided as before.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from batch_export.exporter.capture import function_sources
from batch_export.exporter.capture.kinds import reached
from batch_export.exporter.capture.number_choice import chosen
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.rewritten_code import rewritten
from batch_export.exporter.capture.size_questions import KINDS, Question, asked_of, is_arithmetic

_CHOSEN = "__chosen_by_sizes__"
"""What the new code calls."""


def any_choice(places: Iterable[str]) -> bool:
    """Returns whether some of several places (`file:line`) do nothing but choose numbers."""
    found = (place.rpartition(":") for place in places)
    return any(line.isdecimal() and int(line) in _lines(file) for file, _, line in found)


@contextlib.contextmanager
def numbers_chosen(module: torch.nn.Module, places: Iterable[str]) -> Iterator[None]:
    """Within, such lines of a model's functions choose by arithmetic, and leave no guard.

    Args:
        module: the model.
        places: the lines.
    """
    lines = {(file, int(line)) for file, _, line in (place.rpartition(":") for place in places) if line.isdecimal()}
    changed = [(one, made) for one in reached(module) if (made := _choosing(one.__code__, lines)) is not None]
    with rewritten(changed, {_CHOSEN: _chosen}):
        yield


def _choosing(code: CodeType, lines: set[tuple[str, int]]) -> CodeType | None:
    """A function in which numbers are chosen by arithmetic; None where there are none at these lines."""
    own = {line for file, line in lines if file == code.co_filename}
    if not own.intersection(_lines(code.co_filename)):
        return None
    if not own.intersection(line for *_, line in code.co_lines() if line is not None):
        return None
    function = function_sources.tree_of(code)
    if function is None:
        return None
    choices = _Choices(own)
    changed = choices.visit(function)
    return function_sources.compiled(changed, code) if choices.lines else None


@functools.lru_cache(maxsize=16)
def _lines(file: str) -> frozenset[int]:
    tree = parsed(file)
    choices = _Choices()
    if tree is not None:
        choices.visit(copy.deepcopy(tree))
    return frozenset(choices.lines)


@dataclass(slots=True)
class _Choices(ast.NodeTransformer):
    """Writes such choices as calls.

    Attributes:
        only: the lines at which it does; None for all.
        lines: of what is asked there.
    """

    only: set[int] | None = None
    lines: set[int] = field(default_factory=set)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`a if question else b`."""
        self.generic_visit(node)
        asked = self._asked(node)
        if not asked or not _is_number(node.body) or not _is_number(node.orelse):
            return node
        return self._call(node, asked, node.body, node.orelse)

    def visit_If(self, node: ast.If) -> ast.AST:
        """`if question: name = a`, and `else: name = b` where it has that."""
        self.generic_visit(node)
        asked, then, otherwise = self._asked(node), _named(node.body), _named(node.orelse)
        if not asked or not then or otherwise is None:
            return node
        names = list(dict.fromkeys((*then, *otherwise)))
        either = [(then.get(name, _read(name)), otherwise.get(name, _read(name))) for name in names]
        numbers = [self._call(node, asked, *copy.deepcopy(two)) for two in either]
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
        is_one = len(names) == 1
        target = targets[0] if is_one else ast.Tuple(targets, ast.Store())
        made = ast.Assign([target], numbers[0] if is_one else ast.Tuple(numbers, ast.Load()))
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _asked(self, node: ast.If | ast.IfExp) -> Sequence[ast.expr]:
        lines = _lines_of(node.test)
        return asked_of(node.test) if self.only is None or not self.only.isdisjoint(lines) else ()

    def _call(self, node: ast.If | ast.IfExp, asked: Sequence[ast.expr], then: ast.expr, other: ast.expr) -> ast.expr:
        self.lines.update(_lines_of(node.test))
        questions = ast.Tuple([_written(one) for one in asked], ast.Load())
        call = ast.Call(ast.Name(_CHOSEN, ast.Load()), [questions, then, other], [])
        return ast.fix_missing_locations(ast.copy_location(call, node.test))


def _lines_of(test: ast.expr) -> range:
    return range(test.lineno, (test.end_lineno or test.lineno) + 1)


def _written(asked: ast.expr) -> ast.expr:
    """A question as the new code hands it over: what is compared, how, and with what."""
    match asked:
        case ast.Compare(left=left, ops=[kind], comparators=[right]):
            parts = [left, ast.Constant(type(kind).__name__), right]
        case _:
            parts = [asked, ast.Constant(""), ast.Constant(0)]
    return ast.Tuple([copy.deepcopy(one) for one in parts], ast.Load())


def _named(body: Sequence[ast.stmt]) -> dict[str, ast.expr] | None:
    """What statements give to names, each of which reads only what was there before; None where they do more."""
    named: dict[str, ast.expr] = {}
    for one in body:
        match one:
            case ast.Assign(targets=[ast.Name() as target], value=value):
                given: list[tuple[ast.expr, ast.expr]] = [(target, value)]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                given = [*zip(targets, values, strict=False)] if len(targets) == len(values) else []
            case _:
                return None
        reads = {each.id for _, value in given for each in ast.walk(value) if isinstance(each, ast.Name)}
        made = {target.id: value for target, value in given if isinstance(target, ast.Name) and _is_number(value)}
        if not made or len(made) < len(given) or (reads | made.keys()) & named.keys():
            return None
        named.update(made)
    return named


def _is_number(written: ast.expr) -> bool:
    """Whether it is arithmetic, with choices that are written as calls already."""
    if isinstance(written, ast.Call) and isinstance(written.func, ast.Name) and written.func.id == _CHOSEN:
        return True
    return is_arithmetic(written) and not isinstance(written, (ast.Tuple, ast.List))


def _read(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _chosen(questions: Sequence[tuple[Any, str, Any]], then: Any, otherwise: Any) -> Any:
    """The one of two numbers that any of several questions chooses."""
    asked: list[Question] = []
    for left, kind, right in questions:
        question = Question(left, KINDS.get(kind, ast.NotEq), right)
        if not all(type(side) in (int, torch.SymInt) for side in (left, right)):
            if question.holds if kind else left:
                return then
        elif not isinstance(question.holds, torch.SymBool):
            if question.holds:
                return then
        else:
            asked.append(question)
    if not asked:
        return otherwise
    is_of_sizes = all(type(one) in (int, torch.SymInt) for one in (then, otherwise))
    if not is_of_sizes or any(free_unbacked_symbols(one.holds) for one in asked):
        return then if any(one.holds for one in asked) else otherwise
    try:
        return chosen(then, otherwise, asked)
    except ZeroDivisionError:  # at some sizes one of the two is no number, and a file would work out both
        return then if any(one.holds for one in asked) else otherwise
