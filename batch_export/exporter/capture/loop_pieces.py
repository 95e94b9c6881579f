"""Pieces that rounds of a loop give, of a size that data say (`x[i, : n[i]]`, `row[row > 0]`): rounds differ in it.

Arrives: what rounds have given as one operator, which puts results of one shape behind one another. Leaves: for a list
of such pieces their sizes, and their rows one behind the other, from pieces made as long as the longest one. Sizes by
data that stay inside of a round, or that are known before the loop, are no such sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from batch_export.exporter.capture.free_pieces import FreePieces, too_late
from batch_export.exporter.capture.free_sequences import Size

Body = Callable[..., tuple[Any, Sequence[Tensor]]]


class SizeByDataError(RuntimeError):
    """What goes on from round to round has a size that data say."""


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """The sizes that data say in front of a loop."""

    symbols: frozenset[Any]

    @classmethod
    def now(cls, length: Size) -> KnownSizes:
        """Those known by now.

        Args:
            length: how many rounds there are; without a free length no size is asked for.
        """
        is_free = isinstance(length, torch.SymInt)
        return cls(frozenset(length.node.shape_env.var_to_range) if is_free else frozenset())

    def differing(self, rows: Tensor) -> tuple[int, ...]:
        """The axes of rounds' results in which they may differ.

        Args:
            rows: the results, along the first axis.
        """
        sizes = enumerate(rows.shape[1:])
        return tuple(axis for axis, size in sizes if not self.symbols.issuperset(free_unbacked_symbols(size)))

    def check(self, last: Sequence[Tensor]) -> None:
        """Raises of what goes on and differs from round to round."""
        if any(self.differing(one[None]) for one in last):
            raise SizeByDataError("what goes on from round to round has a size that data say")


class LoopPieces(FreePieces):
    """What a list of such pieces is, of which some are joined, padded or stacked.

    Args:
        rows: what the operator gives; of one shape if stacked.
        axis: in which the pieces differ; None of several.
        lengths: how far each piece goes along it.
        padded: pieces made as long as the longest one, with that axis in front.
    """

    def __init__(self, rows: Tensor, axis: int | None, lengths: Tensor, padded: Tensor) -> None:
        self.rows = rows
        self.axis = axis
        whole = rows
        if axis is not None:
            is_row = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
            whole = padded.flatten(0, 1)[is_row.flatten()]
        super().__init__(whole, lengths, too_late, list, axis == 0)

    def are_joined(self, given: Mapping[str, Any]) -> bool:
        """Whether arguments of `torch.cat` join them along the axis in which they differ."""
        dim = given.get("dim", 0)
        is_along = self.axis is not None and dim in (self.axis, self.axis - self.whole.dim())
        return not self.is_plain and given.keys() <= {"dim"} and is_along

    def joined(self) -> Tensor:
        """All of them, one behind the other."""
        return self.whole.movedim(0, self.axis or 0).clone(memory_format=torch.contiguous_format)

    def mapped(self, function: Callable[[Any], Any]) -> FreePieces | None:
        """The same as of other pieces."""
        return super().mapped(function) if self.axis == 0 else None

    def as_other(self, kind: type) -> FreePieces:
        """The same as a list or a tuple."""
        other = LoopPieces.__new__(LoopPieces)
        other.__dict__.update({**self.__dict__, "kind": kind})
        return other

    def grown(self, dim: int) -> Tensor:
        """What a tensor has grown by that got one of them in each round."""
        return self.joined() if self.are_joined({"dim": dim}) else too_late()

    def stacked(self, dim: int = 0) -> Tensor:
        """Beside one another, which takes pieces of one shape."""
        return self.rows.movedim(0, dim).clone(memory_format=torch.contiguous_format)


def lengths_of(body: Body, axes: Mapping[int, int | None]) -> Body:
    """A round that gives how far pieces go along the axis in which they differ.

    Args:
        body: the round.
        axes: for the places of such pieces these axes; None of several.
    """

    def counted(carried: Any, slices: Any, step: Any, is_first: bool) -> tuple[Any, Sequence[Tensor]]:
        now, made = body(carried, slices, step, is_first)
        sizes = [0 if axis is None else made[place].shape[axis] for place, axis in axes.items()]
        return now, tuple(torch.scalar_tensor(size, dtype=torch.int64) for size in sizes)

    return counted


def padded(body: Body, axes: Mapping[int, int | None], longest: Sequence[Tensor]) -> Body:
    """A round that gives pieces with zeros behind them, and whatever else it gives.

    Args:
        body: the round.
        axes: as above; of pieces that differ in several axes nothing is given.
        longest: for each of them a tensor as long as the longest piece; dynamo takes no number that data say.
    """

    def filled(carried: Any, slices: Any, step: Any, is_first: bool) -> tuple[Any, Sequence[Tensor]]:
        now, made = body(carried, slices, step, is_first)
        given = list(made)
        for (place, axis), most in zip(axes.items(), longest, strict=True):
            given[place] = torch.zeros(()) if axis is None else _filled(made[place].movedim(axis, 0), most.shape[0])
        return now, tuple(given)

    return filled


def _filled(piece: Tensor, length: Size) -> Tensor:
    return torch.cat([piece, piece.new_zeros(length, *piece.shape[1:])]).narrow(0, 0, length)


def longest(lengths: Tensor) -> Tensor:
    """A tensor as long as the largest of some lengths; of none, without elements."""
    found: Size = torch.cat([lengths, lengths.new_zeros(1)]).max().item()
    torch._check(found >= 0)
    return torch.arange(found, device=lengths.device)
