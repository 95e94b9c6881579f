"""Crops and joined parts by a condition on sizes (`if n % 2: x = x[:, :-1]`), whose lengths are functions of them.

Arrives: an `if` of a model's source, or what it asks and a tensor. Leaves: a call that the new code makes in its place,
or the tensor itself: cropped to a length that is all of it where the model does not crop, or with parts behind it that
are of no elements where the model adds none. Nothing is decided, but what cannot be told by arithmetic.

What is joined is a copy, where the model may join nothing and leave the tensor itself: the program's node says so.
So it does of a crop that is copied (`x[:, :n].contiguous()`).
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import traceback

from batch_export.exporter.capture.number_choice import Number, chosen, never_negative
from batch_export.exporter.capture.size_questions import Question, asked_sizes, is_arithmetic, is_size
from batch_export.exporter.capture.taken_pads import IN_ORDER, TAKEN

Asked = Sequence[tuple[Any, str, Any]]
_CROPPED = "__cropped_by_sizes__"
_JOINED = "__joined_by_sizes__"
_NOT_NEGATIVE = "__not_negative_size__"
_CATS = ("cat", "concat", "concatenate")
_FILLED = ("new_full", "full")
"""Calls whose first argument has lengths."""
_MADE = (*_FILLED, "new_zeros", "new_ones", "new_empty", "zeros", "ones", "empty", "repeat", "expand")
"""Calls whose arguments are lengths, and may be less than 0 where the model does not make them."""
_TURNED = ("flip", "clone", "to", "zeros_like", "ones_like")
"""Calls that leave the tensor as it is, or make one like it."""
_COPIED = ("contiguous", "clone")
"""Methods that may stand behind a crop, and copy."""
_READ = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List),
    *(ast.operator, ast.unaryop, ast.keyword, ast.expr_context),
)
"""What is read without a call."""


def crop(tensor: ast.expr, value: ast.expr, questions: ast.expr, *, answer: bool) -> ast.expr | None:
    """The call for a tensor that is cropped at one answer and left whole at the other; None for anything else.

    Args:
        tensor: what is cropped.
        value: the crop.
        questions: what is asked, as the new code hands it over.
        answer: the answer at which it is cropped.
    """
    copied = ""
    match value:
        case ast.Call(func=ast.Attribute(value=cropped, attr=method), args=[], keywords=[]) if method in _COPIED:
            value, copied = cropped, method
    if not isinstance(value, ast.Subscript) or ast.unparse(value.value) != ast.unparse(tensor):
        return None
    if not isinstance(tensor, (ast.Name, ast.Attribute)):
        return None
    parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    dotted = [place for place, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...]
    cuts: list[ast.expr] = []
    for place, part in enumerate(parts):
        if place in dotted:
            continue
        if not isinstance(part, ast.Slice) or part.step is not None:
            return None
        bounds = [ast.Constant(None) if one is None else one for one in (part.lower, part.upper)]
        if not all(map(is_arithmetic, bounds)):
            return None
        axis = place - len(parts) if dotted and dotted[0] < place else place
        cuts.append(ast.Tuple([ast.Constant(axis), *copy.deepcopy(bounds)], ast.Load()))
    if len(dotted) > 1 or not cuts or (len(parts) > 1 and not isinstance(value.slice, ast.Tuple)):
        return None
    read = ast.parse(ast.unparse(tensor), mode="eval").body
    return _call(_CROPPED, questions, read, ast.Tuple(cuts, ast.Load()), ast.Constant(answer), ast.Constant(copied))


def join(name: str, value: ast.expr, questions: ast.expr, *, answer: bool) -> ast.expr | None:
    """The call for a tensor to which parts are joined (`torch.cat([x, x[..., -1:]], -1)`); None for anything else.

    Args:
        name: of the tensor.
        value: what is joined.
        questions: what is asked, as the new code hands it over.
        answer: the answer at which it is joined.
    """
    match value:
        case ast.Call(func=ast.Attribute(attr=function), args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *rest]):
            given = [*rest, *(one.value for one in value.keywords)]
        case _:
            return None
    own = [place for place, part in enumerate(parts) if isinstance(part, ast.Name) and part.id == name]
    if function not in _CATS or len(own) != 1 or len(given) != 1 or any(one.arg != "dim" for one in value.keywords):
        return None
    others = [part for place, part in enumerate(parts) if place not in own]
    if not others or not all(map(is_part, others)) or not is_arithmetic(given[0]):
        return None
    made = ast.List([made_in_vain(part) for part in parts], ast.Load())
    places = ast.Constant(own[0]), copy.deepcopy(given[0])
    return _call(_JOINED, questions, copy.deepcopy(value.func), made, *places, ast.Constant(answer))


def is_call(made: ast.expr) -> bool:
    """Whether it is the call for a crop, or for what is joined."""
    is_named = isinstance(made, ast.Call) and isinstance(made.func, ast.Name)
    return is_named and made.func.id in (_CROPPED, _JOINED)  # type: ignore[attr-defined]


def names() -> Mapping[str, Callable[..., Any]]:
    """What the new code calls."""
    return {_CROPPED: _cropped, _JOINED: _joined, _NOT_NEGATIVE: _not_negative}


class _Lengths(ast.NodeTransformer):
    """Lengths of what is made, which are 0 where they would be less."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MADE:
            count = 1 if node.func.attr in _FILLED else len(node.args)
            node.args[:count] = [self._sizes(one) for one in node.args[:count]]
        return node

    def _sizes(self, one: ast.expr) -> ast.expr:
        if isinstance(one, (ast.Tuple, ast.List)):
            one.elts = [self._sizes(each) for each in one.elts]
            return one
        value = one.operand if isinstance(one, ast.UnaryOp) else one
        return one if isinstance(value, (ast.Constant, ast.Starred)) else _call(_NOT_NEGATIVE, one)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def made_in_vain(part: ast.expr) -> ast.expr:
    """What is joined, as it is made also where the model does not make it."""
    made: ast.expr = _Lengths().visit(copy.deepcopy(part))
    return made


