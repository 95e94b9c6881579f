"""Work behind the question whether there is any: `if rows.numel() == 0: continue`, then `out[rows] = expert(x[rows])`.

Arrives: the frame of a model's code that asks something of data. Leaves: the answer by which it does the work, where
the work done on nothing changes nothing: all that it writes to is at the places asked for, and what it names is read
nowhere else. A capture may go there in any case. Nothing is run.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import sympy
import torch

from batch_export.exporter.capture.asked_emptiness import Emptiness, asked_emptiness
from batch_export.exporter.capture.harmless_calls import only_computes
from batch_export.exporter.capture.names_of_functions import (
    given_once,
    is_read_elsewhere,
    is_stored,
    names_in,
    only_value,
)
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.read_values import value_of

_WRITES = {
    **dict.fromkeys(("index_add", "index_copy", "index_fill", "index_reduce"), 1),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), 1),
    **dict.fromkeys(("masked_fill", "masked_scatter", "index_put"), 0),
}
"""Methods that write at places -> which argument says where."""
_SAME_PLACES = frozenset(("unsqueeze", "squeeze", "flatten", "view", "reshape", "expand", "expand_as", "clone", "bool"))
_FOUND = frozenset(("where", "nonzero", "argwhere"))


@dataclass(frozen=True, slots=True)
class _Asked:
    """An `if` of which one answer only does work.

    Attributes:
        function: the function that it stands in.
        emptiness: what is asked.
        work: what hangs on it.
        answer: the answer to what is asked by which the work is done.
    """

    function: ast.FunctionDef
    first: int
    last: int
    emptiness: Emptiness
    work: tuple[ast.stmt, ...]
    answer: bool


def answer_that_works(frame: FrameType) -> bool | None:
    """Returns the answer by which a line does work that changes nothing where there is none; None for other lines."""
    found = (one for one in _found(frame.f_code.co_filename) if one.first <= frame.f_lineno <= one.last)
    asked = next(found, None)
    if asked is None or asked.function.name != frame.f_code.co_name:
        return None
    nothing = _of_nothing(asked, frame)
    if not nothing:
        return None
    work = _Work(frame, asked, nothing, _rows_beside(asked, frame))
    return asked.answer if work.changes_nothing() else None


def _of_nothing(asked: _Asked, frame: FrameType) -> set[str]:
    """The texts of what names no place where there is nothing to do."""
    emptiness = asked.emptiness
    if emptiness.kind == "counts":
        return _counted(asked)
    held = value_of(emptiness.subject, frame)
    if isinstance(emptiness.subject, ast.Compare):
        sides = (emptiness.subject.left, *emptiness.subject.comparators)
        is_mask = any(isinstance(value_of(side, frame), torch.Tensor) for side in sides)
    else:
        is_mask = isinstance(held, torch.Tensor) and held.dtype is torch.bool
    is_known = is_mask if emptiness.kind == "mask" else isinstance(held, torch.Tensor)
    return {ast.unparse(emptiness.subject)} if is_known else set()


def _counted(asked: _Asked) -> set[str]:
    """The masks that have nothing where a number of `torch.bincount(indices)` is 0: `indices == k`."""
    subject: Any = asked.emptiness.subject
    counted = only_value(asked.function, subject.value.id)
    while isinstance(counted, ast.Call) and isinstance(counted.func, ast.Attribute) and counted.func.attr != "bincount":
        if counted.func.attr not in ("tolist", "cpu"):
            return set()
        counted = counted.func.value
    if not isinstance(counted, ast.Call) or any(one.arg != "minlength" for one in counted.keywords):
        return set()
    of: Any = counted.func.value  # type: ignore[attr-defined]
    if ast.unparse(of) == "torch":
        of = counted.args[0] if len(counted.args) == 1 else None
    elif counted.args:
        return set()
    if isinstance(of, ast.Call) and ast.unparse(of).endswith((".flatten()", ".view(-1)", ".reshape(-1)")):
        of = of.func.value  # type: ignore[attr-defined]
    if not isinstance(of, ast.Name) or not given_once(asked.function, of.id):
        return set()
    place = ast.unparse(subject.slice)
    return {f"{of.id} == {place}", f"{place} == {of.id}"}


def _rows_beside(asked: _Asked, frame: FrameType) -> dict[str, bool]:
    """Names of tensors with as many rows as are asked for -> whether they are indices."""
    held = value_of(asked.emptiness.subject, frame) if asked.emptiness.kind == "rows" else None
    length = _free_length(held) if isinstance(held, torch.Tensor) and held.dim() == 1 else None
    found = {name: one for name, one in frame.f_locals.items() if isinstance(one, torch.Tensor)}
    alike = {name: one for name, one in found.items() if length is not None and _free_length(one) == length}
    return {name: one.dtype is torch.int64 for name, one in alike.items()}


def _free_length(tensor: torch.Tensor) -> sympy.Expr | None:
    """What torch calls the number of rows; None where it is a plain number."""
    length: Any = tensor.shape[0] if tensor.dim() else 0
    return length.node.expr if isinstance(length, torch.SymInt) else None


@dataclass(slots=True)
class _Work:
    """The work behind a question, read for the case that there is none.

    Attributes:
        nothing: texts of masks and indices that name no place.
        beside: see `_rows_beside`.
        rows: names of what has no rows.
        made: names that the work has made so far.
        stands_for: those that are another name for something (`expert = self.experts[k]`).
    """

    frame: FrameType
    asked: _Asked
    nothing: set[str]
    beside: dict[str, bool]
    rows: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    stands_for: dict[str, ast.expr] = field(default_factory=dict)

    def changes_nothing(self) -> bool:
        """Whether all of it may be done on nothing."""
        self.nothing |= {name for name, is_index in self.beside.items() if is_index}
        self.rows |= self.beside.keys()
        nodes = [one for part in self.asked.work for one in ast.walk(part)]
        stored = {one.id for one in nodes if isinstance(one, ast.Name) and is_stored(one)}
        if any(is_read_elsewhere(name, self.asked.function, self.asked.work) for name in stored):
            return False
        return all(self._is_harmless(statement, stored) for statement in self.asked.work)

    def _is_harmless(self, statement: ast.stmt, stored: set[str]) -> bool:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return True
            case (
                ast.Assign(targets=[ast.Subscript() as target], value=value)
                | ast.AugAssign(target=ast.Subscript() as target, value=value)
            ):
                places = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
                fits = self._is_held(target.value) and any(self._is_nothing(one) for one in places)
                return fits and all(self._computes(one, stored) for one in places) and self._fits(value, stored)
            case ast.Assign(targets=[target], value=value):
                return self._computes(value, stored) and self._names(target, value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr=name)) as call):
                return name.endswith("_") and self._is_held(of) and self._writes(call, name[:-1], stored)
        return False

    def _names(self, target: ast.expr, value: ast.expr) -> bool:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(one, ast.Name) for one in names):
            return False
        are_places = self._are_nothing(value) if isinstance(target, ast.Tuple) else self._is_nothing(value)
        has_rows = self._has_rows(value)
        for one in names:
            name: str = one.id  # type: ignore[attr-defined]
            self.nothing = {text for text in self.nothing if name not in names_in(text)}
            self.rows.discard(name)
            self.made.add(name)
        texts = {one.id for one in names if isinstance(one, ast.Name)}
        kept = self.stands_for.items()
        other = {name: one for name, one in kept if not ({name} | names_in(ast.unparse(one))) & texts}
        if isinstance(target, ast.Name) and not any(isinstance(one, ast.Call) for one in ast.walk(value)):
            other[target.id] = _WrittenOut(self.stands_for).visit(copy.deepcopy(value))
        self.stands_for = other
        self.nothing |= texts if are_places else set()
        self.rows |= texts if has_rows else set()
        return True

    def _writes(self, call: ast.Call, name: str, stored: set[str]) -> bool:
        """Whether a method writes at no place."""
        given = {one.arg: one.value for one in call.keywords}
        place = _WRITES.get(name)
        if place is None or not all(self._computes(one, stored) for one in (*call.args, *given.values())):
            return False
        where = call.args[place] if len(call.args) > place else given.get("index", given.get("mask"))
        parts = where.elts if isinstance(where, (ast.Tuple, ast.List)) else [where]
        named = (given[one] for one in ("source", "src", "value", "values") if one in given)
        written = [*call.args[place + 1 :], *named]
        is_nowhere = any(one is not None and self._is_nothing(one) for one in parts)
        return is_nowhere and bool(written) and self._fits(written[0], stored)

    def _is_held(self, written: ast.expr) -> bool:
        """Whether something is a tensor that there is before the work."""
        is_plain = isinstance(written, (ast.Name, ast.Attribute)) and not names_in(ast.unparse(written)) & self.made
        return is_plain and isinstance(value_of(written, self.frame), torch.Tensor)

    def _computes(self, expression: ast.expr, stored: set[str]) -> bool:
        """Whether an expression only computes, of what there is, and takes no single row of nothing."""
        read = {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}
        if read & (stored - self.made) or self._takes_row(expression):
            return False
        written_out: ast.expr = _WrittenOut(self.stands_for).visit(copy.deepcopy(expression))
        return not any(_is_called(written_out, name) for name in self.made) and only_computes(written_out, self.frame)

    def _takes_row(self, expression: ast.expr) -> bool:
        """Whether one of no rows is asked for: `x[rows][0]`."""
        for one in ast.walk(expression):
            if not isinstance(one, ast.Subscript) or self._are_nothing(one.value) or not self._has_rows(one.value):
                continue
            first = one.slice.elts[0] if isinstance(one.slice, ast.Tuple) and one.slice.elts else one.slice
            is_open = isinstance(first, ast.Slice) or (isinstance(first, ast.Constant) and type(first.value) is not int)
            if not is_open and not self._is_nothing(first):
                return True
        return False

    def _fits(self, value: ast.expr, stored: set[str]) -> bool:
        """Whether what is written fits no places: it has no rows, or is one number."""
        is_number = isinstance(value, ast.Constant) or (
            isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
        )
        return is_number or (self._has_rows(value) and self._computes(value, stored))

    def _has_rows(self, value: ast.expr) -> bool:
        if any(isinstance(one, ast.Name) and one.id in self.rows for one in ast.walk(value)):
            return True
        return any(isinstance(one, ast.expr) and self._is_nothing(one) for one in ast.walk(value))

    def _is_nothing(self, index: ast.expr) -> bool:
        """Whether a mask or indices name no place."""
        if ast.unparse(index) in self.nothing:
            return True
        match index:
            case ast.Subscript(value=of, slice=ast.Constant(value=int())) if self._are_nothing(of):
                return True
            case ast.Subscript(value=of, slice=place):
                parts = place.elts if isinstance(place, ast.Tuple) else [place]
                return all(ast.unparse(one) in ("None", ":", "...") for one in parts) and self._is_nothing(of)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                return self._is_nothing(left) or self._is_nothing(right)
            case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _FOUND:
                return not index.keywords and self._finds_nothing(index, of) and name != "where"
            case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _SAME_PLACES:
                return self._is_nothing(of)
        return False

    def _are_nothing(self, indices: ast.expr) -> bool:
        """Whether an expression gives a tuple of indices that name no place: `torch.where(mask)`."""
        match indices:
            case ast.Call(func=ast.Attribute(value=of, attr="where"), keywords=[]):
                return self._finds_nothing(indices, of)
            case ast.Call(func=ast.Attribute(value=of, attr="nonzero"), keywords=[ast.keyword(arg="as_tuple")]):
                return self._finds_nothing(indices, of)
        return False

    def _finds_nothing(self, call: ast.Call, of: ast.expr) -> bool:
        if ast.unparse(of) == "torch":
            return len(call.args) == 1 and self._is_nothing(call.args[0])
        return not call.args and self._is_nothing(of)


class _WrittenOut(ast.NodeTransformer):
    def __init__(self, stands_for: Mapping[str, ast.expr]) -> None:
        self._stands_for = stands_for

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """What a name stands for."""
        return self._stands_for.get(node.id, node)


def _is_called(expression: ast.expr, name: str) -> bool:
    calls = (one for one in ast.walk(expression) if isinstance(one, ast.Call))
    return any(isinstance(one.func, ast.Name) and one.func.id == name for one in calls)


@functools.lru_cache(maxsize=16)
def _found(file: str) -> tuple[_Asked, ...]:
    tree = parsed(file)
    if tree is None:
        return ()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return tuple(one for function in reversed(functions) for one in _in_function(function))


def _in_function(function: ast.FunctionDef) -> Iterator[_Asked]:
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.While)):
            for place, one in enumerate(node.body):
                if isinstance(one, ast.If) and [type(each) for each in one.body] == [ast.Continue] and not one.orelse:
                    yield from _asked(function, one, node.body[place + 1 :], works=False)
        if isinstance(node, ast.If) and not node.orelse:
            yield from _asked(function, node, node.body, works=True)


def _asked(function: ast.FunctionDef, node: ast.If, work: Sequence[ast.stmt], *, works: bool) -> Iterator[_Asked]:
    emptiness = asked_emptiness(node.test)
    if emptiness is not None and emptiness.has_any == works:
        last = node.test.end_lineno or node.test.lineno
        yield _Asked(function, node.test.lineno, last, emptiness, tuple(work), emptiness.answer_if_any)
