"""What functions of torch make of lists of free length (`free_sequences.py`): operators on one tensor.

Arrives: calls that a model makes while torch captures it. Leaves: the tensor that such a list is, or one made of it;
for any other function the list that Python would have had, which holds the axis to the example's size.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture import free_pieces
from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows, FreeSequence
from batch_export.exporter.capture.loop_pieces import LoopPieces

_JOINS: Mapping[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("cat", "concat", "concatenate", "vstack", "row_stack"), FreeRows.joined),
    "stack": lambda rows, *args, **given: rows.stacked(*args, **given),
}
"""Functions of torch that take a list of tensors, which has to be one of Python's before any mode hears of the call."""
_CATS = ("cat", "concat", "concatenate")
_FEWEST_AXES = {"stack": 1, "vstack": 3, "row_stack": 3}
_PADDING = ("batch_first", "padding_value", "padding_side")
_TENSORS = frozenset({torch.tensor, torch.as_tensor})


@contextlib.contextmanager
def joining() -> Iterator[None]:
    """Within, functions of torch that join tensors take slices of a free number.

    NOTE: this replaces functions of torch's while a model is captured; `from torch import cat` is not seen.
    """
    library: Any = torch
    kept = {name: getattr(library, name) for name in _JOINS if hasattr(library, name)}

    def either(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def joined(*args: Any, **given: Any) -> Any:
            first = args[0] if args else given.get("tensors")
            if not isinstance(first, FreeSequence):
                return own(*args, **given)
            rest = {**dict(zip(("dim",), args[1:], strict=False)), **given}
            rest.pop("tensors", None)
            if (
                name in _CATS
                and len(args) <= 2
                and isinstance(first, free_pieces.FreePieces)
                and first.are_joined(rest)
            ):
                return first.joined()
            is_free = isinstance(first, FreeRows) and not first.is_plain
            is_free = is_free or (name == "stack" and isinstance(first, LoopPieces))
            if is_free and len(args) <= 2 and rest.keys() <= {"dim"} and _has_axes(name, first):
                return _JOINS[name](first, **rest)
            return own(first.plain(), *args[1:], **{name: one for name, one in given.items() if name != "tensors"})

        return functools.wraps(own)(joined)

    def pad_sequence(sequences: Any, *args: Any, **given: Any) -> Any:
        named = {**dict(zip(_PADDING, args, strict=False)), **given}
        if isinstance(sequences, free_pieces.FreePieces) and sequences.are_padded(named):
            return sequences.padded(**named)
        return own_padding(sequences, *args, **given)

    own_padding = torch.nn.utils.rnn.pad_sequence
    for name, own in kept.items():
        setattr(library, name, either(name, own))
    torch.nn.utils.rnn.pad_sequence = functools.wraps(own_padding)(pad_sequence)
    try:
        yield
    finally:
        for name, own in kept.items():
            setattr(library, name, own)
        torch.nn.utils.rnn.pad_sequence = own_padding


def _has_axes(name: str, rows: Any) -> bool:
    return bool(rows.rows.dim() >= _FEWEST_AXES.get(name, 2))


def by_tensors(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> tuple[bool, Any]:
    """A call with such a sequence among its arguments: whether it is one, and what comes of it."""
    if not any(_is_inside(one) for one in (*args, *given.values())):
        return False, None
    first = args[0] if args else None
    pieces = free_pieces.split(function, args, given)
    if pieces is not None:
        return True, pieces
    if function in _TENSORS and isinstance(first, FreeNumbers) and len(args) == 1 and given.keys() <= _KINDS:
        return True, first.as_tensor(**given)
    if function is Tensor.new_tensor and not given and len(args) == 2 and isinstance(args[1], FreeNumbers):
        return True, args[1].as_tensor(args[0].dtype)
    return True, function(*map(_with_lists, args), **{name: _with_lists(one) for name, one in given.items()})


_KINDS = frozenset({"dtype", "device"})


def _is_inside(one: Any) -> bool:
    if isinstance(one, (builtins.list, builtins.tuple)):
        return any(map(_is_inside, one))
    return isinstance(one, FreeSequence)


def _with_lists(one: Any) -> Any:
    if isinstance(one, FreeSequence):
        return one.as_kind()
    if type(one) in (builtins.list, builtins.tuple):
        return type(one)(map(_with_lists, one))
    return one
