"""Answers that a model's code compares by identity (`same is True`, `match n == m: case True:`).

A model arrives. Leaves: the lines. An answer about free sizes is an object of torch's while a capture runs, so that
`is True` is false of it whatever the sizes are, and nobody hears of it: such a program is compared with its model.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import re
from collections.abc import Collection, Iterator
from types import CodeType

import torch

from batch_export.exporter.capture.kinds import reached
from batch_export.exporter.capture.own_attributes import modules_of
from batch_export.exporter.capture.parsed_files import parsed

_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")
_COMPARES, _GIVES = "IS_OP", "LOAD_CONST"


def of_answers(module: torch.nn.Module) -> Iterator[str]:
    """Yields the lines (`file:line`) at which a model's own code compares what it asked with True or False so.

    That is code of the files that define its forwards; of installed packages' none: what they ask is of their settings.
    """
    own = {code.co_filename for code in _forwards(module) if not _PACKAGES.search(code.co_filename)}
    for function in reached(module) if own else ():
        if function.__code__.co_filename not in own:
            continue
        for file, line in _lines(function.__code__):
            if line in _lines_of_answers(file):
                yield f"{file}:{line}"


def _forwards(module: torch.nn.Module) -> Iterator[CodeType]:
    for _, one in modules_of(module):
        code = getattr(inspect.unwrap(one.forward), "__code__", None)
        if isinstance(code, CodeType):
            yield code


@functools.lru_cache(maxsize=16)
def _lines_of_answers(file: str) -> frozenset[int]:
    """The lines of a file at which an answer, or a name that a function gave one, is compared by identity."""
    tree = parsed(file)
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)] if tree is not None else []
    found: set[int] = set()
    for function in functions:
        within = list(ast.walk(function))
        assigned = [one for one in within if isinstance(one, ast.Assign) and _is_answer(one.value)]
        names = {target.id for one in assigned for target in one.targets if isinstance(target, ast.Name)}
        for one in within:
            match one:
                case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot(), *_]) if _is_answer(left, names):
                    found.add(one.lineno)
                case ast.Match(subject=subject, cases=cases) if _is_answer(subject, names):
                    found.update(case.pattern.lineno for case in cases)
    return frozenset(found)


def _is_answer(value: ast.expr, names: Collection[str] = ()) -> bool:
    is_named = isinstance(value, ast.Name) and value.id in names
    return is_named or isinstance(value, (ast.Compare, ast.BoolOp, ast.UnaryOp))


@functools.lru_cache(maxsize=4096)
def _lines(code: CodeType) -> tuple[tuple[str, int], ...]:
    """Where code compares with True or False by identity, whatever it compares."""
    found: list[tuple[str, int]] = []
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _lines(inner)
    if not any(one is True or one is False for one in code.co_consts):
        return tuple(found)
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if (
            one.opname == _COMPARES
            and before is not None
            and before.opname == _GIVES
            and before.argval in (True, False)
        ):
            line = one.positions.lineno if one.positions is not None else None
            found.append((code.co_filename, line or code.co_firstlineno))
        before = one
    return tuple(found)
