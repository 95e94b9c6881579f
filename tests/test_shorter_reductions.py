"""Means that are only compared: a mean operator where nothing gives the same answer, the quotient elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exporting import assert_same, eager

from batch_export import export

pytestmark = pytest.mark.sampled

Comparison = Callable[[torch.Tensor], torch.Tensor]


class Compared(torch.nn.Module):
    """Something of a mean over a free axis."""

    def __init__(self, function: Comparison) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Whatever the function says."""
        return self.function(x)


SAME: dict[str, Comparison] = {
    "above 0": lambda x: x.mean() > 0,
    "below 0": lambda x: x.mean(0) < 0,
    "0 is below": lambda x: torch.lt(torch.zeros(()), x.mean(0, keepdim=True)),
    "at least 1": lambda x: x.mean(0) >= 1,
    "at most -1": lambda x: x.mean() <= -1,
    "is 1": lambda x: x.mean(0) == 1,
    "of doubles": lambda x: x.double().mean() > 0.5,
}
APART: dict[str, Comparison] = {
    "at least 0": lambda x: x.mean() >= 0,
    "at most 0": lambda x: x.mean(0) <= 0,
    "below 1": lambda x: x.mean() < 1,
    "above -1": lambda x: x.mean(0) > -1,
    "is 0": lambda x: x.mean() == 0,
    "is not 1": lambda x: x.mean() != 0,
    "a limit that others may replace": lambda x: x.mean(0) > torch.tensor([0.0, 1.0, 2.0]),
    "read by others": lambda x: torch.where(x.mean() > 0, x.mean(), 2.0),
    "above another": lambda x: x.mean(0) > x[:1].sum(),
    "of a list": lambda x: x[:, 0].mean(0) < 3,
}
NUMBERS = ((), (1.0,), (-1.0,), (float("nan"), 1.0), (float("inf"), 1.0), (-0.0, 0.0), (-2.0, -3.0, -4.0), (3.0, 0.0))


@pytest.mark.parametrize("name", [*SAME, *APART])
def test_a_mean_that_is_compared_answers_as_in_eager_also_of_nothing(name: str) -> None:
    module = Compared((SAME | APART)[name]).eval()
    program = export(module, (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},))
    operators = [node.op_type for node in program.model.graph]
    assert ("ReduceMean" in operators) == (name in SAME), operators
    assert ("Div" in operators) == (name in APART), operators
    for numbers in NUMBERS:
        given = (torch.tensor(numbers).reshape(-1, 1).expand(-1, 3).contiguous(),)
        assert_same(program(*given), eager(module, given))
    program.release()


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_squares_are_summed_at_once_at_every_size(size: int, axis: int | None) -> None:
    module = Compared(lambda x: (x * x).sum() if axis is None else (x * x).sum(axis)).eval()
    program = export(module, (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},))
    assert [node.op_type for node in program.model.graph] == ["ReduceSumSquare"]
    special = torch.tensor([[-0.0, 1e-30, -3.0], [1e30, 0.0, float("-inf")], [float("nan"), 2.0, 5.0]])
    assert_same(program(special[:size]), eager(module, (special[:size],)))
    program.release()


def test_squares_whose_mean_is_taken_are_summed_at_once() -> None:
    module = Compared(lambda x: ((x - 1) ** 2).mean(0)).eval()
    program = export(module, (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},))
    operators = [node.op_type for node in program.model.graph]
    assert "ReduceSumSquare" in operators
    assert not {"Mul", "Pow"} & set(operators), operators
    for size in (0, 1, 4):
        given = (torch.randn(size, 3),)
        assert_same(program(*given), eager(module, given))
    program.release()
