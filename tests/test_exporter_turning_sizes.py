"""Sizes at which alone a model takes another side, far beyond the example: seen where rounded fractions decide."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import sympy
import torch
from exporting import Called, export_and_compare
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, ToFloat, TruncToInt

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture import turning_sizes

pytestmark = pytest.mark.sampled

N = sympy.Symbol("n", integer=True)


def _between(x: Tensor) -> Tensor:
    return x * 2 if int(x.shape[0] * 0.01) == 7 else x


def _root(x: Tensor) -> Tensor:
    return x * 2 if int(x.shape[0] ** 0.5) == 25 else x


def _one_size(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] * 0.5 == 400 else x


def _rounded_up(x: Tensor) -> Tensor:
    return x * 2 if math.ceil(x.shape[0] * 0.01) == 8 else x


def _one_of_two(x: Tensor) -> Tensor:
    return x[:400] if int(x.shape[0] * 0.01) in (4, 7) else x


def _above(x: Tensor) -> Tensor:
    return x.flip(0) if x.shape[0] * 0.3 > 1500.5 else x


def _together(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * 2 if n % 3 == 0 and n % 5 == 0 and n % 7 == 0 and n > 300 else x


def _from_some_size_on(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * 2 if n >= 1024 and n % 3 == 0 and n % 5 == 0 else x


def _square(x: Tensor) -> Tensor:
    return x * 2 if int(x.shape[0] / 100) ** 2 == 49 else x


def _complex_below(x: Tensor) -> Tensor:
    return x * 2 if int((x.shape[0] - 1) ** 0.5) == 24 else x


def _wave(x: Tensor) -> Tensor:
    return x * 2 if math.sin(x.shape[0] / 100) < -0.99 and x.shape[0] > 400 else x


SIDES: list[tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = [
    (_between, (699, 700, 799, 800)),
    (_root, (624, 625, 675, 676)),
    (_one_size, (799, 800, 801)),
    (_rounded_up, (700, 701, 800, 801)),
    (_one_of_two, (399, 420, 499, 720)),
    (_above, (5001, 5002, 5003)),
    (_together, (105, 315, 420)),
    (_from_some_size_on, (1024, 1035, 1050)),
    (_square, (699, 700, 799, 800)),
    (_complex_below, (576, 577, 625, 626)),
    (_wave, (456, 458, 1100)),
]


@pytest.mark.parametrize(("function", "sizes"), SIDES, ids=[one.__name__ for one, _ in SIDES])
def test_a_side_that_few_large_sizes_take_is_in_the_file_or_told(
    function: Callable[[Tensor], Tensor], sizes: tuple[int, ...]
) -> None:
    program, told = None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ExportWarning)
            program = export(Called(function), (torch.randn(5),), dynamic_shapes=({0: "n"},))
    except (DynamicShapeError, ExportWarning) as error:
        told = str(error)
    if program is None:
        assert "holds only while" in told
        return
    for size in sizes:
        x = torch.randn(size)
        torch.testing.assert_close(program(x)[0], function(x))
    program.release()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (x.shape[0] // 0.1),
        lambda x: x * ((x.shape[0] * 0.7) // 0.1),
        lambda x: x * (7.5 // x.shape[0]),
        lambda x: x * (-(x.shape[0] // -0.3)),
        lambda x: x[: int(x.shape[0] // 1.5)],
        lambda x: x * int(math.log10(x.shape[0])),
        lambda x: x * int(math.log10(x.shape[0]) * 3),
        lambda x: x * int(math.log2(x.shape[0])),
    ],
    ids=["by a tenth", "of a fraction", "of a number", "by a negative", "a length", "log10", "thrice log10", "log2"],
)
def test_steps_of_fractions_of_sizes_are_pythons(function: Callable[[Tensor], Tensor]) -> None:
    others = [(torch.ones(size),) for size in (1, 2, 3, 7, 8, 10, 99, 100, 1000, 1024, 4096, 10000)]
    export_and_compare(Called(function), (torch.ones(12),), *others, dynamic_shapes=({0: "n"},))


@settings(deadline=None)
@given(st.floats(0.001, 3.0), st.integers(0, 400))
def test_turns_of_rising_steps_are_found(factor: float, wanted: int) -> None:
    step = TruncToInt(sympy.Float(factor) * ToFloat(N))
    found = turning_sizes.of(sympy.Ne(step, wanted))
    taken = [size for size in range(1, 20000) if int(factor * size) == wanted]
    if taken and taken[-1] < 19999 and len(taken) > 1:
        assert {taken[0], taken[-1]} <= {*found} or taken[0] == 1


def test_what_no_size_turns_has_none() -> None:
    assert turning_sizes.of(sympy.Ne(FloorDiv(N, 2), -1)) == []
    assert turning_sizes.of(sympy.Lt(N, sympy.Symbol("m", integer=True))) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_logarithms_of_powers_are_whole_numbers(dtype: torch.dtype) -> None:
    twos = 2.0 ** torch.arange(-14, 16, dtype=dtype)
    tens = torch.tensor([10.0**one for one in range(5 if dtype is torch.float16 else 11)], dtype=dtype)
    for function, x in ((torch.log2, twos), (torch.log10, tens)):
        given_ = torch.cat([x, torch.tensor([0.0, torch.inf, torch.nan, -1.0, 3.0, 0.7], dtype=dtype)])
        module = Called(lambda x, function=function: (function(x), function(x).floor(), function(x).ceil()))
        export_and_compare(module, (given_,), (given_[:7],), dynamic_shapes=({0: "n"},))
