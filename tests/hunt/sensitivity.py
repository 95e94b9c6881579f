"""How far eager's own values move when every rounded element moves by a few units in the last place.

A difference between file and eager says something only where it is larger than that: sums that cancel, a comparison
or a `floor` at the edge, a sort of equals. Each operator runs in float64 as well; what it does not round stays,
all other results are moved a little, and so are the inputs of an operator that rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hunt.plain_control_flow import names_control_flow, plain_control_flow
from hunt.programs import Program, Tensors, arguments, module
from hunt.undefined import is_undefined

_RUNS = 6
_ULPS = 4.0
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WIDE = {
    **dict.fromkeys(_FLOATS, torch.float64),
    **dict.fromkeys((torch.complex64, torch.complex128), torch.complex128),
}
"""What is moved, and the dtype in which it is not rounded."""


@dataclass
class Sensitivity:
    """What moved.

    Attributes:
        slack: per result, how far each element moved in float64; None where the result's shape or dtype changed.
        loose: per result, where NaN-ness, infinity, sign of zero or an exact value changed.
        undefined: whether a step did what neither torch nor ONNX defines (a cast of a float that does not fit).
    """

    slack: list[torch.Tensor | None] = field(default_factory=list)
    loose: list[torch.Tensor | None] = field(default_factory=list)
    undefined: bool = False


class _Moving(TorchDispatchMode):
    """Moves what each operator rounds; without a seed nothing, and only sees what nobody defines."""

    def __init__(self, seed: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._still = seed is None
        self._random = torch.Generator().manual_seed(seed or 0)
        self._side = {0: 1.0, 1: -1.0}.get(-1 if seed is None else seed)
        self.undefined = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._watch(func, args, kwargs)
        if self._still or _moves_nothing(func):
            return func(*args, **kwargs)
        wide = _in_float64(func, args, kwargs)
        writes = func._schema.is_mutable
        rounded = None if wide is None else not _same(pytree.tree_leaves(wide), func, args, kwargs, writes)
        if rounded is False and not _is_scaled(kwargs):
            return self._with_either_zero(func, kwargs, func(*args, **kwargs))
        if not writes:
            given, named = args, kwargs
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._moved, (args, kwargs))
            if wide is not None and any(one.dtype in _WIDE for one in pytree.tree_leaves(wide) if _is_tensor(one)):
                args, kwargs = pytree.tree_map_only(torch.Tensor, self._moved_integers, (args, kwargs))
                if not _is_defined(func, args, kwargs):
                    args, kwargs = given, named
        result = func(*args, **kwargs)
        for one in pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.dtype in _WIDE and not _is_overlapping(one):
                one.copy_(self._moved(one))
        return self._with_either_zero(func, kwargs, result)

    def _with_either_zero(self, func: Any, kwargs: Any, result: Any) -> Any:
        """The larger of two zeros, or a sum of them in some order, may have either sign: all +, all -, or any."""
        if _is_scaled(kwargs) or func._schema.name.removeprefix("aten::") in _EITHER_ZERO:
            for one in pytree.tree_leaves(result):
                if isinstance(one, torch.Tensor) and one.dtype in _FLOATS and not _is_overlapping(one):
                    turned = torch.where(torch.rand(one.shape, generator=self._random) < 0.5, -one, one)
                    zeros = turned if self._side is None else torch.full_like(one, 0.0) * self._side
                    one.copy_(torch.where(one == 0, zeros, one))
        return result

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return _moved_by(tensor, self._noise)

    def _noise(self, tensor: torch.Tensor) -> torch.Tensor:
        """From -1 to 1; in the first two runs all elements move as far as they can, away from 0 or towards it."""
        if self._side is not None:
            return torch.full(tensor.shape, self._side, dtype=torch.float64)
        return torch.rand(tensor.shape, generator=self._random, dtype=torch.float64) * 2 - 1

    def _moved_integers(self, tensor: torch.Tensor) -> torch.Tensor:
        """Integers that float32 rounds, which what makes floats of them does."""
        if tensor.dtype not in (torch.int32, torch.int64) or not bool((tensor.abs() > 2**22).any()):
            return tensor
        noise = self._noise(tensor)
        return tensor + (tensor.double() * noise * _ULPS * torch.finfo(torch.float32).eps).to(tensor.dtype)

    def _watch(self, func: Any, args: Any, kwargs: Any) -> None:
        """Notes casts of floats that do not fit."""
        self.undefined |= is_undefined(func, args) or _scales_beyond(func, args, kwargs)
        target = kwargs.get("dtype")
        if "copy_" in str(func) and len(args) > 1 and isinstance(args[1], torch.Tensor):
            target, args = args[0].dtype, args[1:]
        if not isinstance(target, torch.dtype) or target.is_floating_point or target.is_complex or target is torch.bool:
            return
        for one in pytree.tree_leaves((args, kwargs)):
            if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel():
                limits = torch.iinfo(target)
                wide = one.double()
                low = float(limits.min) - (1 if limits.max < 2**53 else 2**11)
                fits = (wide > low) & (wide < float(limits.max) + (1 if limits.max < 2**53 else 0))
                self.undefined |= not bool(fits.all())


def _is_scaled(kwargs: Any) -> bool:
    """Whether a term is multiplied by a number, which a fused multiplication does not round."""
    return isinstance(kwargs, dict) and kwargs.get("alpha", 1) != 1


def _scales_beyond(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a product that fits no float is added to an infinity: a fused multiplication keeps it finite, and which
    elements are computed so is the processor's choice.
    """
    if not _is_scaled(kwargs) or not all(_is_tensor(one) and one.dtype in _FLOATS for one in args[:2]):
        return False
    term, other = args[:2] if "rsub" in func._schema.name else (args[1], args[0])
    product = term.double() * kwargs["alpha"]
    return bool((torch.isfinite(term) & (product.abs() > torch.finfo(term.dtype).max) & torch.isinf(other)).any())


