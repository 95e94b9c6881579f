"""Decisions by sizes (`if n < 4: return x`) as decisions by data, which are captured both ways.

Arrives: lines of a model; a context is opened round a capture. Leaves: a capture in which an `if` at such a line asks a
tensor that holds what the sizes say, so that both of its ways are captured, and the file takes one of them. Ways whose
results differ in rank, dtype or in sizes that the file cannot tell are refused as those of data are.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture import decided_lines
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.rewritten_code import rewritten

_COMPARED, _NOT, _TRUTH, _ALL, _ANY = (f"__{name}_by_sizes__" for name in ("compared", "not", "truth", "all", "any"))
_KINDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
}


def any_decision(places: Iterable[str]) -> bool:
    """Returns whether there is an `if` at some of several places (`file:line`)."""
    return decided_lines.any_of(places, _lines)


@contextlib.contextmanager
def decisions_as_data(module: torch.nn.Module, places: Iterable[str]) -> Iterator[None]:
    """Within, an `if` at such lines of a model's functions is one by data where it asks for free sizes.

    Args:
        module: the model.
        places: the lines.
    """
    changed = decided_lines.written_anew(module, places, _lines, _written_anew)
    with rewritten(changed, _CALLED):
        yield


def _written_anew(function: ast.FunctionDef, lines: set[int]) -> ast.FunctionDef | None:
    """A function that asks what sizes decide by calls at some lines; None where there is nothing of that."""
    decisions = _Decisions(lines)
    changed: ast.FunctionDef = decisions.visit(function)
    return changed if decisions.lines else None


@functools.lru_cache(maxsize=16)
def _lines(file: str) -> frozenset[int]:
    tree = parsed(file)
    tests = (one.test for one in ast.walk(tree) if isinstance(one, (ast.If, ast.IfExp))) if tree is not None else ()
    return frozenset(line for test in tests for line in range(test.lineno, (test.end_lineno or test.lineno) + 1))


@dataclass(slots=True)
class _Decisions(ast.NodeTransformer):
    """Writes what an `if` asks as calls.

    Attributes:
        only: the lines at which it does.
        lines: those at which it has.
    """

    only: set[int]
    lines: set[int] = field(default_factory=set)

    def visit_If(self, node: ast.If) -> ast.AST:
        """`if test:`."""
        self.generic_visit(node)
        node.test = self._asked(node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """`a if test else b`."""
        self.generic_visit(node)
        node.test = self._asked(node.test)
        return node

    def _asked(self, test: ast.expr) -> ast.expr:
        own = self.only.intersection(range(test.lineno, (test.end_lineno or test.lineno) + 1))
        if not own:
            return test
        self.lines |= own
        return ast.fix_missing_locations(ast.copy_location(_written(test), test))


def _written(test: ast.expr) -> ast.expr:
    """A test as calls that give a tensor where it asks for free sizes."""
    match test:
        case ast.BoolOp(op=kind, values=values):
            parts = [ast.Lambda(_NOTHING, _written(one)) for one in values]
            return _call(_ALL if isinstance(kind, ast.And) else _ANY, *parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _call(_NOT, _written(operand))
        case ast.Compare(left=left, ops=[kind], comparators=[right]) if type(kind).__name__ in _KINDS:
            return _call(_COMPARED, left, ast.Constant(type(kind).__name__), right)
        case ast.Compare() | ast.Call() | ast.Constant():
            return test
    return _call(_TRUTH, test)


_NOTHING = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _call(name: str, *given: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(given), [])


def _compared(left: Any, kind: str, right: Any) -> Any:
    sides = [left, right]
    is_of_sizes = any(isinstance(one, torch.SymInt) for one in sides)
    if is_of_sizes and all(isinstance(one, (int, torch.SymInt)) for one in sides):
        sides = [_tensor(one) for one in sides]
    return _KINDS[kind](*sides)


def _tensor(size: Any) -> Tensor:
    return torch.scalar_tensor(size, dtype=torch.int64)


def _truth(value: Any) -> Any:
    return _compared(value, "NotEq", 0) if isinstance(value, torch.SymInt) else value


def _not(value: Any) -> Any:
    return ~value if isinstance(value, Tensor) and value.dtype is torch.bool else not value


def _all(*parts: Callable[[], Any]) -> Any:
    return _joined(parts, until=False)


def _any(*parts: Callable[[], Any]) -> Any:
    return _joined(parts, until=True)


def _joined(parts: Iterable[Callable[[], Any]], *, until: bool) -> Any:
    """Several parts as Python asks them: the first one that is known to decide ends it."""
    made: Any = not until
    for part in parts:
        value = part()
        if isinstance(value, Tensor):
            both = torch.logical_or if until else torch.logical_and
            made = both(made, value) if isinstance(made, Tensor) else value
        elif bool(value) is until:
            return value
    return made


_CALLED: Mapping[str, Callable[..., Any]] = {
    _COMPARED: _compared,
    _NOT: _not,
    _TRUTH: _truth,
    _ALL: _all,
    _ANY: _any,
}
