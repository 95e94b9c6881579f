"""During capture, functions of a free size that torch would compute with the example's size stay functions of it.

A model arrives. Leaves: a context in which Python's `math.log(size)`, `exp`, `sqrt`, `tanh` and others of `math` give
symbolic numbers, NumPy's functions of these names too, and in which `torch.linspace` and `torch.logspace` over a free
number of steps, `tensor_split`, `diff`, `vander`, `pad_sequence`, `multi_dot`, `chain_matmul` and norms of matrices of
free axes are made of operators that take them; `torch.as_tensor` of free sizes is `torch.tensor` of them. Numbers that
are plain take the functions' own way.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import (
    conjugated_writes,
    deciding_sizes,
    free_forms,
    free_matrix_norms,
    free_parts,
    joined_sequences,
    operators_of_sizes,
    repeated_numbers,
    squeezed_ones,
    whole_windows,
)
from batch_export.exporter.capture.kinds import reached
from batch_export.exporter.capture.operators_of_sizes import by_tensors

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def _log(number: Any, *base: Any) -> object:
    natural = by_tensors(torch.log)(number)
    return natural / math.log(base[0]) if base else natural


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "sqrt": lambda number: torch._sym_sqrt(number),  # type: ignore[attr-defined]
    "isqrt": lambda number: torch.sym_int(torch._sym_sqrt(number)),  # type: ignore[attr-defined]
    "log": _log,
    "log2": by_tensors(torch.log2),
    "log10": by_tensors(torch.log10),
    "exp": by_tensors(torch.exp),
    "exp2": by_tensors(torch.exp2),
    "fabs": by_tensors(torch.abs),
    "radians": by_tensors(torch.deg2rad),
    "degrees": by_tensors(torch.rad2deg),
    **{name: by_tensors(getattr(torch, name)) for name in ("log1p", "expm1", "erf", "erfc", "lgamma")},
    **{name: by_tensors(getattr(torch, name)) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: by_tensors(getattr(torch, name)) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    **{name: by_tensors(getattr(torch, name)) for name in ("atan2", "hypot", "fmod", "copysign")},
}

_METHODS = {
    name: functools.partialmethod(lambda number, of: of(number), of=function) for name, function in _FUNCTIONS.items()
}


def _linspace(start: Any, end: Any, steps: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """`steps` numbers at equal distances, in float64 and rounded once; from the nearer end, as torch counts them."""
    numbers = torch.arange(steps, dtype=torch.float64, device=device)
    gaps = torch.scalar_tensor(steps - 1, dtype=torch.float64, device=device)
    step = (end - start) / gaps.clamp(min=1.0)
    upwards, downwards = start + step * numbers, end - step * (gaps - numbers)
    return torch.where(numbers < torch.sym_max(steps // 2, 1), upwards, downwards).to(dtype)


def _tensor_split(tensor: torch.Tensor, pieces: int, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """So many pieces of an axis of free size, the first ones longer; torch's own sizes go by the example."""
    length = tensor.shape[dim]
    sizes: list[Any] = [(length + pieces - 1 - place) // pieces for place in range(pieces)]
    starts = [sum(sizes[:place]) for place in range(pieces)]
    return tuple(tensor.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=True))


def _vander(x: torch.Tensor, count: Any, increasing: bool = False) -> torch.Tensor:
    """The powers of a free number of elements, or free powers; torch's own is written for fixed ones."""
    number = torch.int64 if not (x.dtype.is_floating_point or x.is_complex()) else x.dtype
    factors = x.to(number).unsqueeze(1).expand(x.shape[0], count)
    first = torch.arange(count, device=x.device).eq(0)
    powers = torch.where(first, torch.ones((), dtype=number, device=x.device), factors).cumprod(1)
    return powers if increasing else powers.flip(1)


def _narrowed(input: torch.Tensor, dim: int, start: Any, length: Any) -> torch.Tensor | None:
    """Elements counted from the end of a free axis, which torch does not know to be there; None elsewhere."""
    if not (isinstance(start, int) and start < 0 and _is_free(input, dim)):
        return None
    torch._check(input.shape[dim] >= -start)
    return input.narrow(dim, input.shape[dim] + start, length)


