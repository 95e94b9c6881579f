"""Resizing by scales that are made of sizes (`F.interpolate(x, scale_factor=(height + 0.1) / 16)`).

Arrives: a call of `torch.nn.functional.interpolate`. Leaves: the same of elements that are looked up and weighed, since
torch's own operator takes its scales as the numbers that they are at the example; None where no scale is free.

Source of the rules: torch's own kernels. The distance between new elements is 1 / scale also where the new length is
another multiple of the old one; linear resizing leaves an axis that keeps its length as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_MODES = {
    3: ("nearest", "nearest-exact", "linear"),
    4: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    5: ("nearest", "nearest-exact", "trilinear"),
}
"""By the number of axes: what is resized by scales, and no mean of areas."""
_SMALL = 128
"""Up to this sum of height and width torch's kernel of images looks at lengths that stay or double."""
_SINGLE = (torch.float32, torch.float64)
"""Dtypes that are summed as they are; halves are summed as float32."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that is resized.

    Attributes:
        place: its place.
        old: its length.
        new: the new one.
        scale: the factor that was given.
    """

    place: int
    old: Any
    new: Any
    scale: Any


def scaled(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """A tensor resized by free scales; None for any other, and for bytes and antialiasing.

    Args:
        bound: the arguments of `interpolate` by name.
    """
    x: torch.Tensor = bound["input"]
    scales = _listed(bound.get("scale_factor"), x.dim() - 2)
    is_free = any(isinstance(one, _SYMBOLIC) for one in scales) and len(scales) == x.dim() - 2
    mode, others = bound.get("mode", "nearest"), ("antialias", "recompute_scale_factor")
    if not is_free or mode not in _MODES.get(x.dim(), ()) or any(bound.get(one) for one in others):
        return None
    if not x.is_floating_point():
        return None
    resized = [
        _Axis(place, x.shape[place], torch.sym_int(x.shape[place] * torch.sym_float(scale)), scale)
        for place, scale in enumerate(scales, start=2)
    ]
    if bound.get("align_corners"):
        return functional.interpolate(x, [one.new for one in resized], mode=mode, align_corners=True)
    if mode.startswith("nearest"):
        copies = torch.scalar_tensor(sum(one.new for one in resized), device=x.device) <= _SMALL
        for axis in resized:
            places = _nearest(axis, x.device, is_exact=mode == "nearest-exact")
            x = x.index_select(axis.place, places if x.dim() != 4 else _copied(axis, places, copies, mode))
        return x
    result = x if x.dtype in _SINGLE else x.float()
    for axis in reversed(resized):
        result = _weighed(result, axis, is_cubic=mode == "bicubic")
    return result.to(x.dtype)


def _listed(scales: Any, count: int) -> Sequence[Any]:
    return list(scales) if isinstance(scales, (list, tuple)) else [scales] * count


def _nearest(axis: _Axis, device: torch.device, *, is_exact: bool) -> torch.Tensor:
    """Which element is looked up for each new one, `int64[new]`; the product is one of float32 as in torch's kernel."""
    places = torch.arange(axis.new, device=device)
    step = torch.scalar_tensor(1.0 / axis.scale, dtype=torch.float64, device=device).to(torch.float32)
    begun = places.to(torch.float32) + 0.5 if is_exact else places.to(torch.float32)
    return (begun * step).floor().to(torch.int64).clamp(max=axis.old - 1)


def _copied(axis: _Axis, places: torch.Tensor, copies: torch.Tensor, mode: str) -> torch.Tensor:
    """The same for torch's kernel of small images, which copies an axis that keeps its length, or doubles."""
    if mode == "nearest-exact":
        return places
    new, old = (torch.scalar_tensor(one, dtype=torch.int64, device=places.device) for one in (axis.new, axis.old))
    every = torch.arange(axis.new, device=places.device)
    for times in (2, 1):
        places = torch.where(copies & (new == times * old), every // times, places)
    return places


def _weighed(x: torch.Tensor, axis: _Axis, *, is_cubic: bool) -> torch.Tensor:
    """The neighbours of each new element, weighed by a line between two or by Keys' cubic convolution of four."""
    double = torch.float64
    places = torch.arange(axis.new, dtype=double, device=x.device)
    step = torch.scalar_tensor(1.0 / axis.scale, dtype=double, device=x.device)
    centre = (places + 0.5) * step - 0.5
    if not is_cubic:
        new, old = (torch.scalar_tensor(one, dtype=torch.int64, device=x.device) for one in (axis.new, axis.old))
        centre = torch.where(new == old, places, centre).clamp(min=0.0)
    first = centre.floor()
    share = centre - first
    weights = _cubic(share) if is_cubic else (1.0 - share, share)
    begin, wide = -1 if is_cubic else 0, [-1, *[1] * (x.dim() - 1 - axis.place)]
    total: torch.Tensor | None = None
    for further, weight in enumerate(weights, start=begin):
        found = (first.to(torch.int64) + further).clamp(min=0).clamp(max=axis.old - 1)
        part = x.index_select(axis.place, found) * weight.to(x.dtype).reshape(wide)
        total = part if total is None else total + part
    assert total is not None
    return total


def _cubic(share: torch.Tensor) -> Sequence[torch.Tensor]:
    """Keys' weights (a is -3/4) of the four neighbours of a place that is so far behind the second of them."""

    def inner(x: torch.Tensor) -> torch.Tensor:
        return (1.25 * x - 2.25) * x * x + 1

    def outer(x: torch.Tensor) -> torch.Tensor:
        return ((-0.75 * x + 3.75) * x - 6) * x + 3

    return outer(share + 1), inner(share), inner(1 - share), outer(2 - share)
