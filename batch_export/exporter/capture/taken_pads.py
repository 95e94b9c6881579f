"""Padding by a condition on sizes (`if width % 4: x = F.pad(x, (0, 4 - width % 4))`), done at every size.

Arrives: lines of a model, or nothing; a context is opened round a capture. Leaves: a capture in which such an `if`
takes no side: it pads, by amounts that are 0 where the model does not. Anything else at such a line is decided as
before. What is padded by nothing is a copy, so there is no such line where the model writes to the tensor afterwards.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import traceback
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from batch_export.exporter.capture.guard_sources import users_frame
from batch_export.exporter.capture.number_choice import chosen
from batch_export.exporter.capture.own_names import may_reach
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.read_values import value_of
from batch_export.exporter.capture.size_questions import Question, asked_of, is_arithmetic, without_names

TAKEN = "longer_at_every_size"
"""Marks such a padding among what torch notes of a node (`custom`): the place of what may be left as it is."""
IN_ORDER = "left_where_in_order"
"""Marks a copy besides that the model does not make of what lies in its own order already."""


@dataclass(frozen=True, slots=True)
class _Pad:
    """An `if` that does nothing but pad.

    Attributes:
        first: the first line of what is asked.
        last: its last line.
        end: the last line of the padding.
        asked: what is asked; any of it is enough.
        called: what pads, which is torch's own or something else of that name.
        same: two names each that have to be of one tensor where it is asked: of what is padded, and of what is not.
    """

    first: int
    last: int
    end: int
    asked: tuple[ast.expr, ...]
    called: tuple[ast.expr, ...]
    same: tuple[tuple[ast.expr, ast.expr], ...]


@dataclass(slots=True)
class _Visit:
    """One time that such an `if` was asked of free sizes, and answered so that it pads.

    Attributes:
        frame: of the function, by which another call of it is told apart.
        asked: the questions.
        last: where in the function's code it padded last; an earlier place is that of a later visit, which asked
            nothing of free sizes.
    """

    frame: FrameType
    asked: list[Question]
    last: int = -1


def any_pad(places: Iterable[str]) -> bool:
    """Returns whether some of several places (`file:line`) ask for nothing but padding."""
    found = (place.rpartition(":") for place in places)
    return any(line.isdecimal() and _pad_at(file, int(line)) is not None for file, _, line in found)


@contextlib.contextmanager
def pads_taken() -> Iterator[None]:
    """Within, an `if` that does nothing but pad a tensor pads it, by nothing where it would not, and leaves no guard.

    NOTE: this wraps a private method of torch's symbolic numbers, by which Python's `if` asks them, and the function
    behind `torch.nn.functional.pad`.
    """
    own: Any = SymNode.guard_bool
    padded: Any = torch._C._nn.pad
    visits: dict[tuple[str, int], _Visit] = {}

    def guard_bool(self: SymNode, file: str, line: int) -> bool:
        frame = users_frame()
        pad = None if frame is None else _pad_at(frame.f_code.co_filename, frame.f_lineno)
        if frame is not None and pad is not None and frame.f_lineno <= pad.last:
            asked = _questions(pad, frame) if _does_nothing_else(pad, frame) else []
            if any(one.holds.node.expr == self.expr for one in asked):  # type: ignore[union-attr]
                visits[frame.f_code.co_filename, pad.first] = _Visit(frame, asked)
                return True
        return bool(own(self, file, line))

    def pad_by(x: torch.Tensor, amounts: Sequence[Any], *args: Any, **given: Any) -> torch.Tensor:
        frame = users_frame() if visits else None
        pad = None if frame is None else _pad_at(frame.f_code.co_filename, frame.f_lineno)
        if frame is not None and pad is not None:
            visit = visits.get((frame.f_code.co_filename, pad.first))
            if visit is not None and visit.frame is frame and frame.f_lasti > visit.last:
                visit.last = frame.f_lasti
                amounts = [chosen(one, 0, visit.asked) for one in amounts]
                with traceback.preserve_node_meta(), traceback.annotate({TAKEN: 0}):
                    taken: torch.Tensor = padded(x, amounts, *args, **given)
                return taken
        made: torch.Tensor = padded(x, amounts, *args, **given)
        return made

    with patch.object(SymNode, "guard_bool", guard_bool), patch.object(torch._C._nn, "pad", pad_by):
        yield


def _does_nothing_else(pad: _Pad, frame: FrameType) -> bool:
    """Whether torch's own functions pad there, and what has the padded tensor's name has it already."""
    are_torchs = all(_is_torchs(value_of(one, frame)) for one in pad.called)
    named = ([value_of(one, frame) for one in two] for two in pad.same)
    return are_torchs and all(isinstance(one, torch.Tensor) and one is other for one, other in named)


def _is_torchs(called: Any) -> bool:
    """Whether something is a function or a module of torch's that pads, by way of the function that is followed."""
    return called is torch.nn.functional.pad or type(called).__module__ == torch.nn.modules.padding.__name__


