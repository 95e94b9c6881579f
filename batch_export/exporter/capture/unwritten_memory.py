"""What a model reads of memory that nobody has written to, at inputs that nobody gives it.

Arrives: what the model gave, and a way to run it again. Leaves: which of the numbers hang on what the memory held
before. `y = torch.empty(n); y[places] = x` writes every element where `places` is a permutation, and random numbers are
none: there eager itself gives something else each time, and proves nothing against a program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_RELATIVE, _ABSOLUTE = 1e-3, 1e-5
"""Algorithms that give the same each time add in another order."""
_NUMBER = 77
_SETTINGS: Any = torch.utils.deterministic
_aten = torch.ops.aten
_WITHOUT_CONTENTS = frozenset(
    {_aten.empty, _aten.empty_like, _aten.new_empty, _aten.empty_strided, _aten.new_empty_strided}
)


def where_unwritten(
    expected: Sequence[torch.Tensor], run: Callable[[], Sequence[torch.Tensor]]
) -> list[torch.Tensor] | None:
    """Returns for each result `bool[...]`, true where it hangs on unwritten memory; None where none does anywhere.

    Args:
        expected: the results.
        run: gives them once more.
    """
    found: list[torch.Tensor] | None = None
    for filled in (_filled, _Filling):  # memory may have held by chance what one of them fills in
        try:
            with filled():
                again = run()
        except Exception:  # of an operator that has no way which gives the same each time
            continue
        if [one.shape for one in again] != [one.shape for one in expected]:
            return [torch.ones(one.shape, dtype=torch.bool) for one in expected]
        apart = [~_close(one, other) for one, other in zip(expected, again, strict=True)]
        found = apart if found is None else [one | other for one, other in zip(found, apart, strict=True)]
    return found if found is not None and any(bool(one.any()) for one in found) else None


class _Filling(TorchDispatchMode):
    """Fills what the model itself makes without contents (`torch.empty`) with a number."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every operator."""
        del types
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in _WITHOUT_CONTENTS and isinstance(made, torch.Tensor):
            made.fill_(_NUMBER)
        return made


def _close(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if not (one.is_floating_point() or one.is_complex()):
        return one == other
    wide = torch.complex128 if one.is_complex() else torch.float64
    return torch.isclose(one.to(wide), other.to(wide), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)


@contextlib.contextmanager
def _filled() -> Iterator[None]:
    """Within, new memory holds NaN, or the largest integer."""
    is_on, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = _SETTINGS.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    _SETTINGS.fill_uninitialized_memory = True
    try:
        yield
    finally:
        _SETTINGS.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(is_on, warn_only=warns)
