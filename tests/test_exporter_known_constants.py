"""Constants that forward makes are known while it is captured, and what nobody has written to is none of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exporting import Called, export_and_compare
from torch.nn import functional

Tensor = torch.Tensor


def of_a_table(x: Tensor) -> Tensor:
    return functional.embedding((x > 0).long(), torch.tensor([[0.0, 1.0], [2.0, -9.0]]))


def of_a_view(x: Tensor) -> Tensor:
    return functional.embedding(x.clamp(0, 2).long(), torch.arange(12.0).view(3, 4))[0].unbind(0)[0]


def of_another_place(x: Tensor) -> Tensor:
    return x.gather(0, torch.tensor([1]))


def of_a_bag(x: Tensor) -> Tensor:
    return functional.embedding_bag((x > 0).long()[None], torch.tensor([[0.0, 1.0], [2.0, -9.0]]))


@pytest.mark.parametrize("function", [of_a_table, of_a_view, of_another_place, of_a_bag])
def test_a_decision_by_what_data_choose_of_a_constant_is_one_by_data(function: Callable[[Tensor], Tensor]) -> None:
    def decided(x: Tensor) -> Tensor:
        return x * 2 if function(x).sum() > 0 else x - 1

    others = [(torch.tensor(x),) for x in ([-1.0, -2.0, -0.5], [1.0, -3.0, 1.0], [-0.2, 0.3, -0.4], [0.0, 0.0, 0.0])]
    export_and_compare(Called(decided), (torch.tensor([3.0, 1.0, 2.0]),), *others)


def test_a_decision_by_a_constant_itself_is_none() -> None:
    def decided(x: Tensor) -> Tensor:
        return x * 2 if torch.tensor([[0.0, 1.0], [2.0, -9.0]])[1].sum() > 0 else x - 1

    program = export_and_compare(Called(decided), (torch.ones(3),), (-torch.ones(3),))
    assert [node.op_type for node in program.model.graph] == ["Sub"]