def _diff(tensor: torch.Tensor, times: int = 1, dim: int = -1) -> torch.Tensor:
    """Differences of neighbours along an axis of free size, of which none and one give nothing."""
    for _ in range(times):
        length = tensor.shape[dim]
        count = torch.sym_max(length - 1, 0)
        later, earlier = tensor.narrow(dim, length - count, count), tensor.narrow(dim, 0, count)
        tensor = later.logical_xor(earlier) if tensor.dtype == torch.bool else later - earlier
    return tensor


def _complex_mean(input: torch.Tensor, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
    """Of complex numbers along free axes, for which torch fixes their number."""
    axes = [dim] if isinstance(dim, int) else list(dim or range(input.dim()))
    count: Any = math.prod(input.shape[axis] for axis in axes)
    return input.sum(axes, keepdim) / torch.scalar_tensor(count, dtype=torch.float64).to(input.real.dtype)


def _is_free(tensor: torch.Tensor, dim: int) -> bool:
    return tensor.dim() > 0 and _is_symbol(tensor.shape[dim])


def _is_symbol(size: object) -> bool:
    return isinstance(size, torch.SymInt)


def _of_free_length(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """What torch's own form of a function would fix a size for; None for every other call."""
    if func in _AS_TENSORS and given.keys() <= {"dtype", "device", "copy", "data", "obj"}:
        kinds = dict(zip(("dtype", "device"), args[1:], strict=False))
        kinds |= {name: one for name, one in given.items() if name in ("dtype", "device")}
        numbers = [*args, *(given[name] for name in ("data", "obj") if name in given)][0]
        if any(isinstance(one, _SYMBOLIC) for one in pytree.tree_leaves(numbers)):  # torch copies the example's
            return torch._refs.tensor(numbers, **kinds)
    if func in _SPLITS:
        bound = {**dict(zip(("self", "pieces", "dim"), args, strict=False)), **given}
        pieces = bound.get("pieces", bound.get("indices_or_sections", bound.get("sections")))
        tensor, dim = bound.get("self", bound.get("input")), bound.get("dim", 0)
        if isinstance(pieces, int) and pieces > 0 and isinstance(tensor, torch.Tensor) and _is_free(tensor, dim):
            return _tensor_split(tensor, pieces, dim)
    if func in _NARROWS and (made := _narrowed(*args, **given)) is not None:
        return made
    if func in _CHAINS and args and not given:
        factors = args[0] if func is torch.linalg.multi_dot else args
        if any(map(_is_symbol, (size for one in factors for size in one.shape))):
            return functools.reduce(torch.matmul, factors)  # torch asks the sizes which order is quickest
    if func in _MEANS and args and args[0].is_complex() and any(map(_is_symbol, args[0].shape)):
        return _complex_mean(*args, **given) if given.keys() <= {"dim", "keepdim"} else None
    if func in free_matrix_norms.MATRIX_NORMS:
        return free_matrix_norms.of_free_sizes(func, args, given)
    if func is torch.vander:
        bound = {**dict(zip(("x", "N", "increasing"), args, strict=False)), **given}
        x, count = bound["x"], bound.get("N")
        if x.dim() == 1 and (_is_free(x, 0) or isinstance(count, torch.SymInt)):
            return _vander(x, x.shape[0] if count is None else count, bool(bound.get("increasing", False)))
    if func in _DIFFS:
        bound = {**dict(zip(("input", "n", "dim", "prepend", "append"), args, strict=False)), **given}
        times, dim = bound.get("n", 1), bound.get("dim", -1)
        parts = [one for one in (bound.get("prepend"), bound["input"], bound.get("append")) if one is not None]
        if times > 0 and bound.get("out") is None and any(_is_free(one, dim) for one in parts):
            return _diff(torch.cat(parts, dim) if len(parts) > 1 else parts[0], times, dim)
    made = squeezed_ones.squeezed(func, args, given)
    made = deciding_sizes.decided(func, args, given) if made is None else made
    made = whole_windows.pooled(func, args, given) if made is None else made
    return made if made is not None else free_forms.of_free_sizes(func, args, given)


_NARROWS = (torch.narrow, torch.Tensor.narrow)
_AS_TENSORS = (torch.as_tensor, torch.asarray)
_CHAINS = (torch.linalg.multi_dot, torch.chain_matmul)
_MEANS = (torch.mean, torch.Tensor.mean)
_DIFFS = (torch.diff, torch.Tensor.diff)
_SPLITS = (torch.tensor_split, torch.Tensor.tensor_split)


class _FreeSteps(TorchFunctionMode):
    """Hands functions of free sizes, such as `linspace` and `diff`, to operators that take them."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Called by torch for every function of its own."""
        given = dict(kwargs or {})
        is_one, made = joined_sequences.by_tensors(func, args, given)
        if is_one:
            return made
        parted = free_parts.parts(func, args, given)
        if parted is not None:
            return parted
        is_one, made = conjugated_writes.written(func, args, given)
        if is_one:
            return made
        if func in (torch.linspace, torch.logspace):
            names = ("start", "end", "steps", "base")
            bound = {**dict(zip(names, args, strict=False)), **given}
            dtype = bound.get("dtype") or torch.get_default_dtype()
            if isinstance(bound.get("steps"), torch.SymInt) and dtype.is_floating_point and bound.get("out") is None:
                if func is torch.linspace:
                    return _linspace(bound["start"], bound["end"], bound["steps"], dtype, bound.get("device"))
                exponents = _linspace(bound["start"], bound["end"], bound["steps"], torch.float64, bound.get("device"))
                return torch.pow(float(bound.get("base", 10.0)), exponents).to(dtype)
        made = _of_free_length(func, args, given)
        return made if made is not None else func(*args, **given)


@contextlib.contextmanager
def _numpy_functions() -> Iterator[None]:
    """Within, `np.sqrt(size)` is followed: NumPy calls the method `sqrt` of what is no number to it."""
    lacking = [(kind, name) for kind in _SYMBOLIC for name in _METHODS if not hasattr(kind, name)]
    for kind, name in lacking:
        setattr(kind, name, _METHODS[name])
    try:
        yield
    finally:
        for kind, name in lacking:
            delattr(kind, name)


@contextlib.contextmanager
def _imported(module: torch.nn.Module, told: Mapping[int, object]) -> Iterator[None]:
    """Within, what the files of a model's functions have by `from math import log` is what `math` has.

    Args:
        module: the model.
        told: by the identity of a function of `math` what stands in its place.
    """
    spaces = ((one.__globals__, name) for one in reached(module) for name in one.__code__.co_names)
    found = {(id(space), name): (space, name, space[name]) for space, name in spaces if id(space.get(name)) in told}
    for space, name, plain in found.values():
        space[name] = told[id(plain)]
    try:
        yield
    finally:
        for space, name, plain in found.values():
            space[name] = plain


@contextlib.contextmanager
def free_lengths(module: torch.nn.Module) -> Iterator[None]:
    """Within, Python's functions take symbolic sizes as they are.

    Args:
        module: the model.

    NOTE: this replaces functions of the module `math` while a model is captured.
    """
    kept = {name: getattr(math, name) for name in _FUNCTIONS}

    def either(plain: Callable[..., object], symbolic: Callable[..., object]) -> Callable[..., object]:
        def function(*args: object) -> object:
            return symbolic(*args) if any(isinstance(one, _SYMBOLIC) for one in args) else plain(*args)

        return functools.wraps(plain)(function)

    for name, symbolic in _FUNCTIONS.items():
        setattr(math, name, either(kept[name], symbolic))
    try:
        with (
            _imported(module, {id(plain): getattr(math, name) for name, plain in kept.items()}),
            _numpy_functions(),
            _FreeSteps(),
            repeated_numbers.repeated_numbers(),
            operators_of_sizes.operators_of_sizes(),
        ):
            yield
    finally:
        for name, plain in kept.items():
            setattr(math, name, plain)
