"""Halves beside wider scalars: torch rounds what stands second in sums, and not in products and quotients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from batch_export import export

pytestmark = pytest.mark.sampled

OPERATORS: dict[str, Callable[[Tensor, Tensor | float], Tensor]] = {
    "mul": torch.mul,
    "multiply": torch.multiply,
    "div": torch.div,
    "divide": torch.divide,
    "in place": lambda x, other: x.clone().mul_(other),
    "truncated": lambda x, other: torch.div(x * 512, other, rounding_mode="trunc"),
    "floored": lambda x, other: torch.div(x * 512, other, rounding_mode="floor"),
}
SCALARS = [torch.tensor(0.1234567891, dtype=torch.float64), torch.tensor(0.0002), torch.tensor(2049)]
NUMBERS = [70000.0, -100000, 1e-9, 1e9, float("inf")]


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> Tensor:
        return self.function(*given)


def halves(dtype: torch.dtype) -> Tensor:
    return (torch.randn(50, 40, generator=torch.Generator().manual_seed(3)) * 3).to(dtype)


def result(model: Calls, *given: Tensor) -> tuple[Tensor, Tensor]:
    found = torch.as_tensor(export(model, given, opset_version=20)(*given)[0])
    return found, model(*given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda one: str(one.dtype))
@pytest.mark.parametrize("name", OPERATORS)
def test_by_a_scalar_of_another_dtype(name: str, scalar: Tensor, dtype: torch.dtype) -> None:
    found, expected = result(Calls(OPERATORS[name]), halves(dtype), scalar)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", OPERATORS)
def test_by_a_number_that_no_half_is_near(name: str, number: float) -> None:
    def of_one(x: Tensor) -> Tensor:
        return OPERATORS[name](x, number)

    found, expected = result(Calls(of_one), halves(torch.float16))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_the_next_number_of_two_dtypes() -> None:
    found, expected = result(Calls(torch.nextafter), torch.full((3,), -6e-8).half(), torch.full((3,), -4e-8))
    assert found.dtype == expected.dtype == torch.float32
    assert torch.equal(found, expected)
