"""Functions of numbers give the file what Python's give: `math.pow` fractions, `round(n, -1)` tens, `max` a kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
ROWS = ({0: "n"},)


def of_sizes(x: Tensor) -> Any:
    """Beside whole numbers a fraction makes fractions; a base may be negative, and a power huge."""
    n, whole = x.shape[0], x.long()
    is_fraction = isinstance(math.pow(n, 2), float)
    powers = [
        math.pow(n, 2),
        math.pow(2, n),
        math.pow(-2, n),
        math.pow(n - 20, 3),
        math.pow(n - 20, -3),
        math.pow(3, n),
    ]
    made = [whole * power for power in powers]
    return *made, torch.full((2,), math.pow(n, 3)), torch.tensor(math.pow(n, 1)), x * (1 if is_fraction else 2)


def as_lengths(x: Tensor) -> Any:
    """Whole numbers that are made of such a fraction are sizes."""
    return x[: int(math.pow(x.shape[0], 2) // 5)], x.new_zeros(int(math.pow(x.shape[0], 2)))


def of_steps(x: Tensor) -> Any:
    """Of a loop's step, and of a list's."""
    total = x[0] * 0
    for step in range(x.shape[0]):
        total = total * 0.5 + x[step].long() * math.pow(step, 2) + x[step] * math.pow(-2, step)
    rows = torch.stack([x[step].long() * math.pow(step, 2) for step in range(x.shape[0])])
    return total, rows, torch.tensor([math.pow(step, 2) for step in range(x.shape[0])])


@pytest.mark.parametrize("function", first(1, [of_sizes, of_steps, as_lengths]))
def test_powers_of_free_sizes_are_fractions(function: Callable[[Tensor], Any]) -> None:
    others = [(torch.randn(length, 3) * 5,) for length in (1, 2, 7, 41)]
    export_and_compare(Called(function), (torch.randn(4, 3) * 5,), *others, dynamic_shapes=ROWS)


def test_powers_of_known_numbers_are_fractions() -> None:
    def known(x: Tensor) -> Any:
        made = torch.full((2,), math.pow(x.shape[0], 2)), torch.tensor(math.pow(-2, 3))
        return x.long() * math.pow(2, 3), *made, torch.stack([x[i].long() * math.pow(i, 2) for i in range(2)])

    export_and_compare(Called(known), (torch.randn(4, 3) * 5,))


def of_items(x: Tensor) -> Any:
    places = torch.arange(3)
    powers = [math.pow(x.item(), 2), math.pow(int(x), 3), math.pow(x, 2), math.pow(2, x), math.pow(x.item(), -1)]
    return [places * power for power in powers]


def in_rounds(x: Tensor) -> Any:
    """Numbers of a loop that ends by data."""
    count, value = 1, x.float()
    while value > math.pow(count, 2) / 50:
        value = value / 2 * math.pow(count, -2)
        count += 1
    return value, count * torch.ones(1)


@pytest.mark.parametrize("function", first(1, [of_items, in_rounds]))
def test_powers_of_data_are_fractions(function: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(function), (torch.tensor(3),), *((torch.tensor(one),) for one in (5, -2, 1000)))


def rounded_sizes(x: Tensor) -> Any:
    n, whole = x.shape[0], x.long()
    numbers = [round(n * 5, -1), round(n * 25, -1), round(20 - n * 5, -1), round(n * 50, ndigits=-2), round(n, -25)]
    kept = [round(n), round(n, 2), round(n, None), round(x.shape[1] * 5, -1)]
    return *(whole * number for number in (*numbers, *kept)), x[: round(n, -1)], x.new_zeros(round(n * 7, -1))


def rounded_steps(x: Tensor) -> Any:
    total = x[0]
    for step in range(x.shape[0]):
        total = total * 0.5 + x[step] * round(step * 5, -1)
    return total


@pytest.mark.parametrize("function", first(1, [rounded_sizes, rounded_steps]))
def test_free_sizes_are_rounded_to_tens(function: Callable[[Tensor], Any]) -> None:
    others = [(torch.randn(length, 3) * 5,) for length in (1, 2, 3, 5, 6, 15, 25)]
    export_and_compare(Called(function), (torch.randn(4, 3) * 5,), *others, dynamic_shapes=ROWS)


def asked_of_fractions(x: Tensor) -> Any:
    n = x.shape[0]
    return x + (n / 7).is_integer(), x[:1] * (n / 3).is_integer()


def compared_answers(x: Tensor) -> Any:
    n, first = x.shape[0], x[:1]
    made = first * 2 if (n > 6) == True else first  # noqa: E712
    return (
        made + ((n > 3) != (n % 2 == 0)),
        first + ((n == 5) == (n > 3)),
        first + ((n > 6) == 1),
        first * ((n > 6) != 2),
    )


@pytest.mark.parametrize("function", [asked_of_fractions, compared_answers])
def test_answers_about_free_sizes_are_those_of_every_size(function: Callable[[Tensor], Any]) -> None:
    others = [(torch.randn(length, 3),) for length in (1, 2, 3, 5, 6, 7, 14, 15)]
    export_and_compare(Called(function), (torch.randn(4, 3),), *others, dynamic_shapes=ROWS)


def by_a_ratio(x: Tensor) -> Any:
    return x + ((x.shape[0] / 7).as_integer_ratio()[1] == 1)


def by_text(x: Tensor) -> Any:
    return x + (str(x.shape[0] / 7)[-2:] == ".0")


@pytest.mark.parametrize("function", [by_a_ratio, by_text])
def test_what_is_otherwise_where_a_fraction_is_whole_is_refused(function: Callable[[Tensor], Any]) -> None:
    with pytest.raises(DynamicShapeError, match=r"n / 7.*test_exporter_python_numbers\.py:\d+"):
        export(Called(function), (torch.randn(5, 3),), dynamic_shapes=ROWS)


def test_whole_numbers_of_data_are_rounded_to_tens() -> None:
    def rounded(x: Tensor) -> Any:
        numbers = round(int(x), -1), round(x.item(), -2), round(x.item(), 1), round(int(x / 2), -1)
        return [torch.arange(2) * number for number in numbers]

    others = [(torch.tensor(one),) for one in (5, 15, 25, -15, -25, -5, 44, -46, 150, 250, -251)]
    export_and_compare(Called(rounded), (torch.tensor(3),), *others)


def beside_fractions(x: Tensor) -> Any:
    """Whether the larger number is whole makes no difference; what is made of it goes on so."""
    n = x.shape[0]
    most, least = max(n, 1.5), min(2.5, n)
    numbers = [most, least, most * 2, -most, most**2, abs(least - 9), max(most, 3), max([n, 4.5]), min(n, 7.5, most)]
    made = [x * number for number in numbers]
    made += [torch.full((2,), most, dtype=torch.float64), torch.full_like(x, least), x.long() / most, x.long() > least]
    made += [x.long() * float(most), x.long() * (most / 2), x * round(least), torch.linspace(0, most, 3)]
    changed = x * 1
    changed[:1] = most
    return *made, changed.add_(least), x[: int(max(n / 2, 1))], x * (2 if isinstance(most, (int, float)) else 3)


def of_known_kinds(x: Tensor) -> Any:
    """What is infinite, or beyond all sizes, is never chosen, or always."""
    n, whole = x.shape[0], x.long()
    made = [whole * min(n, math.inf), whole * max(n, -math.inf), whole * max(-2.5, n), torch.tensor(max(n, -1.0))]
    return *made, x * max(n, 0.5)


@pytest.mark.parametrize("function", first(1, [beside_fractions, of_known_kinds]))
def test_larger_and_smaller_ones_of_sizes_and_fractions_stay_free(function: Callable[[Tensor], Any]) -> None:
    others = [(torch.randn(length, 3) * 5,) for length in (1, 2, 3, 9)]
    export_and_compare(Called(function), (torch.randn(4, 3) * 5,), *others, dynamic_shapes=ROWS)


MATTERING: list[Callable[[Tensor], Any]] = [
    lambda x: x.long() * max(x.shape[0], 1.5),
    lambda x: torch.tensor([x.shape[0], max(1.5, x.shape[0])]),
    lambda x: x.long() * (2 * max(x.shape[0], 1.5)),
    lambda x: torch.full((2,), max((x.shape[0], 1.5))),
    lambda x: torch.arange(max(x.shape[0], 1.5)),
    lambda x: x * (2 if isinstance(max(x.shape[0], 1.5), float) else 3),
]


@pytest.mark.parametrize("function", first(2, MATTERING))
def test_a_dtype_that_goes_by_the_size_is_a_limit(function: Callable[[Tensor], Any]) -> None:
    """From 2 on it is the size; a file has one dtype."""
    with pytest.raises(DynamicShapeError, match=r"holds only while `n >=? 1.5`"):
        export(Called(function), (torch.randn(4, 3),), dynamic_shapes=ROWS)
    export_and_compare(
        Called(function),
        (torch.randn(4, 3) * 5,),
        (torch.randn(2, 3) * 5,),
        dynamic_shapes=({0: torch.export.Dim("n", min=2)},),
    )


ELEMENTS: list[Callable[[Tensor], Any]] = [
    lambda x: x - max(x),
    lambda x: x * min(x[0], x[1]) - max([x[1], x[0], x[2]]),
    lambda x: x - max(row * 2 for row in x),
    lambda x: (x * max(0.0, x[1]), x * max(x[1], 0.0), x * min(max(x[0], 0), 4)),
    lambda x: x - max(x.tolist()),
    lambda x: x * max(float(x[0]), float(x[1]), 0.5),
    lambda x: (max(x[:1], x[1:2]), min(x.sum(0, keepdim=True), x[2:3], x[:1])),
]


@pytest.mark.parametrize("function", first(2, ELEMENTS))
def test_the_largest_of_elements_is_the_one_that_python_keeps(function: Callable[[Tensor], Any]) -> None:
    """Which is the first one where the other is NaN, or it is."""
    nan = float("nan")
    others = [torch.tensor(one) for one in ([3.0, nan, 2.0, 5.0], [nan, 3.0, 2.0, -5.0], [-1.0, -3.0, -2.0, nan])]
    export_and_compare(Called(function), (torch.randn(4),), *((one,) for one in others))


def _running(x: Tensor) -> Any:
    largest, least = x[0], float("inf")
    found = []
    for one in x:
        largest = max(largest, one)
        least = min(least, one)
        found.append(largest - least)
    return largest, torch.stack(found)


def test_a_running_maximum_over_a_free_axis_is_the_one_that_python_keeps() -> None:
    nan = float("nan")
    others = [(torch.tensor(one),) for one in ([3.0, nan, 2.0, 5.0], [nan, 3.0], [-1.0])]
    export_and_compare(Called(_running), (torch.randn(4),), *others, dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("function", [lambda x: max(x[0], x[1].long()), lambda x: min(x[:1], x[1])])
def test_one_of_two_dtypes_or_shapes_is_refused(function: Callable[[Tensor], Any]) -> None:
    with pytest.raises(CaptureError, match=r"of several dtypes or shapes.*test_exporter_python_numbers\.py:\d+"):
        export(Called(function), (torch.randn(4),))


def test_an_element_that_is_written_to_is_the_tensors_own() -> None:
    def written(x: Tensor) -> Any:
        y = x.clone()
        largest = max(y[0], y[1])
        largest += 1
        return y

    with pytest.raises(CaptureError, match="is not the model"):
        export(Called(written), (torch.randn(4),))


def _by_data(k: Tensor) -> Tensor:
    return torch.arange(3) * max(k.item(), 1.5)


def _beside_by_data(k: Tensor) -> Tensor:
    return torch.tensor([1, 2]) + 2 * min(2.5, k.item())


def _as_fraction(x: Tensor) -> Tensor:
    return x * max(x.long()[0, 0].item(), 1.5)


@pytest.mark.parametrize("function", first(1, [_by_data, _beside_by_data]))
def test_a_dtype_that_goes_by_data_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    """A strict capture has a fraction there whatever the data are."""
    with pytest.raises(CaptureError, match="data-dependent decision"):
        export(Called(function), (torch.tensor(2),))
    export_and_compare(Called(_as_fraction), (torch.randn(2, 3) * 5,), (torch.randn(2, 3) * 5,))


def test_a_number_as_an_output_has_one_kind() -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while `n >= 1.5`"):
        export(Called(lambda x: (x, max(x.shape[0], 1.5))), (torch.randn(4, 3),), dynamic_shapes=ROWS)


def test_parts_of_free_sizes_are_numbers() -> None:
    def parts(x: Tensor) -> Any:
        n, third = x.shape[0], x.shape[0] / 3
        made = x * n.real + n.imag, x.long() * n.numerator + n.denominator, x * third.real + third.imag
        return *made, x * (2 if n.real == n and n.numerator == n else 3)

    export_and_compare(Called(parts), (torch.randn(4, 3),), (torch.randn(1, 3),), dynamic_shapes=ROWS)
