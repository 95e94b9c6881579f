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
    **{name: getattr(math, name) for name in ("log1p", "expm1", "exp", "exp2", "log", "log2", "log10", "sqrt")},
    **{name: getattr(math, name) for name in ("erf", "erfc")},
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


DECISIONS: list[Callable[[int], bool]] = [
    lambda n: math.exp(n / 100) > 1e4,
    lambda n: math.exp(-n / 100) < 1e-4,
    lambda n: math.exp2(n / 100) > 2**9,
    lambda n: math.log10(max(n, 1)) > 3,
    lambda n: math.log10(n) == 3 if n > 0 else False,
    lambda n: math.log(n / 7) > 5,
    lambda n: math.erf(n / 1000) > 0.8,
    lambda n: not math.degrees(min(n, 140)) < 8021.4,
    lambda n: math.exp(math.sqrt(n)) > 1e10,
    lambda n: n // 0.1 == 29,
    lambda n: max(n, 3) // 0.1 == 1279,
    lambda n: n % 0.7 > 0.65,
    lambda n: divmod(n, 0.7)[0] > 1000,
]


@pytest.mark.sampled
@pytest.mark.parametrize("decision", DECISIONS, ids=range(len(DECISIONS)))
def test_what_functions_of_a_free_size_decide_is_decided_when_the_file_runs(decision: Callable[[int], bool]) -> None:
    def function(x: Tensor) -> Tensor:
        if decision(x.shape[0]):
            return x * 2 + 1
        return x - 1

    others = [(torch.randn(size),) for size in (1, 3, 7, 128, 140, 715, 922, 1000, 1001, 1050, 3000)]
    export_and_compare(Called(function), (torch.randn(5),), *others, dynamic_shapes=({0: "n"},))