def is_part(written: ast.expr) -> bool:
    """Whether what is joined may be worked out where nothing is: pieces of tensors, and new ones."""
    for one in ast.walk(written):
        is_call = isinstance(one, ast.Call) and not is_size(one)
        if is_call and (not isinstance(one.func, ast.Attribute) or one.func.attr not in (*_MADE, *_TURNED)):  # type: ignore[attr-defined]
            return False
        if not is_call and not isinstance(one, _READ) and not is_size(one):
            return False
    return True


def _cropped(questions: Asked, tensor: Any, cuts: Sequence[tuple[int, Any, Any]], answer: bool, copied: str) -> Any:
    """A tensor, cropped at one answer; its lengths are chosen where the answer is not the same at all sizes."""

    def as_written() -> Any:
        cropped = tensor[_index(tensor, cuts)]
        return getattr(cropped, copied)() if copied else cropped

    asked = asked_sizes(questions)
    if not isinstance(tensor, torch.Tensor) or isinstance(asked, bool):
        held = asked if isinstance(asked, bool) else any(one.holds for one in asked)
        return as_written() if held == answer else tensor
    made = list(_index(tensor, cuts))
    try:
        for axis, lower, upper in cuts:
            made[axis] = slice(*_bounds(tensor.shape[axis], lower, upper, asked, answer))
    except (ZeroDivisionError, _UntoldError):
        return as_written() if any(one.holds for one in asked) == answer else tensor
    if not copied:
        return tensor[tuple(made)]
    with traceback.preserve_node_meta(), traceback.annotate({TAKEN: 0, IN_ORDER: copied == "contiguous"}):
        return tensor[tuple(made)].clone(memory_format=torch.contiguous_format)