def _is_tensor(one: Any) -> bool:
    return isinstance(one, torch.Tensor)


def _is_defined(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether the operator takes these numbers: moved integers may be indices that are out of range."""
    try:
        func(*args, **kwargs)
    except (RuntimeError, IndexError):
        return False
    return True


_EXACT = ("view", "reshape", "permute", "expand", "slice", "select", "alias", "detach", "clone", "unsqueeze", "squeeze")

_EITHER_ZERO = {
    *("maximum", "minimum", "fmax", "fmin", "max", "min", "amax", "amin", "aminmax", "clamp", "clamp_", "clamp_min"),
    *("clamp_max", "topk", "sort", "kthvalue", "mode", "median", "cummax", "cummin", "_cummax_helper", "sum", "cumsum"),
    *(
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "dot",
        "mv",
        "convolution",
        "logsumexp",
        "_cummin_helper",
        "prod",
        "mean",
        "softshrink",
        "lerp",
        "scatter_reduce",
        "asin",
        "asinh",
        "atan2",
        "special_log_ndtr",
        "atan",
        "sinh",
        "addmv",
        "addbmm",
        "addr",
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "_fused_rms_norm",
        "nansum",
        "nanmedian",
        "logcumsumexp",
        "_linalg_det",
        "linalg_det",
    ),
}


_SELDOM_EXACT = ("lgamma", "digamma", "special_", "erfinv", "polygamma", "logaddexp", "_fft_")
"""An exact result, such as the 0 of lgamma(1), is what a sum of rounded terms happens to give; in a transform of
float64 large terms cancel and leave few digits."""


_SUMS = ("sum", "nansum", "mean", "cumsum", "mm", "bmm", "addmm", "baddbmm", "dot", "mv", "var", "std", "var_mean")


def _spread(args: Any) -> float:
    """The largest finite number by the smallest but 0: beyond float64's digits a sum hangs on its order there too."""
    sizes = [_parts(one).double().abs().flatten() for one in pytree.tree_leaves(args) if _is_tensor(one)]
    sizes = [one[torch.isfinite(one) & (one > 0)] for one in sizes]
    return max((float(one.max() / one.min()) for one in sizes if one.numel()), default=1.0)


def _moves_nothing(func: Any) -> bool:
    name = func._schema.name.removeprefix("aten::")
    return name.startswith(_EXACT) or name in ("t", "transpose", "as_strided", "split", "unbind", "copy_", "lift_fresh")


def _wide(one: torch.Tensor) -> torch.Tensor:
    return one.to(_WIDE.get(one.dtype, one.dtype), copy=True)  # a write changes nothing else


def _in_float64(func: Any, args: Any, kwargs: Any) -> Any:
    """The operator's result on wider inputs; None where it takes none."""
    try:
        wide_args, wide_kwargs = pytree.tree_map_only(torch.Tensor, _wide, (args, kwargs))
        wide_kwargs = {k: _WIDE.get(v, v) if isinstance(v, torch.dtype) else v for k, v in wide_kwargs.items()}
        return func(*wide_args, **wide_kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
        return None


def _same(wide: list[Any], func: Any, args: Any, kwargs: Any, writes: bool) -> bool:
    """Whether the operator rounds nothing here."""
    if writes:
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
    if func._schema.name.removeprefix("aten::").startswith(_SELDOM_EXACT):
        return False
    narrow = pytree.tree_leaves(func(*args, **kwargs))
    for one, other in zip(narrow, wide, strict=True):
        if not isinstance(one, torch.Tensor) or one.dtype not in _WIDE:
            continue
        if one.dtype == _WIDE[one.dtype] and not _is_short(one, args, kwargs):
            return False
        if func._schema.name.removeprefix("aten::") in _SUMS and _spread(args) > 1 / torch.finfo(torch.float64).eps:
            return False
        if one.shape != other.shape:
            return False
        if not torch.equal(_parts(one).double().nan_to_num(7.0), _parts(other).double().nan_to_num(7.0)):
            return False
    return True


def _is_short(result: torch.Tensor, args: Any, kwargs: Any) -> bool:
    """Whether every element is an argument's or has so few digits that float64 did not round it."""
    given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    known = [_parts(one).flatten() for one in given if one.dtype == result.dtype]
    result = _parts(result)
    short = (result == result.float().double()) | ~torch.isfinite(result)
    return bool((short | torch.isin(result, torch.cat(known))).all() if known else short.all())


def _is_overlapping(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def run(program: Program, values: Tensors, base: list[torch.Tensor], collect: Any, times: int = _RUNS) -> Sensitivity:
    """Runs the program several times and tells how its results move.

    Args:
        program: to run.
        values: of its leaves.
        base: eager's results.
        collect: (module, arguments) -> results, in the order of `base`.
        times: how often.
    """
    found = Sensitivity(
        [torch.zeros(one.shape, dtype=torch.float64) for one in base],
        [torch.zeros(one.shape, dtype=torch.bool) for one in base],
    )
    for seed in (None, *range(times)):
        with plain_control_flow(), torch.no_grad(), torch.compiler.set_stance("force_eager"), _Moving(seed) as mode:
            moved = collect(module(program, values), arguments(program, values))
        found.undefined |= mode.undefined
        if seed is None:
            continue
        for index, (one, other) in enumerate(zip(base, moved, strict=True)):
            _widen(found, index, one, other)
    if names_control_flow(program):  # a branch may hang on the order of a sum, which no rounding of its result shows
        _nudge_inputs(found, program, values, base, collect)
    return found


def of_inputs(program: Program, values: Tensors, base: list[torch.Tensor], collect: Any) -> Sensitivity:
    """How the results move when the inputs do, for a program whose control flow lets nobody look at its operators.

    A branch that hangs on the order of a sum of numbers of either sign is taken one way and the other.
    """
    found = Sensitivity(
        [torch.zeros(one.shape, dtype=torch.float64) for one in base],
        [torch.zeros(one.shape, dtype=torch.bool) for one in base],
    )
    _nudge_inputs(found, program, values, base, collect)
    return found


def _nudge_inputs(
    found: Sensitivity, program: Program, values: Tensors, base: list[torch.Tensor], collect: Any
) -> None:
    for seed in range(_RUNS):
        generator = torch.Generator().manual_seed(seed)
        moved = {name: _nudged(one, generator) for name, one in values.items()}
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            results = collect(module(program, moved), arguments(program, moved))
        for index, (one, other) in enumerate(zip(base, results, strict=True)):
            _widen(found, index, one, other)


def _nudged(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _moved_by(tensor, lambda one: torch.rand(one.shape, generator=generator, dtype=torch.float64) * 2 - 1)


def _moved_by(tensor: torch.Tensor, noise: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Each element by its noise times a few units in its last place.

    The parts of a complex number move by units of its absolute value: a product's parts are sums that may cancel.
    """
    if tensor.dtype not in _WIDE or not tensor.numel():
        return tensor
    step = _ULPS * torch.finfo(tensor.dtype).eps
    if not tensor.is_complex():
        return (tensor.double() * (1 + noise(tensor) * step)).to(tensor.dtype)
    parts = _parts(tensor).double()
    size = torch.where(torch.isfinite(parts), parts.abs(), 0.0).amax(-1, keepdim=True)
    return torch.view_as_complex(parts + noise(parts) * step * size).to(tensor.dtype)


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _widen(found: Sensitivity, index: int, base: torch.Tensor, moved: torch.Tensor) -> None:
    slack, loose = found.slack[index], found.loose[index]
    if slack is None or loose is None or base.shape != moved.shape or base.dtype != moved.dtype:
        found.slack[index] = found.loose[index] = None
        return
    if base.is_complex():
        found.slack[index] = torch.maximum(slack, (base - moved).abs().nan_to_num().double())
        return
    if not base.is_floating_point():
        found.loose[index] = loose | (base != moved)
        return
    one, other = base.double(), moved.double()
    both = torch.isfinite(one) & torch.isfinite(other)
    same = both | (torch.isnan(one) & torch.isnan(other)) | (one == other)
    found.loose[index] = loose | ~same | (both & (torch.signbit(one) != torch.signbit(other)))
    moved_by = torch.where(both, (one - other).abs(), torch.zeros_like(one))
    found.slack[index] = torch.maximum(slack, moved_by)
