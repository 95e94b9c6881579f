"""Loops over a free size of which the end matters: those that end at a step, and steps that are read behind them."""

from __future__ import annotations

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
SHAPES = ({0: "b", 1: "t"},)
OTHERS = [(torch.randn(3, size, 3),) for size in (1, 2, 3, 5, 8, 13)]


def up_to_five(x: Tensor) -> Tensor:
    h = x.new_zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        if t >= 5:
            break
        h = torch.tanh(h + x[:, t])
    return h


def at_most_four(x: Tensor, most: int = 3) -> Tensor:
    found = []
    for t in range(x.shape[1]):
        if most < t:
            break
        found.append(x[:, t] * 2)
    return torch.stack(found, 1)


def divided_by_the_last(x: Tensor) -> Tensor:
    h = x[:, 0] * 0
    for t in range(x.shape[1]):
        h = h * 0.5 + x[:, t]
    return h / (t + 1) + x[:, t]


def and_back(x: Tensor) -> Tensor:
    h = x[:, 0] * 0
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
    for t in range(t, -1, -1):  # noqa: B020
        h = torch.tanh(h - x[:, t])
    return h * t


def in_enumerate(x: Tensor) -> Tensor:
    found = []
    for i, row in enumerate(x.unbind(1)):
        found.append(row * (i + 1))
    return torch.stack(found, 1) / (i + 1)


@pytest.mark.parametrize("function", first(2, [up_to_five, divided_by_the_last, at_most_four, and_back, in_enumerate]))
def test_the_end_goes_by_the_size(function: object) -> None:
    export_and_compare(Called(function), (torch.randn(2, 6, 3),), *OTHERS, dynamic_shapes=SHAPES)


def with_a_step_before(x: Tensor) -> Tensor:
    t = 7
    h = x[:, 0] * 0
    for t in range(1, x.shape[1], 2):
        h = torch.tanh(h + x[:, t])
    return h + t


def test_a_step_that_is_there_without_a_round_is_refused_where_it_matters() -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while `\(t // 2\) != 0`"):
        export(Called(with_a_step_before), (torch.randn(2, 6, 3),), dynamic_shapes=SHAPES)


def further_each_round(x: Tensor) -> Tensor:
    h, most = x[:, 0] * 0, 3
    for t in range(x.shape[1]):
        if t >= most:
            break
        h = h + x[:, t]
        most = most + 1
    return h


def test_an_end_that_moves_is_refused_with_the_reason() -> None:
    with pytest.raises(DynamicShapeError, match=r"`if t >= most: break` at line .* is no part of one operator"):
        export(Called(further_each_round), (torch.randn(2, 6, 3),), dynamic_shapes=SHAPES)


class Further(torch.nn.Module):
    """The end is an attribute, which each round moves."""

    def forward(self, x: Tensor) -> Tensor:
        self.most = 2
        h = x[:, 0] * 0
        for t in range(x.shape[1]):
            if t >= self.most:
                break
            h = h + x[:, t]
            self.most = self.most + 1
        return h


def test_an_attribute_that_moves_is_no_end() -> None:
    with pytest.raises(DynamicShapeError):
        export(Further(), (torch.randn(2, 6, 3),), dynamic_shapes=SHAPES)


def asked_of_each_piece(x: Tensor) -> Tensor:
    h = x.new_zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        piece = x[:, t:]
        h = h + (piece[:, :3] * 2 if piece.shape[1] > 3 else piece).mean(1)
    return h


def asked_and_written(x: Tensor) -> Tensor:
    """A round that is run to try it reads no memory that nobody wrote."""
    h = x.new_zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        piece = x[:, t:]
        piece = (piece[:, :3] if piece.shape[1] > 3 else piece).clone()
        piece[:, 0] = 0
        h = h + piece.mean(1)
    return h


def test_an_answer_that_not_all_rounds_have_is_refused() -> None:
    """torch asserts within a round that the answer is the example's; a file asserts nothing."""
    with pytest.raises(DynamicShapeError, match="holds only while `t <= 3`"):
        export(Called(asked_of_each_piece), (torch.randn(2, 3, 3),), dynamic_shapes=SHAPES)


def test_a_piece_that_is_shortened_by_its_size_is_so_in_each_round() -> None:
    others = [(torch.randn(2, t, 3),) for t in (1, 2, 4, 5, 7)]
    export_and_compare(Called(asked_and_written), (torch.randn(2, 3, 3),), *others, dynamic_shapes=SHAPES)


class _BestOfRows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        best = None
        for row in x:
            score = row.sum()
            best = score if best is None else torch.maximum(best, score)
        return best


def test_nothing_in_place_of_a_tensor_where_there_is_no_round_is_a_limit_that_is_said() -> None:
    with pytest.warns(ExportWarning, match="the file holds only while `n != 0`"):
        program = export(_BestOfRows(), (torch.randn(5, 4),), dynamic_shapes=({0: "n"},))
    for size in (1, 2, 9):
        x = torch.randn(size, 4)
        torch.testing.assert_close(program(x)[0], _BestOfRows()(x))