def _index(tensor: Any, cuts: Sequence[tuple[int, Any, Any]]) -> Any:
    """What the model writes in brackets."""
    if not isinstance(tensor, torch.Tensor):
        return slice(*cuts[0][1:])
    index = [slice(None)] * tensor.ndim
    for axis, lower, upper in cuts:
        index[axis] = slice(lower, upper)
    return tuple(index)


class _UntoldError(Exception):
    """It is not known which end a bound is counted from."""


def _bounds(size: Number, lower: Any, upper: Any, asked: Sequence[Question], answer: bool) -> tuple[Any, Any]:
    """Both bounds of a slice at all sizes, each from the start; None where the model has none."""

    def at_all(bound: Any, whole: Number) -> Number | None:
        if bound is None:
            return None
        cut = _place(bound, size, asked, answer)
        found = chosen(cut, whole, asked) if answer else chosen(whole, cut, asked)
        is_known = not isinstance(found, torch.SymInt) or sympy.sympify(found.node.expr).is_nonnegative
        return found if is_known else torch.sym_max(found, 0)

    return at_all(lower, 0), at_all(upper, size)


def _joined(questions: Asked, function: Any, parts: Sequence[Any], own: int, axis: Any, answer: bool) -> Any:
    """A tensor with others joined to it; of these there are no elements where the model joins none."""
    asked = asked_sizes(questions)
    if isinstance(asked, bool) or not isinstance(axis, int) or not _are_alike(function, parts, own):
        held = asked if isinstance(asked, bool) else any(one.holds for one in asked)
        return function(parts, axis) if held == answer else parts[own]
    try:
        kept = [one if place == own else _kept(one, axis, asked, answer) for place, one in enumerate(parts)]
    except ZeroDivisionError:  # at some sizes a length is no number
        return function(parts, axis) if any(one.holds for one in asked) == answer else parts[own]
    with traceback.preserve_node_meta(), traceback.annotate({TAKEN: own}):
        return function(kept, axis)


def _are_alike(function: Any, parts: Sequence[Any], own: int) -> bool:
    """Whether torch joins tensors, and what it makes of them has the dtype of the tensor that they are joined to."""
    is_torchs = any(function is getattr(torch, name) for name in _CATS)  # which captures may have wrapped by now
    if not is_torchs or not all(isinstance(one, torch.Tensor) for one in parts):
        return False
    made = functools.reduce(torch.promote_types, (one.dtype for one in parts))
    return bool(made == parts[own].dtype)


def _kept(part: torch.Tensor, axis: int, asked: Sequence[Question], answer: bool) -> torch.Tensor:
    size: Any = part.shape[axis]
    kept: Any = chosen(size, 0, asked) if answer else chosen(0, size, asked)
    if all(isinstance(one, torch.SymInt) for one in (kept, size)) and kept.node.expr == size.node.expr:
        return part
    return part.narrow(axis, 0, kept)


def _place(bound: Any, size: Number, asked: Sequence[Question], answer: bool) -> Number:
    """A bound counted from the start; one that would be before it is it.

    Raises:
        _UntoldError: it is not known which end the model counts it from.
    """
    if type(bound) not in (int, torch.SymInt):
        raise _UntoldError
    if never_negative(bound, asked, answer=answer):
        return bound  # type: ignore[no-any-return]
    if not never_negative(-1 - bound, asked, answer=answer):  # `x[:, -0:]` is all of it
        raise _UntoldError
    place: Number = size + bound
    return place if never_negative(place, asked, answer=answer) else torch.sym_max(place, 0)


def _not_negative(length: Any) -> Any:
    """A length that is 0 where it would be less; -1 is none, but an axis as it is."""
    is_length = type(length) is torch.SymInt or (type(length) is int and length != -1)
    return torch.sym_max(length, 0) if is_length else length


def parts_of(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr | ast.AugAssign]]:
    """Names and what they are given, of statements that give each one name a value, or add to what it has."""
    for one in body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name, one
            case _:
                yield "", ast.Constant(None)
