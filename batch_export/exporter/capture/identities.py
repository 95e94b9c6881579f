"""Answers, small numbers and modules that a model's code compares by identity (`same is True`, `layer is self.last`).

Arrives: a model; a context is opened round a capture. Leaves: a capture in which such a comparison is what it is in
eager. An answer about free sizes is an object of torch's while a capture runs, and what is in the place of a module
another one each time that it is read, so that `is` would be false of them whatever they are, and nobody would hear of
it. Of code that cannot be written anew the lines leave.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any
from unittest.mock import patch

import torch

from batch_export.exporter.capture import function_sources
from batch_export.exporter.capture.guard_sources import is_generated
from batch_export.exporter.capture.kinds import reached
from batch_export.exporter.capture.own_attributes import modules_of
from batch_export.exporter.capture.rewritten_code import rewritten
from batch_export.exporter.capture.size_answers import CALLED, IDENTICAL, KEPT, MATCHED

_PACKAGES = re.compile(r"[/\\\\](site|dist)-packages[/\\\\]")
_COMPARES, _GIVES = "IS_OP", "LOAD_CONST"
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)


@contextlib.contextmanager
def answers_identified(module: torch.nn.Module, *, is_asked: bool) -> Iterator[list[str]]:
    """Within, what a model's code compares by identity may be an answer about free sizes, or a size.

    Yields the lines (`file:line`) of code that compares so and could not be written anew.

    Args:
        module: the model.
        is_asked: whether there may be such answers.
    """
    changed: list[tuple[Any, CodeType]] = []
    left: list[str] = []
    for function, lines in _comparing(module) if is_asked else ():
        made = _written(function.__code__)
        if made is None:
            left += [f"{function.__code__.co_filename}:{line}" for line in lines]
        else:
            changed.append((function, made))
    with rewritten(changed, {name: CALLED[name] for name in (IDENTICAL, MATCHED)}), _modules_compared():
        yield left


@contextlib.contextmanager
def _modules_compared() -> Iterator[None]:
    """Within, what torch has in the place of a module is equal to the module (`if layer == self.last:`)."""
    own = torch.nn.Module.__eq__

    def alike(self: torch.nn.Module, other: object) -> Any:
        if isinstance(other, torch.nn.Module):
            return vars(self) is vars(other)
        return own(self, other)

    with patch.object(torch.nn.Module, "__eq__", alike):
        yield


def _comparing(module: torch.nn.Module) -> Iterator[tuple[FunctionType, tuple[int, ...]]]:
    """The functions that compare so; of installed packages those in the files of the model's forwards."""
    files = set(_files_of_forwards(module))
    for function in reached(module, with_generated=True):
        file = function.__code__.co_filename
        if (file in files or not _PACKAGES.search(file)) and (lines := _lines(function.__code__)):
            yield function, lines


def _files_of_forwards(module: torch.nn.Module) -> Iterator[str]:
    for _, one in modules_of(module):
        code = getattr(inspect.unwrap(one.forward), "__code__", None)
        if isinstance(code, CodeType):
            yield code.co_filename


@functools.lru_cache(maxsize=4096)
def _lines(code: CodeType) -> tuple[int, ...]:
    """Where code compares with such a constant by identity, or what is in a file of the user's own with anything else
    but a constant.
    """
    found: list[int] = []
    is_users_own = not _PACKAGES.search(code.co_filename) and not is_generated(code.co_filename)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _lines(inner)
    if is_users_own or any(map(is_one_object, code.co_consts)):
        before: dis.Instruction | None = None
        for one in dis.get_instructions(code):
            is_given = before is not None and before.opname == _GIVES
            if one.opname == _COMPARES and (is_one_object(before.argval) if is_given else is_users_own):  # type: ignore[union-attr]
                line = one.positions.lineno if one.positions is not None else None
                found.append(line or code.co_firstlineno)
            before = one
    return tuple(found)


def is_one_object(value: object) -> bool:
    """Whether all that are equal to a constant are one object: truth values, and whole numbers that Python keeps."""
    return isinstance(value, bool) or (type(value) is int and value in KEPT)


def _written(code: CodeType) -> CodeType | None:
    """A function that asks by calls what it compares by identity; None where it cannot be written anew."""
    made, tree = _written_once(code, code.co_filename)
    if made is not None and tree is not None:
        function_sources.keep(made, tree)
    return made


@functools.lru_cache(maxsize=512)
def _written_once(code: CodeType, file: str) -> tuple[CodeType | None, ast.FunctionDef | None]:
    del file  # codes that are equal may be of two files
    function = function_sources.tree_of(code) if function_sources.is_current(code) else None
    if function is None:
        return None, None
    tree: ast.FunctionDef = _Comparisons().visit(function)
    return function_sources.compiled(tree, code), tree


class _Comparisons(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`same is True`, `same is not False`, `same is other is True`."""
        self.generic_visit(node)
        parted = _parted(node)
        calls = [_called(one) for one in parted]
        if not any(calls):
            return node
        values = [call or one for call, one in zip(calls, parted, strict=True)]
        return values[0] if len(values) == 1 else ast.copy_location(ast.BoolOp(ast.And(), values), node)

    def visit_Match(self, node: ast.Match) -> ast.AST:
        """`match n == m:` with a case that is True or False."""
        self.generic_visit(node)
        patterns = (one for case in node.cases for one in ast.walk(case.pattern))
        if any(isinstance(one, ast.MatchSingleton) and one.value is not None for one in patterns):
            asked = ast.Call(ast.Name(MATCHED, ast.Load()), [node.subject], [])
            node.subject = ast.fix_missing_locations(ast.copy_location(asked, node.subject))
        return node


def _parted(node: ast.Compare) -> list[ast.Compare]:
    """`a is b is c` as `a is b` and `b is c`, where what stands between may be read twice."""
    operands = [node.left, *node.comparators]
    if not all(map(_may_be_read_twice, operands[1:-1])):
        return [node]
    pairs = zip(operands, node.ops, operands[1:], strict=False)
    return [ast.copy_location(ast.Compare(left, [kind], [right]), node) for left, kind, right in pairs]


def _may_be_read_twice(node: ast.expr) -> bool:
    return all(isinstance(one, _PLAIN) for one in ast.walk(node))


def _called(node: ast.Compare) -> ast.expr | None:
    """A comparison by identity as a call; None of others, and of those with `None` and other constants."""
    match node:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as kind], comparators=[right]) if may_be_answers(
            left, right
        ):
            given = [left, right, ast.Constant(isinstance(kind, ast.Is))]
            made = ast.Call(ast.Name(IDENTICAL, ast.Load()), given, [])
            return ast.fix_missing_locations(ast.copy_location(made, node))
    return None


def may_be_answers(left: ast.expr, right: ast.expr) -> bool:
    """Whether two things that are compared by identity may be answers about sizes, or sizes."""
    return all(is_one_object(one.value) for one in (left, right) if isinstance(one, ast.Constant))
