"""Functions of `math` of a free size, called by the module or by a name that a file imports, hold at every size."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import cos as cosine
from math import log, sqrt

import pytest
import torch
from exporting import Called, export_and_compare

Tensor = torch.Tensor
OF_ONE = {
    **{name: getattr(math, name) for name in ("log1p", "expm1", "exp", "log", "log2", "log10", "sqrt", "erf", "erfc")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "fabs")},
    **{name: getattr(math, name) for name in ("radians", "degrees", "lgamma")},
}


def _called(name: str) -> Callable[[Tensor], Tensor]:
    return lambda x: x * getattr(math, name)((x.shape[0] + 1) / 7)


def _inverse(x: Tensor) -> Tensor:
    part = 1 / (x.shape[0] + 1)
    return x * (math.asin(part) + math.acos(part) + math.atanh(part) + math.acosh(1 + part))


def _of_two(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * (math.atan2(n, 3) + math.atan2(2, n) + math.hypot(n, 4) + math.fmod(n, 3) + math.copysign(2, -n))


def _by_name(x: Tensor) -> Tensor:
    def of(number: int) -> float:
        return log(number + 1) * cosine(number)

    return x / sqrt(x.shape[0]) * of(x.shape[0])


FUNCTIONS = [_inverse, _of_two, _by_name, *(_called(name) for name in OF_ONE)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=["inverse", "of two", "by a name", *OF_ONE])
def test_functions_of_a_free_size_hold_at_every_size(function: Callable[[Tensor], Tensor]) -> None:
    others = [(torch.randn(size, 3),) for size in (1, 2, 7, 16)]
    export_and_compare(Called(function), (torch.randn(5, 3),), *others, dynamic_shapes=({0: "n"},))


def test_imported_functions_are_pythons_again_behind_an_export() -> None:
    export_and_compare(Called(_by_name), (torch.randn(5, 3),), dynamic_shapes=({0: "n"},))
    assert (log, sqrt, cosine) == (math.log, math.sqrt, math.cos)
    assert not hasattr(log, "__wrapped__")
