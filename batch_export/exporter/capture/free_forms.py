"""Functions of torch whose own form fixes a free size, made of operators that do not.

Arrives: a call that a forward makes, some size among its arguments free. Leaves: the same result by another way, or
None where torch's own form will do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import free_groups, free_scales, free_windows

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def _counted(size: Any, device: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A size, and the numbers from 0 below it, as float64."""
    double = torch.float64
    return torch.scalar_tensor(size, dtype=double, device=device), torch.arange(size, dtype=double, device=device)


def _new_tensor(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """A tensor of numbers some of which are sizes, of another tensor's dtype."""
    if not any(isinstance(one, _SYMBOLIC) for one in pytree.tree_leaves(bound["data"])):
        return None
    dtype = bound["self"].dtype if bound.get("dtype") is None else bound["dtype"]
    device = bound.get("device") or bound["self"].device

    def made(data: Any) -> torch.Tensor:
        if isinstance(data, (list, tuple)):
            return torch.stack([made(one) for one in data])
        return (
            data.to(device, dtype)
            if isinstance(data, torch.Tensor)
            else torch.scalar_tensor(data, dtype=dtype, device=device)
        )

    return made(bound["data"])


def _one_hot(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """One of a free number of classes."""
    if not isinstance(bound.get("num_classes"), torch.SymInt):
        return None
    classes: Any = bound["num_classes"]
    made: torch.Tensor = (
        bound["input"].unsqueeze(-1).eq(torch.arange(classes, device=bound["input"].device)).to(torch.int64)
    )
    return made


def _kron(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Every element of one tensor times the other one."""
    left: torch.Tensor = bound["input"]
    right: torch.Tensor = bound["other"]
    rank = max(left.dim(), right.dim())
    left, right = (one[(None,) * (rank - one.dim())] for one in (left, right))
    pairs = list(zip(left.shape, right.shape, strict=True))
    wide = left.reshape([size for one, _ in pairs for size in (one, 1)])
    tall = right.reshape([size for _, one in pairs for size in (1, one)])
    return (wide * tall).reshape([one * other for one, other in pairs])


def _pad_sequence(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Tensors of free lengths, side by side, each filled up to the longest."""
    sequences: list[torch.Tensor] = list(bound["sequences"])
    lengths: list[Any] = [one.shape[0] for one in sequences]
    if not any(isinstance(length, torch.SymInt) for length in lengths):
        return None
    longest = lengths[0]
    for length in lengths[1:]:
        longest = torch.sym_max(longest, length)
    is_left = bound.get("padding_side", "right") == "left"
    filled = []
    for one, length in zip(sequences, lengths, strict=True):
        missing = longest - length
        widths = [0] * (2 * one.dim() - 2) + ([missing, 0] if is_left else [0, missing])
        filled.append(torch.constant_pad_nd(one, widths, bound.get("padding_value", 0.0)))
    return torch.stack(filled, 0 if bound.get("batch_first") else 1)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _along(bound: Mapping[str, Any]) -> torch.Tensor:
    """Elements at places along an axis, of tensors that are repeated over each other's other axes."""
    x, places, dim = bound["input"], bound["indices"], bound.get("dim")
    if dim is None:
        return x.reshape(-1).gather(0, places.reshape(-1))  # type: ignore[no-any-return]
    dim = dim % x.dim()

    def wide(one: torch.Tensor) -> torch.Tensor:
        pairs = enumerate(zip(x.shape, places.shape, strict=True))
        return one.expand([one.shape[dim] if at == dim else b if _is_one(a) else a for at, (a, b) in pairs])

    return wide(x).gather(dim, wide(places))


def _triangle(part: Callable[..., torch.Tensor]) -> Callable[[Mapping[str, Any]], torch.Tensor]:
    """The rows and columns of a triangle of free size."""

    def triangle(bound: Mapping[str, Any]) -> torch.Tensor:
        inside = part(
            torch.ones(bound["row"], bound["col"], dtype=torch.bool, device=bound.get("device")), bound.get("offset", 0)
        )
        return inside.nonzero().t().to(bound.get("dtype") or torch.int64)

    return triangle


def _combinations(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Every choice of so many of a free number of elements, in torch's order."""
    x, count = bound["input"], bound.get("r", 2)
    if x.dim() != 1 or count < 1:
        return None
    is_before = torch.le if bound.get("with_replacement") else torch.lt
    places = [
        torch.arange(x.shape[0], device=x.device).reshape([-1 if axis == at else 1 for axis in range(count)])
        for at in range(count)
    ]
    chosen = torch.ones([x.shape[0]] * count, dtype=torch.bool, device=x.device)
    for one, other in itertools.pairwise(places):
        chosen = chosen & is_before(one, other)
    return x[chosen.nonzero()]  # type: ignore[no-any-return]


def _gradient(bound: Mapping[str, Any]) -> list[torch.Tensor] | None:
    """Half the differences of the neighbours on both sides, and at the ends those of the one neighbour."""
    x, spacing, dim = bound["input"], bound.get("spacing", 1), bound.get("dim")
    if bound.get("edge_order", 1) != 1 or not isinstance(spacing, (int, float)):
        return None
    found = []
    for axis in [dim] if isinstance(dim, int) else list(range(x.dim()) if dim is None else dim):
        count = x.shape[axis]
        first = x.narrow(axis, 1, 1) - x.narrow(axis, 0, 1)
        last = x.narrow(axis, count - 1, 1) - x.narrow(axis, count - 2, 1)
        inner = (x.narrow(axis, 2, count - 2) - x.narrow(axis, 0, count - 2)) / 2
        found.append(torch.cat([first, inner, last], axis) / spacing)
    return found


def _max_pool1d(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """The maxima of windows beside their places, of which alone torch asks no plain length."""
    if bound.get("return_indices"):
        return None
    given = {name: bound[name] for name in _POOLED[1:] if bound.get(name) is not None}
    maxima: torch.Tensor = torch.max_pool1d_with_indices(bound["input"], **given)[0]
    return maxima


def _grid(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Where an affine map takes each pixel of a picture, or of a volume, of free size."""
    theta: torch.Tensor = bound["theta"]
    sizes: list[Any] = list(bound["size"])[2:]
    aligned = bool(bound.get("align_corners"))
    if not any(isinstance(size, torch.SymInt) for size in sizes):
        return None
    rank = len(sizes)
    axes = []
    for place, size in enumerate(sizes):
        count, places = _counted(size, theta.device)
        middle = 2 * places - (count - 1)
        steps = (middle / ((count - 1).clamp(min=1.0) if aligned else count)).to(theta.dtype)
        axes.append(steps.reshape([-1 if axis == place else 1 for axis in range(rank)]).expand(sizes))
    base = torch.stack([*reversed(axes), torch.ones_like(axes[0])], -1).reshape(1, -1, rank + 1)
    return (base @ theta.transpose(1, 2)).reshape([theta.shape[0], *sizes, rank])


def _window(*parts: float, triangle: bool = False) -> Callable[[Mapping[str, Any]], torch.Tensor | None]:
    """A window of free length: parts of cosines of its turns, or a triangle."""

    def window(bound: Mapping[str, Any]) -> torch.Tensor | None:
        length: Any = bound["window_length"]
        periodic = bound.get("periodic", True)
        dtype = bound.get("dtype") or torch.get_default_dtype()
        if not isinstance(length, torch.SymInt) or not dtype.is_floating_point:
            return None
        count, places = _counted(length, bound.get("device"))
        share = places / (count if periodic else count - 1).clamp(min=1.0)
        given = [bound.get(name, part) for name, part in zip(("alpha", "beta"), parts, strict=False)]
        if triangle:
            made = 1 - (2 * share - 1).abs()
        else:
            factors = given + list(parts[len(given) :])
            waves = [torch.cos(share * (2 * math.pi * turn)) * factor for turn, factor in enumerate(factors)]
            made = torch.stack([-wave if turn % 2 else wave for turn, wave in enumerate(waves)]).sum(0)
        return torch.where(count > 1, made, 1.0).to(dtype)

    return window


def _kaiser(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Kaiser's window of free length."""
    length: Any = bound["window_length"]
    dtype = bound.get("dtype") or torch.get_default_dtype()
    if not isinstance(length, torch.SymInt) or not dtype.is_floating_point:
        return None
    count, places = _counted(length, bound.get("device"))
    beta = torch.scalar_tensor(bound.get("beta", 12.0), dtype=torch.float64)
    turn = 2 * places / (count if bound.get("periodic", True) else count - 1).clamp(min=1.0) - 1
    made = torch.special.i0(beta * torch.sqrt((1 - turn * turn).clamp(min=0.0))) / torch.special.i0(beta)
    return torch.where(count > 1, made, 1.0).to(dtype)


def _frequencies(*, one_sided: bool) -> Callable[[Mapping[str, Any]], torch.Tensor | None]:
    """The frequencies of a transform of free length: from 0 up, then the negative ones if they are asked for."""

    def frequencies(bound: Mapping[str, Any]) -> torch.Tensor | None:
        length: Any = bound["n"]
        dtype = bound.get("dtype") or torch.get_default_dtype()
        if not isinstance(length, torch.SymInt) or not dtype.is_floating_point:
            return None
        count, places = _counted(length, bound.get("device"))
        if one_sided:
            turns = torch.arange(length // 2 + 1, dtype=torch.float64, device=bound.get("device"))
        else:
            turns = torch.where(places < torch.floor((count + 1) / 2), places, places - count)
        made: torch.Tensor = turns.to(dtype) * (1.0 / (count * bound.get("d", 1.0))).to(dtype)
        return made

    return frequencies


def _fill_diagonal(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """A diagonal that begins anew in the row behind its end: every so many elements of a matrix, in its order."""
    matrix: torch.Tensor = bound["input"]
    if not bound.get("wrap") or matrix.dim() != 2 or not is_contiguous_or_false(matrix):
        return None
    columns: Any = matrix.shape[1]
    rows = torch.arange(matrix.shape[0], device=matrix.device).unsqueeze(1)
    places = rows * columns + torch.arange(columns, device=matrix.device)
    return matrix.masked_fill_(places % (columns + 1) == 0, bound["fill_value"])


def _unfold(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Windows whose length or step is a size."""
    return free_windows.unfolded(bound["self"], bound["dimension"], bound["size"], bound["step"])


def _resized(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Resizing by areas, or by scales that are made of sizes."""
    made = free_windows.areas(bound)
    return free_scales.scaled(bound) if made is None else made


def _resize(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """A tensor that is given the sizes it has, which is no change; torch asks what the free ones are."""
    tensor, sizes = bound["self"], bound.get("sizes")
    if sizes is None or not bound.keys() <= {"self", "sizes"}:
        return None
    wanted = sizes.shape if isinstance(sizes, torch.Tensor) else sizes if isinstance(sizes, (list, tuple)) else (sizes,)
    if len(wanted) != tensor.dim() or not all(map(_is_known_equal, wanted, tensor.shape)):
        return None
    assert isinstance(tensor, torch.Tensor)
    return tensor


def _is_known_equal(one: Any, other: Any) -> bool:
    return statically_known_true(one == other)


_POOLED = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
_SIZED = ("window_length", "periodic")
_RESIZED = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
_FORMS: Mapping[Any, tuple[Sequence[str], Callable[[Mapping[str, Any]], object]]] = {
    **free_groups.FORMS,
    torch.Tensor.new_tensor: (("self", "data"), _new_tensor),
    torch._C._nn.one_hot: (("input", "num_classes"), _one_hot),
    torch._C._nn.pad_sequence: (("sequences", "batch_first", "padding_value", "padding_side"), _pad_sequence),
    torch.take_along_dim: (("input", "indices", "dim"), _along),
    torch.Tensor.take_along_dim: (("input", "indices", "dim"), _along),
    torch.tril_indices: (("row", "col", "offset"), _triangle(torch.tril)),
    torch.triu_indices: (("row", "col", "offset"), _triangle(torch.triu)),
    torch.Tensor.fill_diagonal_: (("input", "fill_value", "wrap"), _fill_diagonal),
    torch.Tensor.unfold: (("self", "dimension", "size", "step"), _unfold),
    torch.Tensor.resize_: (("self", "sizes", "further"), _resize),
    torch.Tensor.resize_as_: (("self", "sizes"), _resize),
    torch.combinations: (("input", "r", "with_replacement"), _combinations),
    torch.kron: (("input", "other"), _kron),
    torch.Tensor.kron: (("input", "other"), _kron),
    torch.gradient: (("input",), _gradient),
    torch.max_pool1d: (_POOLED, _max_pool1d),
    torch.ops.aten.max_pool1d: (_POOLED, _max_pool1d),
    torch.ops.aten.max_pool1d.default: (_POOLED, _max_pool1d),
    torch.nn.functional.max_pool1d: ((*_POOLED, "return_indices"), _max_pool1d),
    torch.adaptive_avg_pool1d: (("input", "output_size"), free_windows.adaptive_average),
    torch.nn.functional.interpolate: (_RESIZED, _resized),
    torch.affine_grid_generator: (("theta", "size", "align_corners"), _grid),
    torch.nn.functional.affine_grid: (("theta", "size", "align_corners"), _grid),
    torch.hann_window: (_SIZED, _window(0.5, 0.5)),
    torch.hamming_window: ((*_SIZED, "alpha", "beta"), _window(0.54, 0.46)),
    torch.blackman_window: (_SIZED, _window(0.42, 0.5, 0.08)),
    torch.bartlett_window: (_SIZED, _window(triangle=True)),
    torch.kaiser_window: ((*_SIZED, "beta"), _kaiser),
    torch.fft.fftfreq: (("n", "d"), _frequencies(one_sided=False)),
    torch.fft.rfftfreq: (("n", "d"), _frequencies(one_sided=True)),
}
"""Function -> the names of its arguments by position, and its other form."""


def of_free_sizes(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> object:
    """The result of a call by another form; None where there is none or no size is free."""
    found = _FORMS.get(function)
    if found is None or given.get("out") is not None:
        return None
    names, form = found
    bound = {**dict(zip(names, args, strict=False)), **given}
    leaves = pytree.tree_leaves((args, dict(given)))
    sizes = [size for one in leaves if isinstance(one, torch.Tensor) for size in one.shape]
    plain = [one for one in leaves if not isinstance(one, torch.Tensor)]
    return form(bound) if any(isinstance(one, _SYMBOLIC) for one in (*sizes, *plain)) else None
