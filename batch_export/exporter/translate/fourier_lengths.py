"""Fourier transforms of a given length along an axis of free size: zeros are added and what is too much is cut off.

torch looks whether the axis is longer or shorter, and does one of the two. Of a free axis it takes the example's answer
without a guard that anybody tries, so that the file is wrong on the other side. Doing both is right at every size.

Arrives: an operator of `torch.fft` and its fake arguments. Leaves: torch's decomposition of the same operator, whose
input has the length that it will look for; and of the operators in it the fake result, for which torch (2.13) goes
through the sizes as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

aten = torch.ops.aten
_TRANSFORMS = frozenset({aten._fft_c2c.default, aten._fft_c2r.default, aten._fft_r2c.default})
Size = int | torch.SymInt
Decomposition = Callable[..., object]

_ALONG_ONE = ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft")
_ALONG_SEVERAL = (
    "fft2",
    "ifft2",
    "rfft2",
    "irfft2",
    "hfft2",
    "ihfft2",
    "fftn",
    "ifftn",
    "rfftn",
    "irfftn",
    "hfftn",
    "ihfftn",
)
_OF_HALVES = ("irfft", "hfft")
"""Those whose names begin so take one half, and the middle, of what they are given the length of."""


def decompositions() -> dict[Any, Decomposition]:
    """The operators and their decompositions."""
    table: dict[Any, Decomposition] = {}
    for names, made in ((_ALONG_ONE, _along_one), (_ALONG_SEVERAL, _along_several)):
        for name in names:
            target: Any = getattr(torch.ops.aten, f"fft_{name}").default
            table[target] = made(target, is_half=name.startswith(_OF_HALVES))
    return table


def result_of(target: object, args: Sequence[Any]) -> torch.Tensor | None:
    """What a transform gives, without numbers; None for any other operator."""
    if target not in _TRANSFORMS or len(args) != 4:
        return None
    data, dim, _, how = args
    sizes = list(data.shape)
    if target is aten._fft_c2c.default:
        return torch.empty_like(data)
    if target is aten._fft_c2r.default:
        sizes[dim[-1]] = how
        return torch.empty(sizes, dtype=data.dtype.to_real(), device=data.device)
    if how:
        sizes[dim[-1]] = sizes[dim[-1]] // 2 + 1
    return torch.empty(sizes, dtype=data.dtype.to_complex(), device=data.device)


def _composed(target: Any) -> Decomposition:
    """What eager runs for the operator, also while torch decomposes a program by what is made of it here.

    `target.decompose` is then this module's decomposition, which would call itself without end.
    """
    key = torch._C.DispatchKey.CompositeImplicitAutograd

    def composed(*args: object) -> object:
        return target._op_dk(key, *args)

    return composed


def _along_one(target: Any, *, is_half: bool) -> Decomposition:
    composed = _composed(target)

    def decomposed(self: torch.Tensor, n: Size | None = None, dim: int = -1, norm: str | None = None) -> object:
        given = self if n is None else _resized(self, dim, n // 2 + 1 if is_half else n)
        return composed(given, n, dim, norm)

    return decomposed


def _along_several(target: Any, *, is_half: bool) -> Decomposition:
    composed = _composed(target)
    default = [-2, -1] if target._schema.name.endswith("2") else None

    def decomposed(
        self: torch.Tensor,
        s: Sequence[Size] | None = None,
        dim: Sequence[int] | None = default,
        norm: str | None = None,
    ) -> object:
        given = self
        if s is not None:
            for place, (axis, length) in enumerate(zip(dim or range(-len(s), 0), s, strict=True)):
                wanted = length // 2 + 1 if is_half and place == len(s) - 1 else length
                given = _resized(given, axis, wanted)
        return composed(given, s, dim, norm)

    return decomposed


def _resized(data: torch.Tensor, dim: int, wanted: Size) -> torch.Tensor:
    """The data with the wanted length, where it is not known on which side of it the axis is."""
    size = data.shape[dim]
    if (isinstance(wanted, int) and wanted == -1) or _is_one_side(size, wanted):
        return data
    axis = dim % data.dim()
    zeros = data.new_zeros([wanted if place == axis else length for place, length in enumerate(data.shape)])
    longer = torch.ops.aten.cat([data, zeros], axis)
    cut: torch.Tensor = torch.ops.aten.slice.Tensor(longer, axis, 0, wanted)
    return cut


def _is_one_side(size: Size, wanted: Size) -> bool:
    """Whether one is never larger than the other, whatever sizes the axes have; torch asks at the example's too."""
    difference = sympy.expand(_expression(size) - _expression(wanted))
    limits = bound_sympy(difference, {symbol: ValueRanges(0, int_oo) for symbol in difference.free_symbols})
    return bool(limits.lower >= 0) or bool(limits.upper <= 0)


def _expression(size: Size) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
