"""Pieces of a tensor, as many as a free size says, by lengths that the data say: `x.split(lengths.tolist())`.

Arrives: `tolist()` of a tensor of whole numbers with a free axis, a call of `split` by what it gave, a comprehension
over the pieces. Leaves: lists of free length of which only `torch.cat` along the first axis makes a tensor: the one
that was split, or what the comprehension makes of all its rows at once; and `pad_sequence`, which takes their rows to
places of their own. Whatever else is done with them makes them plain lists, which holds the axis to the example's size.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.exporter.capture.free_sequences import FreeSequence, Size
from batch_export.exporter.capture.hit_loops import are_places

_SPLITS = (Tensor.split, torch.split, Tensor.split_with_sizes, torch.split_with_sizes)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class FreeLengths(FreeSequence):
    """The whole numbers of a tensor with one axis, which is free."""

    def __init__(self, numbers: Tensor, listed: Callable[[Tensor], list[Any]]) -> None:
        self.numbers = numbers
        self._listed = listed

    def free_length(self) -> Size:
        """The number of elements."""
        return self.numbers.shape[0]

    def _made_plain(self) -> list[Any]:
        return self._listed(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        is_one = not self.is_plain and type(place) is int
        return self.numbers[place].item() if is_one else self.plain()[place]


class FreePieces(FreeSequence):
    """Parts of a tensor, one behind the other along its first axis, which together are all of it.

    Args:
        whole: the tensor.
        lengths: whole numbers along one axis, one for each part.
        listed: what makes the parts themselves.
        kind: list or tuple.
        are_rows: whether the lengths count their rows.
    """

    def __init__(
        self, whole: Tensor, lengths: Tensor, listed: Callable[[], list[Any]], kind: type, are_rows: bool = True
    ) -> None:
        self.whole = whole
        self.kind = kind
        self._lengths = lengths
        self._listed = listed
        self._are_rows = are_rows

    def free_length(self) -> Size:
        """The number of pieces."""
        return self._lengths.shape[0]

    def _made_plain(self) -> list[Any]:
        return self._listed()

    def __getitem__(self, place: Any) -> Any:
        return self.as_kind()[place]

    def are_joined(self, given: Mapping[str, Any]) -> bool:
        """Whether arguments of `torch.cat` say that they stand one behind the other as they did."""
        return not self.is_plain and given.keys() <= {"dim"} and given.get("dim", 0) in (0, -self.whole.dim())

    def joined(self) -> Tensor:
        """All of them, one behind the other."""
        return self.whole.clone(memory_format=torch.contiguous_format)

    def padded(self, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
        """Beside one another as `pad_sequence` puts them, each made as long as the longest one."""
        lengths = self._lengths.to(torch.int64)
        longest: Any = lengths.max().item()
        torch._check(longest >= 0)
        places = torch.arange(longest, device=self.whole.device).expand(lengths.shape[0], longest)
        if padding_side == "left":
            places = places - (longest - lengths)[:, None]
        is_row = (places >= 0) & (places < lengths[:, None])
        rows = self.whole[torch.where(is_row, places + (lengths.cumsum(0) - lengths)[:, None], 0)]
        filled = rows.masked_fill(~is_row.view(*is_row.shape, *[1] * (rows.dim() - 2)), padding_value)
        return filled if batch_first else filled.transpose(0, 1).contiguous()

    def are_padded(self, given: Mapping[str, Any]) -> bool:
        """Whether `padded` gives what `pad_sequence` does with these arguments."""
        known = {"batch_first": (bool,), "padding_value": (int, float), "padding_side": (str,)}
        return (
            not self.is_plain
            and self._are_rows
            and all(name in known and isinstance(one, known[name]) for name, one in given.items())
            and given.get("padding_side", "right") in ("left", "right")
        )

    def as_other(self, kind: type) -> FreePieces:
        """The same as a list or a tuple."""
        return FreePieces(self.whole, self._lengths, self.plain, kind, self._are_rows)

    def mapped(self, function: Callable[[Any], Any]) -> FreePieces | None:
        """What a function makes of each; None where that is not known to be what it makes of all rows at once."""
        try:
            made = function(_Rows(self.whole))
        except _NotByRowsError:
            return None
        if not isinstance(made, _Rows):
            return None
        as_many = statically_known_true(made._tensor.shape[0] == self.whole.shape[0])
        return FreePieces(made._tensor, self._lengths, too_late, list, self._are_rows and as_many)


def too_late() -> NoReturn:
    """What was computed of each piece may be something else by now; a capture without lists of free length knows it."""
    raise _NotByRowsError("pieces as many as a free size says, by lengths that the data say, are used one by one")


def mapped(function: Callable[[Any], Any], over: Any) -> Any:
    """`[function(one) for one in over]`."""
    if isinstance(over, FreePieces) and not over.is_plain and (made := over.mapped(function)) is not None:
        return made
    return [function(one) for one in over]


def split(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> FreePieces | None:
    """What a call of `split` by such lengths gives; None for any other call."""
    if function not in _SPLITS or not args or not isinstance(args[0], Tensor):
        return None
    bound = {**dict(zip(("tensor", "lengths", "dim"), args, strict=False)), **given}
    tensor, dim = bound["tensor"], bound.get("dim", 0)
    (lengths,) = [one for one in bound.values() if isinstance(one, FreeLengths)] or (None,)
    if lengths is None or lengths.is_plain or not isinstance(dim, int) or dim not in (0, -tensor.dim()):
        return None
    return FreePieces(tensor, lengths.numbers, lambda: list(tensor.split(lengths.plain())), tuple)


@contextlib.contextmanager
def lists_of_data(made: list[object]) -> Iterator[None]:
    """Within, `tolist()` of whole numbers along a free axis gives a list of free length, which is noted.

    NOTE: this replaces a method of torch's stand-ins for tensors while a model is captured.
    """
    kinds: list[Any] = [kind for kind in (FunctionalTensor, FakeTensor) if "tolist" in vars(kind)]
    before = [(kind, kind.tolist) for kind in kinds]

    def either(own: Callable[[Tensor], list[Any]]) -> Callable[[Tensor], Any]:
        def tolist(self: Tensor) -> Any:
            length: Any = self.shape[0] if self.dim() == 1 else 0
            if self.dtype not in _WHOLE or not isinstance(length, torch.SymInt) or are_places(self):
                return own(self)
            lengths = FreeLengths(self.clone(), own)  # what is written to it later is not in the list
            made.append(lengths)
            return lengths

        return tolist

    for kind, own in before:
        kind.tolist = either(own)
    try:
        yield
    finally:
        for kind, own in before:
            kind.tolist = own


class _NotByRowsError(RuntimeError):
    """A function does something with a piece that is not known to go row by row."""


class _Rows:
    """All rows of a tensor, in the place of some of them: takes only what goes row by row."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @property
    def shape(self) -> _Sizes:
        """The sizes, of which the first one is not known."""
        return _Sizes(self._tensor)

    def size(self, axis: int | None = None) -> Any:
        """One of the sizes."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """The number of axes."""
        return self._tensor.dim()

    def reshape(self, *sizes: Any) -> _Rows:
        """Rows of another shape, each of which is part of one row."""
        wanted = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
        row = self._tensor.shape[1:]
        are_known = all(type(one) is int and one > 0 for one in (*wanted[1:], *row))
        if not wanted or wanted[0] != -1 or not are_known or math.prod(row) % math.prod(wanted[1:]):
            raise _NotByRowsError("reshape")
        return _Rows(self._tensor.reshape(*wanted))

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> _Rows:
        """Axes of a row as one, or its first ones as further rows."""
        return _Rows(self._tensor.flatten(start_dim, end_dim))

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "device", "ndim"):
            return getattr(self._tensor, name)
        if name not in _BY_ELEMENT:
            raise _NotByRowsError(name)
        return lambda *args, **given: _Rows(getattr(self._tensor, name)(*_numbers(args), **given))

    def __add__(self, other: Any) -> _Rows:
        return _Rows(self._tensor + _number(other))

    def __sub__(self, other: Any) -> _Rows:
        return _Rows(self._tensor - _number(other))

    def __mul__(self, other: Any) -> _Rows:
        return _Rows(self._tensor * _number(other))

    def __truediv__(self, other: Any) -> _Rows:
        return _Rows(self._tensor / _number(other))

    __radd__, __rmul__ = __add__, __mul__

    def __bool__(self) -> bool:
        raise _NotByRowsError("bool")

    def __len__(self) -> int:
        raise _NotByRowsError("len")

    def __iter__(self) -> Iterator[Any]:
        raise _NotByRowsError("iter")

    def __eq__(self, other: object) -> bool:
        raise _NotByRowsError("==")

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for a function of its own."""
        is_first = bool(args) and isinstance(args[0], cls) and not any(isinstance(one, cls) for one in args[1:])
        if func not in _FUNCTIONS or not is_first:
            raise _NotByRowsError(str(func))
        if func is torch.nn.functional.linear and args[0]._tensor.dim() < 2:
            raise _NotByRowsError("linear")
        return _Rows(func(args[0]._tensor, *args[1:], **dict(kwargs or {})))


_BY_ELEMENT = frozenset(
    ("to", "float", "half", "double", "bfloat16", "contiguous", "clone", "relu", "tanh", "sigmoid", "exp", "abs", "neg")
)
_FUNCTIONS = frozenset(
    (
        *(torch.nn.functional.linear, torch.nn.functional.gelu, torch.nn.functional.silu, torch.nn.functional.relu),
        *(torch.relu, torch.tanh, torch.sigmoid, torch.exp, torch.abs),
    )
)


class _Sizes:
    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return self._tensor.dim()

    def __getitem__(self, place: Any) -> Any:
        places = range(self._tensor.dim())[place]
        if 0 in (places if isinstance(places, range) else (places,)):
            raise _NotByRowsError("the number of rows")
        return self._tensor.shape[place]

    def __iter__(self) -> Iterator[Any]:
        raise _NotByRowsError("the number of rows")


def _number(other: Any) -> Any:
    if not isinstance(other, (int, float)):
        raise _NotByRowsError("an operand")
    return other


def _numbers(args: Sequence[Any]) -> Sequence[Any]:
    if any(isinstance(one, (Tensor, _Rows)) for one in args):
        raise _NotByRowsError("an operand")
    return args
