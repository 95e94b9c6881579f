"""Resizing where sizes differ (`if x.shape[2:] != skip.shape[2:]: x = F.interpolate(x, size=skip.shape[2:])`).

Arrives: lines of a model, or nothing; a context is opened round a capture. Leaves: a capture in which such an `if`
takes no side: a `cond` resizes where the sizes differ, and gives the tensor as it is where they do not. Behind it the
tensor has the sizes that were asked for either way. Anything else at such a line is decided as before.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch.fx import traceback
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from batch_export.exporter.capture import decided_lines
from batch_export.exporter.capture.branch_knowledge import knowledge_of_branches
from batch_export.exporter.capture.guard_sources import users_frame
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.read_values import value_of
from batch_export.exporter.capture.size_questions import is_size
from batch_export.exporter.capture.way_sizes import OF_SIZE

RESIZED = "resized_at_other_sizes"
"""Marks such a `cond` among what torch notes of a node (`custom`)."""
_RESIZING = (
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)
"""Functions of torch behind `torch.nn.functional.interpolate`."""
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic")
_READ = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp),
    *(ast.operator, ast.unaryop, ast.expr_context),
)


@dataclass(frozen=True, slots=True)
class _Resize:
    """An `if` behind one side of which a tensor is resized, and behind the other one it is left as it is.

    Attributes:
        first: the first line of what is asked.
        last: its last line.
        sides: what is compared; the tensor is resized where any two of these differ.
        call: what resizes.
    """

    first: int
    last: int
    sides: tuple[tuple[ast.expr, ast.expr], ...]
    call: ast.Call


@dataclass(slots=True)
class _Visit:
    """One time that such an `if` was asked of free sizes, and answered so that it resizes.

    Attributes:
        resize: the `if`.
        frame: of the function, by which another call of it is told apart.
        sizes: the sizes that are compared, of which some may be numbers.
    """

    resize: _Resize
    frame: FrameType
    sizes: list[tuple[Any, Any]]


def any_resize(places: Iterable[str]) -> bool:
    """Returns whether some of several places (`file:line`) ask for nothing but other sizes."""
    return decided_lines.any_of(places, _lines)


@contextlib.contextmanager
def resizes_taken() -> Iterator[None]:
    """Within, an `if` that does nothing but resize a tensor to sizes that it has not is a `cond`, and leaves no guard.

    NOTE: this wraps a private method of torch's symbolic numbers, by which Python's `if` asks them, and the functions
    behind `torch.nn.functional.interpolate`.
    """
    own: Any = SymNode.guard_bool
    visits: list[_Visit] = []

    def guard_bool(self: SymNode, file: str, line: int) -> bool:
        frame = users_frame()
        resize = None if frame is None else _resize_at(frame.f_code.co_filename, frame.f_lineno)
        if frame is not None and resize is not None and frame.f_lineno <= resize.last:
            sizes = _sizes(resize, frame) if _is_torchs(resize.call, frame) else []
            answer = next((one for pair in sizes if (one := _answer(self, *pair)) is not None), None)
            if answer is not None:
                visits[:] = [one for one in visits if one.frame is not frame]
                visits.append(_Visit(resize, frame, sizes))
                return answer
        return bool(own(self, file, line))

    def resizing(name: str) -> Callable[..., torch.Tensor]:
        function = getattr(torch._C._nn, name)

        def resized(x: torch.Tensor, *args: Any) -> torch.Tensor:
            frame = users_frame() if visits else None
            visit = next((one for one in visits if one.frame is frame), None)
            if frame is None or visit is None or not _is_at(visit.resize.call, frame.f_lineno):
                made: torch.Tensor = function(x, *args)
                return made
            visits.remove(visit)
            return _where_they_differ(visit, lambda *given: function(*given), x, args)

        return resized

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(SymNode, "guard_bool", guard_bool))
        for name in _RESIZING:
            stack.enter_context(patch.object(torch._C._nn, name, resizing(name)))
        yield


def _answer(asked: SymNode, one: Any, other: Any) -> bool | None:
    """The answer that two sizes differ, where that is asked."""
    for answer, compared in ((False, one == other), (True, one != other)):
        if isinstance(compared, torch.SymBool) and compared.node.expr == asked.expr:
            return answer
    return None


def _where_they_differ(visit: _Visit, resize: Callable[..., torch.Tensor], x: torch.Tensor, args: Any) -> torch.Tensor:
    """A tensor resized where sizes differ.

    Args:
        visit: the sizes.
        resize: what resizes.
        x: the tensor: its first two axes are never resized.
        args: the sizes to which it is resized, and how.

    Raises:
        RuntimeError: where all that is compared is equal the tensor may have other sizes.
    """
    sizes = [*x.shape[:2], *args[0]]
    if len(sizes) != x.ndim or not all(_are_equal(*pair, visit.sizes) for pair in zip(x.shape, sizes, strict=True)):
        raise RuntimeError("what is resized to other sizes may have other sizes where it is not")
    differ = [torch.full((), one, dtype=torch.int64) != other for one, other in visit.sizes]
    asked = functools.reduce(torch.logical_or, differ)
    count = len(args[0])
    given = [one for one in (*args[0], *x.shape[:2]) if isinstance(one, torch.SymInt)]

    def with_given(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        left = iter(operands)
        own = [next(left) if isinstance(one, torch.SymInt) else one for one in (*args[0], *x.shape[:2])]
        return own[:count], own[count:]

    def resized(tensor: torch.Tensor, *operands: Any) -> tuple[torch.Tensor]:
        made = resize(tensor, with_given(operands)[0], *args[1:])
        return (made.clone(memory_format=torch.contiguous_format),)

    def as_it_is(tensor: torch.Tensor, *operands: Any) -> tuple[torch.Tensor]:
        new, kept = with_given(operands)
        return (OF_SIZE(tensor, [*kept, *new], []),)

    with knowledge_of_branches(), traceback.preserve_node_meta(), traceback.annotate({RESIZED: True}):
        (chosen,) = torch.ops.higher_order.cond(asked, resized, as_it_is, (x, *given))
    found: torch.Tensor = chosen
    return found


def _are_equal(size: Any, other: Any, known: Sequence[tuple[Any, Any]]) -> bool:
    """Whether two sizes are equal where all known pairs are."""
    if statically_known_true(size == other):
        return True
    return any(
        (_is_same(size, one) and _is_same(other, two)) or (_is_same(size, two) and _is_same(other, one))
        for one, two in known
    )


def _is_same(one: Any, other: Any) -> bool:
    return statically_known_true(one == other)


def _is_torchs(call: ast.Call, frame: FrameType) -> bool:
    """Whether torch's own function resizes, to sizes, in a way that changes nothing of what has these sizes."""
    modes = [one.value for one in call.keywords if one.arg == "mode"]
    mode = value_of(modes[0], frame) if modes else "nearest"
    return value_of(call.func, frame) is torch.nn.functional.interpolate and mode in _MODES


