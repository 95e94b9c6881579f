"""During capture, functions of a free size that torch would compute with the example's size stay functions of it.

Nothing arrives. Leaves: a context in which Python's `math.log(size)`, `log2`, `log10`, `exp` and `sqrt` give symbolic
numbers, and in which `torch.linspace` and `torch.logspace` over a free number of steps are made of operators
that take one. Numbers that are plain take the functions' own way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def _by_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """A function of a symbolic number by way of a tensor: torch.export keeps no other form of it in a graph."""
    return lambda number: function(torch.scalar_tensor(number, dtype=torch.float64)).item()


def _log(number: Any, *base: Any) -> Any:
    natural = _by_tensor(torch.log)(number)
    return natural / math.log(base[0]) if base else natural


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "sqrt": lambda number: torch._sym_sqrt(number),  # type: ignore[attr-defined]
    "log": _log,
    "log2": _by_tensor(torch.log2),
    "log10": _by_tensor(torch.log10),
    "exp": _by_tensor(torch.exp),
}


def _linspace(start: Any, end: Any, steps: Any, dtype: torch.dtype) -> torch.Tensor:
    """`steps` numbers at equal distances, in float64 and rounded once; from the nearer end, as torch counts them."""
    numbers = torch.arange(steps, dtype=torch.float64)
    gaps = torch.scalar_tensor(steps - 1, dtype=torch.float64)
    step = (end - start) / gaps.clamp(min=1.0)
    upwards, downwards = start + step * numbers, end - step * (gaps - numbers)
    return torch.where(numbers < (steps + 1) // 2, upwards, downwards).to(dtype)


class _FreeSteps(TorchFunctionMode):
    """Hands `linspace` and `logspace` over a free number of steps to operators that take one."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of its own."""
        given = dict(kwargs or {})
        if func in (torch.linspace, torch.logspace):
            names = ("start", "end", "steps", "base")
            bound = {**dict(zip(names, args, strict=False)), **given}
            dtype = bound.get("dtype") or torch.get_default_dtype()
            if isinstance(bound.get("steps"), torch.SymInt) and dtype.is_floating_point and bound.get("out") is None:
                if func is torch.linspace:
                    return _linspace(bound["start"], bound["end"], bound["steps"], dtype)
                exponents = _linspace(bound["start"], bound["end"], bound["steps"], torch.float64)
                return torch.pow(float(bound.get("base", 10.0)), exponents).to(dtype)
        return func(*args, **given)


@contextlib.contextmanager
def free_lengths() -> Iterator[None]:
    """Within, Python's functions take symbolic sizes as they are.

    NOTE: this replaces functions of the module `math` while a model is captured; `from math import log` is not seen.
    """
    kept = {name: getattr(math, name) for name in _FUNCTIONS}

    def either(plain: Callable[..., object], symbolic: Callable[..., object]) -> Callable[..., object]:
        def function(*args: object) -> Any:
            return symbolic(*args) if args and isinstance(args[0], _SYMBOLIC) else plain(*args)

        return function

    for name, symbolic in _FUNCTIONS.items():
        setattr(math, name, either(kept[name], symbolic))
    try:
        with _FreeSteps():
            yield
    finally:
        for name, plain in kept.items():
            setattr(math, name, plain)
