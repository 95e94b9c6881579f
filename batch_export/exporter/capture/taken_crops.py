"""Crops by a comparison of sizes (`if length < table.shape[0]: table = table[:length]`), taken at every size.

So are `x if x.shape[1] <= 8 else x[:, :8]`, and crops to the last elements (`x[:, -8:]`).

Arrives: lines of a model, or nothing; a context is opened round a capture. Leaves: a capture in which such an `if`
takes no side: cropping to a length that is not smaller changes nothing, so the crop is right either way, and what is
cut has the smaller one of both lengths. Anything else at such a line is decided as before.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.sym_node import SymNode

from batch_export.exporter.capture.guard_sources import users_frame
from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.read_values import value_of
from batch_export.exporter.capture.size_questions import is_size


@dataclass(frozen=True, slots=True)
class _Crop:
    """An `if` that does nothing but crop one tensor: what is cropped to which length, and along which axis.

    Attributes:
        first: the first line of what is asked.
        last: its last line.
        tensor: what is cropped.
        length: the length, of which the first elements are left, or the last ones.
        axis: the axis, counted from the end where it is negative.
        answer: the answer by which it is cropped.
    """

    first: int
    last: int
    tensor: ast.expr
    length: ast.expr
    axis: int
    answer: bool


def any_crop(places: Iterable[str]) -> bool:
    """Returns whether some of several places (`file:line`) ask for nothing but a crop."""
    found = (place.rpartition(":") for place in places)
    return any(line.isdecimal() and _crop_at(file, int(line)) is not None for file, _, line in found)


@contextlib.contextmanager
def crops_taken() -> Iterator[None]:
    """Within, an `if` that does nothing but crop a tensor to a length crops it, and leaves no guard.

    NOTE: this wraps a private method of torch's symbolic numbers, by which Python's `if` asks them.
    """
    own: Any = SymNode.guard_bool

    def guard_bool(self: SymNode, file: str, line: int) -> bool:
        answer = _answer(self)
        return bool(own(self, file, line)) if answer is None else answer

    SymNode.guard_bool = guard_bool  # type: ignore[method-assign]
    try:
        yield
    finally:
        SymNode.guard_bool = own  # type: ignore[method-assign]


def _answer(node: SymNode) -> bool | None:
    """The answer that crops, where the model asks if a length is smaller than the axis that it crops to it."""
    frame = users_frame()
    crop = None if frame is None else _crop_at(frame.f_code.co_filename, frame.f_lineno)
    if frame is None or crop is None:
        return None
    tensor, length = value_of(crop.tensor, frame), value_of(crop.length, frame)
    is_number = isinstance(length, (int, torch.SymInt)) and not isinstance(length, bool)
    if not isinstance(tensor, torch.Tensor) or not is_number or not -tensor.ndim <= crop.axis < tensor.ndim:
        return None
    size: Any = tensor.shape[crop.axis]
    smaller = (length < size, length <= size, length != size, size > length, size >= length, size != length)
    other = (length > size, length >= size, length == size, size < length, size <= length, size == length)
    asked = smaller if crop.answer else other  # each has an expression of its own to sympy
    return crop.answer if any(isinstance(one, torch.SymBool) and one.node.expr == node.expr for one in asked) else None


def _crop_at(file: str, line: int) -> _Crop | None:
    return next((one for one in _crops(file) if one.first <= line <= one.last), None)


@functools.lru_cache(maxsize=16)
def _crops(file: str) -> tuple[_Crop, ...]:
    tree = parsed(file)
    if tree is None:
        return ()
    found = (crop for node in ast.walk(tree) for crop in _crops_of(node))
    return tuple(one for one in found if one is not None)


def _crops_of(node: ast.AST) -> Iterator[_Crop | None]:
    if isinstance(node, ast.IfExp):
        yield _crop(node.test, node.orelse, node.body, answer=True)
        yield _crop(node.test, node.body, node.orelse, answer=False)
    if isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse:
        (one,) = node.body
        if isinstance(one, ast.Assign) and len(one.targets) == 1:
            yield _crop(node.test, one.targets[0], one.value, answer=True)


def _crop(test: ast.expr, whole: ast.expr, value: ast.expr, *, answer: bool) -> _Crop | None:
    """The crop of a tensor that an answer stands for, where the other one leaves it whole."""
    compares = isinstance(test, ast.Compare) and len(test.ops) == 1
    if not compares or not isinstance(value, ast.Subscript) or ast.unparse(whole) != ast.unparse(value.value):
        return None
    parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    cut = [place for place, one in enumerate(parts) if not _is_whole(one)]
    if len(cut) != 1 or not isinstance(parts[cut[0]], ast.Slice):
        return None
    (place,) = cut
    one: Any = parts[place]
    dotted = [place for place, part in enumerate(parts) if _is_ellipsis(part)]
    length = _length(one)
    if length is None or len(dotted) > 1 or not (_is_read(value.value) and _is_read(length)):
        return None
    axis = place - len(parts) if dotted and dotted[0] < place else place
    return _Crop(test.lineno, test.end_lineno or test.lineno, value.value, length, axis, answer)


def _length(cut: ast.Slice) -> ast.expr | None:
    """How many elements a slice leaves at most: the first ones (`:n`), or the last ones (`-n:`)."""
    if cut.step is not None or (cut.lower is None) == (cut.upper is None):
        return None
    if cut.lower is None:
        return cut.upper
    is_of_last = isinstance(cut.lower, ast.UnaryOp) and isinstance(cut.lower.op, ast.USub)
    return cut.lower.operand if is_of_last else None  # type: ignore[attr-defined]


def _is_ellipsis(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is ...


def _is_whole(part: ast.expr) -> bool:
    """Whether an axis is taken as it is: `:` or `...`."""
    is_open = isinstance(part, ast.Slice) and part.lower is None and part.upper is None and part.step is None
    return is_open or _is_ellipsis(part)


_READ = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp, ast.USub, ast.expr_context)


def _is_read(expression: ast.expr) -> bool:
    """Whether an expression may be worked out once more: it calls nothing but `x.size(1)`."""
    return all(isinstance(one, _READ) or is_size(one) for one in ast.walk(expression))