def _sizes(resize: _Resize, frame: FrameType) -> list[tuple[Any, Any]]:
    """The sizes that an `if` compares, without those that are equal anyway; nothing where one cannot be told."""
    found: list[tuple[Any, Any]] = []
    for one, other in resize.sides:
        left, right = value_of(one, frame), value_of(other, frame)
        several = [isinstance(side, (tuple, list)) for side in (left, right)]
        if not any(several):
            found.append((left, right))
        elif not all(several) or isinstance(left, list) != isinstance(right, list) or len(left) != len(right):
            return []
        else:
            found.extend(zip(left, right, strict=True))
    if any(type(side) not in (int, torch.SymInt) or free_unbacked_symbols(side) for pair in found for side in pair):
        return []
    return [pair for pair in found if not statically_known_true(pair[0] == pair[1])]


def _is_at(call: ast.Call, line: int) -> bool:
    return call.lineno <= line <= (call.end_lineno or call.lineno)


def _lines(file: str) -> frozenset[int]:
    return frozenset(line for one in _resizes(file) for line in range(one.first, one.last + 1))


def _resize_at(file: str, line: int) -> _Resize | None:
    return next((one for one in _resizes(file) if one.first <= line <= one.last), None)


@functools.lru_cache(maxsize=16)
def _resizes(file: str) -> tuple[_Resize, ...]:
    tree = parsed(file)
    if tree is None:
        return ()
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            found[node.test.lineno] = _resize(node.test, _Side(node.body), _Side(node.orelse))
        for _, block in ast.iter_fields(node):
            for place, one in enumerate(block if isinstance(block, list) else ()):
                if isinstance(one, ast.If):
                    found[one.lineno] = _of_statement(one, block[place + 1 :])
    return tuple(one for one in found.values() if one is not None)