def _questions(pad: _Pad, frame: FrameType) -> list[Question]:
    """What the model asks of free sizes; empty where one of it cannot be told, or holds at every size."""
    found: list[Question] = []
    for one in pad.asked:
        compared = (one.left, type(one.ops[0]), one.comparators[0]) if isinstance(one, ast.Compare) else None
        left, kind, right = compared or (one, ast.NotEq, ast.Constant(0))
        question = Question(value_of(left, frame), kind, value_of(right, frame))
        if not all(isinstance(side, (int, torch.SymInt)) for side in (question.left, question.right)):
            return []
        if isinstance(question.holds, torch.SymBool):
            if free_unbacked_symbols(question.holds):
                return []
            found.append(question)
        elif question.holds:
            return []
    return found


def _pad_at(file: str, line: int) -> _Pad | None:
    return next((one for one in _pads(file) if one.first <= line <= one.end), None)


@functools.lru_cache(maxsize=16)
def _pads(file: str) -> tuple[_Pad, ...]:
    tree = parsed(file)
    if tree is None:
        return ()
    found: dict[int, _Pad | None] = {}
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.Module)):
            for node in ast.walk(function):
                if isinstance(node, ast.If) and (function is not tree or node in tree.body):
                    found.setdefault(node.lineno, _pad(function, node))
    return tuple(one for one in found.values() if one is not None)


def _pad(function: ast.FunctionDef | ast.Module, node: ast.If) -> _Pad | None:
    """The padding that an `if` of a function stands for."""
    asked = asked_of(without_names(node.test))
    if node.orelse or not asked:
        return None
    padded, named = set[str](), set[str]()
    called: list[ast.expr] = []
    same: list[tuple[ast.expr, ast.expr]] = []
    for one in node.body:
        target = one.targets[0] if isinstance(one, ast.Assign) and len(one.targets) == 1 else None
        if target is None:
            return None
        if _pads_alone(target, one.value):  # type: ignore[attr-defined]
            source = one.value.args[0]  # type: ignore[attr-defined]
            padded |= {ast.unparse(target), ast.unparse(source)}
            called.append(one.value.func)  # type: ignore[attr-defined]
            same += [(target, source)] if ast.unparse(target) != ast.unparse(source) else []
        elif is_arithmetic(one.value) and is_arithmetic(target):  # type: ignore[attr-defined]
            named |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        else:
            return None
    end = node.body[-1].end_lineno or node.lineno
    others = [one for one in ast.walk(function) if not node.body[0].lineno <= getattr(one, "lineno", 0) <= end]
    if not padded or any(may_reach(name, function, node) for name in named):
        return None
    if any(_writes_to(one, padded) for one in others):
        return None
    if not all(any(_gives(one, *two) for one in others) for two in same):
        return None
    return _Pad(node.lineno, node.test.end_lineno or node.lineno, end, asked, tuple(called), tuple(same))


def _pads_alone(target: ast.expr, value: ast.expr) -> bool:
    """Whether a tensor is replaced by itself, or by what has its name then, padded by constants."""
    if not isinstance(value, ast.Call) or not value.args:
        return False
    if not all(isinstance(one, (ast.Name, ast.Attribute)) for one in (target, value.args[0])):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    rest = [*value.args[1:], *(one.value for one in value.keywords)]
    return name == "pad" and all(map(is_arithmetic, rest))


def _gives(node: ast.AST, target: ast.expr, value: ast.expr) -> bool:
    """Whether a statement gives something to a name as it is."""
    is_alone = isinstance(node, ast.Assign) and len(node.targets) == 1
    sides = (node.targets[0], node.value) if is_alone else ()  # type: ignore[attr-defined]
    return [*map(ast.unparse, sides)] == [ast.unparse(target), ast.unparse(value)]


def _writes_to(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement changes one of several tensors in place."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=of)) if name.endswith("_") and not name.endswith("__"):
            return ast.unparse(of) in names
        case ast.AugAssign(target=ast.Subscript(value=of) | of):
            return ast.unparse(of) in names
        case ast.Subscript(value=of, ctx=ast.Store()):
            return ast.unparse(of) in names
    return False
