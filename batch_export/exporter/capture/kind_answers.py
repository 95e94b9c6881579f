"""What a model's code is told, while torch captures it, of the kinds of what it holds: what it is told in eager.

Arrives: what the code asks Python of an object. Leaves: Python's answer for what stands there in eager, where a size is
an int and a tensor none of torch's stand-ins for tensors. Code that asks for such a stand-in wants to know whether it
is captured: the answer stands, and the line is noted, so that the program is compared with the model. Where torch has
told the same line so, the model is compared for that already.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.exporter.capture.calls_without_numbers import note_answer
from batch_export.exporter.capture.either_kinds import EitherKind, settled
from batch_export.exporter.capture.free_sequences import FreeSequence
from batch_export.exporter.capture.traced_questions import is_asked_here

_PLAIN: tuple[tuple[Any, object], ...] = ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False))

_EMPTY: Mapping[type, object] = {list: [], tuple: (), range: range(0)}


def _isinstance(one: object, kinds: Any) -> bool:
    """As Python's, and true of a symbolic number for what is true of a number."""
    if builtins.isinstance(one, EitherKind):
        answers = [builtins.isinstance(like, kinds) for like in (0, 0.0)]
        return answers[0] if answers[0] == answers[1] else _isinstance(settled(one), kinds)
    if builtins.isinstance(one, kinds):
        stands_in = builtins.isinstance(one, FakeTensor) and not builtins.issubclass(kind_of(one), kinds)
        if stands_in and not is_asked_here():
            note_answer()
        return True
    if builtins.isinstance(one, FreeSequence):
        return builtins.isinstance(_EMPTY[one.kind], kinds)
    return any(builtins.type(one) is symbolic and builtins.isinstance(like, kinds) for symbolic, like in _PLAIN)


def kind_of(one: object) -> type:
    """What `type` gives of something in eager."""
    one = settled(one)
    for symbolic, like in _PLAIN:
        if builtins.type(one) is symbolic:
            return builtins.type(like)
    if builtins.isinstance(one, FreeSequence):
        return one.kind
    kind = builtins.type(one)
    if builtins.isinstance(one, torch.Tensor) and kind.__module__.startswith("torch._subclasses."):
        return torch.nn.Parameter if builtins.isinstance(one, torch.nn.Parameter) else torch.Tensor
    return kind


class _Kind(type):
    """What makes `_type` behave as Python's `type`."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return kind_of(args[0]) if len(args) == 1 and not options else builtins.type(*args, **options)

    def __instancecheck__(cls, one: object) -> bool:
        return builtins.isinstance(one, type)

    def __subclasscheck__(cls, one: type) -> bool:
        return issubclass(one, type)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type

    def __hash__(cls) -> int:
        return hash(type)


class _type(type, metaclass=_Kind):  # noqa: N801
    """As Python's `type`, and of a symbolic number the kind of a number."""


def class_of(one: Any) -> Any:
    """What `one.__class__` is in eager."""
    found = one.__class__
    return kind_of(one) if found is builtins.type(one) else found


def _getattr(one: object, *named: Any) -> Any:
    if named[:1] == ("__class__",):
        return class_of(one)
    if len(named) > 1:
        _note_asked(one, named[0])
    return builtins.getattr(one, *named)


def _hasattr(one: object, name: str) -> bool:
    _note_asked(one, name)
    return builtins.hasattr(one, name)


def _note_asked(one: object, name: object) -> None:
    """Notes the line where something is looked for that stand-ins have and tensors and numbers have not."""
    for symbolic, like in _PLAIN:
        if builtins.type(one) is symbolic and builtins.isinstance(name, str):
            if builtins.hasattr(one, name) != builtins.hasattr(like, name):
                note_answer()
            return
    if builtins.isinstance(one, FakeTensor) and name in _OF_STAND_IN:
        note_answer()


_OF_STAND_IN = frozenset({*vars(FakeTensor), *FakeTensor.__annotations__}) - frozenset(dir(torch.Tensor))
"""What torch's stand-ins have and tensors have not."""


TOLD: tuple[tuple[str, object], ...] = (
    ("isinstance", _isinstance),
    ("type", _type),
    ("getattr", _getattr),
    ("hasattr", _hasattr),
)
"""Python's name -> what the code gets in its place."""