@dataclass(frozen=True, slots=True)
class _Side:
    """What one side of an `if` gives.

    Attributes:
        value: the value.
        target: the name that gets it; empty where it is returned, or stands in an expression.
    """

    value: ast.expr
    target: str = ""


def _of_statement(node: ast.If, behind: Sequence[ast.stmt]) -> _Resize | None:
    """The resizing that an `if` stands for, with what follows it in its block."""
    one = _side(node.body)
    if one is None:
        return None
    if node.orelse:
        other = _side(node.orelse)
    elif one.target:
        other = _Side(ast.parse(one.target, mode="eval").body, one.target)
    else:
        until = next((place for place, each in enumerate(behind) if isinstance(each, ast.Return)), len(behind))
        other = _side(behind[: until + 1])
    return None if other is None else _resize(node.test, one, other)


def _side(block: Sequence[ast.stmt]) -> _Side | None:
    """What a block gives that does nothing else; numbers may be worked out in front of it."""
    match block:
        case [ast.Return(value=ast.expr() as value)]:
            return _Side(value)
        case [ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value)]:
            return _Side(value, ast.unparse(target))
    return None


def _resize(test: ast.expr, one: _Side, other: _Side) -> _Resize | None:
    """A resizing by what is asked, what is given where that is so, and what where it is not."""
    asked, differ = _compared(test)
    then, otherwise = (one, other) if differ else (other, one)
    call = then.value
    if not asked or then.target != otherwise.target or not isinstance(call, ast.Call):
        return None
    x = next((each for each in (*call.args[:1], *(one.value for one in call.keywords if one.arg == "input"))), None)
    rest = [*call.args[1:], *(each.value for each in call.keywords)]
    if x is None or ast.unparse(x) != ast.unparse(otherwise.value) or not _is_read(x):
        return None
    if len(call.args) > 2 or not all(map(_is_read, rest)) or not _is_read(call.func):
        return None
    names = {each.arg for each in call.keywords} | ({"size"} if len(call.args) == 2 else set())
    if "size" not in names or "scale_factor" in names or None in names:
        return None
    return _Resize(test.lineno, test.end_lineno or test.lineno, asked, call)


def _compared(test: ast.expr) -> tuple[tuple[tuple[ast.expr, ast.expr], ...], bool]:
    """What is compared, and whether a condition holds where any two of it differ, or where none do."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            sides, differ = _compared(inner)
            return sides, not differ
        case ast.BoolOp(op=kind, values=values):
            parts = [_compared(one) for one in values]
            is_any = isinstance(kind, ast.Or)
            known = all(sides and differ == is_any for sides, differ in parts)
            return (tuple(pair for sides, _ in parts for pair in sides) if known else ()), is_any
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as kind], comparators=[right]):
            return (((left, right),) if _is_read(left) and _is_read(right) else ()), isinstance(kind, ast.NotEq)
    return (), True


def _is_read(expression: ast.expr) -> bool:
    """Whether an expression may be worked out once more, or in vain: it calls nothing but `x.size(1)`, `tuple(...)`."""
    inner = [one for call in ast.walk(expression) if _is_sequence(call) for one in (call, call.func)]  # type: ignore[attr-defined]
    return all(isinstance(one, _READ) or is_size(one) or one in inner for one in ast.walk(expression))


def _is_sequence(call: ast.AST) -> bool:
    match call:
        case ast.Call(func=ast.Name(id="tuple" | "list"), args=[_], keywords=[]):
            return True
    return False
