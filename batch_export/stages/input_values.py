"""The values of one input: draws that are the same for the same sizes, and special ones of their shapes and dtypes.

A leaf of a `ModelSpec` with sizes arrives, a tensor leaves. Nothing here builds a model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from batch_export.axes import (
    HIGHEST,
    LOWEST,
    NEGATIVE,
    PADDING,
    POSITIVE,
    SEED,
    is_mask,
    range_of,
    size_of,
    terms,
    turned_inputs,
)
from batch_export.digest import digest_value
from batch_export.numbers.tolerances import LARGE_SCALE
from batch_export.spec import InputSpec, ModelSpec


def drawn(spec: ModelSpec, leaf: InputSpec, sizes: Mapping[str, int], variant: str = "") -> torch.Tensor:
    """Returns the values of an input at some sizes, or those of a variant (see `axes.VARIANTS`).

    They are drawn by a generator of the input's own, seeded by the model's seed, the sizes of its axes and its place.
    """
    if leaf in turned_inputs(spec, variant):
        return _turned(leaf, _tensor(spec, leaf, sizes))
    special = _special(leaf, [size_of(entry, sizes) for entry in leaf.shape], variant)
    return _tensor(spec, leaf, sizes, variant) if special is None else special


def _special(leaf: InputSpec, shape: list[int], variant: str) -> torch.Tensor | None:
    """Returns a leaf's values in a variant, or None where it has its ordinary ones (seeds are draws like those)."""
    dtype: torch.dtype = getattr(torch, leaf.dtype)
    if variant in PADDING and is_mask(leaf):
        mask = torch.zeros(shape, dtype=dtype)
        if variant == "padding" and shape:
            mask[..., : (shape[-1] + 1) // 2] = 1
        return mask
    if leaf.fill is not None or dtype.is_complex or _is_float8(dtype):
        return None
    low, high = leaf.low or 0.0, leaf.high
    if variant == "zeros":
        return torch.full(shape, low if low > 0 else 0 if high is None or high > 0 else low).to(dtype)
    if not dtype.is_floating_point:
        first, behind = map(int, range_of(leaf))
        ends = {LOWEST: first, HIGHEST: behind - 1, "large": behind - 1}
        return torch.full(shape, ends[variant], dtype=torch.int64).to(dtype) if variant in ends else None
    if variant == "large" and high is not None:
        return torch.full(shape, high, dtype=torch.float64).to(dtype)
    return None


def _turned(leaf: InputSpec, drawn: torch.Tensor) -> torch.Tensor:
    """Returns the other one of a leaf's two values in each place."""
    if drawn.dtype == torch.bool:
        return ~drawn
    return (2 * int(leaf.low or 0) + 1 - drawn.to(torch.int64)).to(drawn.dtype)  # torch subtracts no wide uint


def _tensor(spec: ModelSpec, leaf: InputSpec, sizes: Mapping[str, int], variant: str = "") -> torch.Tensor:
    shape = [size_of(entry, sizes) for entry in leaf.shape]
    dtype: torch.dtype = getattr(torch, leaf.dtype)
    if leaf.fill is not None:
        fill = leaf.fill if dtype.is_floating_point or dtype.is_complex else int(leaf.fill)
        return torch.full(shape, fill, dtype=torch.float32 if _is_float8(dtype) else dtype).to(dtype)
    generator = torch.Generator().manual_seed(_leaf_seed(spec, leaf, sizes, variant))
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if not dtype.is_floating_point:
        first, behind = map(int, range_of(leaf))
        return torch.randint(first, behind, shape, generator=generator, dtype=torch.int64).to(dtype)
    # Drawn in float32 (float64 for itself) so that lower precisions see rounded values of the same numbers.
    drawn = torch.float64 if dtype is torch.float64 else torch.float32
    if leaf.low is None and leaf.high is None:
        scale = LARGE_SCALE if variant == "large" else 1.0
        return _signed(torch.randn(shape, generator=generator, dtype=drawn) * scale, variant, -1.0, 1.0).to(dtype)
    start, stop = range_of(leaf)
    values = start + (stop - start) * torch.rand(shape, generator=generator, dtype=drawn)
    return _signed(values, variant, start, stop).to(dtype)


def _signed(values: torch.Tensor, variant: str, start: float, stop: float) -> torch.Tensor:
    """Numbers of a range around zero, those of the one sign brought to the other side as far out as they were."""
    if not start < 0 < stop or variant not in (NEGATIVE, POSITIVE):
        return values
    if variant == POSITIVE:
        return torch.where(values < 0, values * (stop / start), values)
    return torch.where(values > 0, values * (start / stop), values)


def _leaf_seed(spec: ModelSpec, leaf: InputSpec, sizes: Mapping[str, int], variant: str) -> int:
    axes = {term for entry in leaf.shape for term in terms(entry) if isinstance(term, str)} or sizes
    drawn = {axis: sizes[axis] for axis in sorted(axes)}
    draw = [variant] if variant.startswith(SEED) else []
    return int(digest_value([spec.seed, drawn, list(leaf.path), *draw])[:15], 16)


def _is_float8(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize == 1
