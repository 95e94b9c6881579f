"""What torch itself asks of how many only the data knows: rows chosen by a mask go through any operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from tests.exporting import export_and_compare


class Chosen(torch.nn.Module):
    """A function of the rows whose first number is positive."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.norm(x[x[:, 0] > 0]))


OF_ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "batch_norm": lambda y: F.batch_norm(y, torch.zeros(4), torch.ones(4)),
    "attention": lambda y: F.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None]),
    "roll": lambda y: y.roll(1, 0),
    "pooled": lambda y: F.adaptive_avg_pool1d(y.T[None], 1),
    "cummax": lambda y: torch.cummax(y, 0)[0],
    "tensordot": lambda y: torch.tensordot(y, y, ([0], [0])),
    "cosines": lambda y: F.cosine_similarity(y[:, None], y[None], -1),
    "trapezoid": lambda y: torch.trapezoid(y, dim=0),
    "again": lambda y: y[y > 0.5],
    "places": lambda y: torch.nonzero(y > 0.5),
}


def rows(count: int, chosen: int) -> torch.Tensor:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    x[:, 0] = -x[:, 0].abs() - 0.1
    x[:chosen, 0] *= -1
    return x


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_that_the_data_choose_go_through(name: str) -> None:
    few = [] if name == "pooled" else [(rows(4, 0),)]  # the mean of nothing is NaN, which says nothing
    more = ((rows(8, 8),), (rows(5, 1),), *few)
    export_and_compare(Chosen(OF_ROWS[name]), (rows(6, 3),), *more, dynamic_shapes=({0: "n"},))


def test_what_the_model_itself_asks_stays_its_decision() -> None:
    def asked(y: torch.Tensor) -> torch.Tensor:
        return y.sum(0) if y.shape[0] > 1 else y.new_full((4,), 7.0)

    more = (rows(6, 1),), (rows(6, 0),), (rows(9, 9),)
    export_and_compare(Chosen(asked), (rows(6, 3),), *more, dynamic_shapes=({0: "n"},))


class Sliced(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        turns = torch.view_as_complex(k.reshape(k.shape[0], k.shape[1], 4, 2))
        return torch.view_as_real(turns[:, -q.shape[1] :] * 2)


def test_complex_numbers_are_sliced_from_a_free_place() -> None:
    def given(b: int, t: int, u: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(b, t, 8), torch.randn(b, u, 8)

    shapes = ({0: "b", 1: "t"}, {0: "b", 1: "u"})
    export_and_compare(Sliced(), given(2, 3, 5), given(1, 1, 1), given(3, 5, 13), dynamic_shapes=shapes)


class Pieces(torch.nn.Module):
    """A function of each piece of `x` along an axis, whose lengths the data say."""

    def __init__(self, function: Callable[[torch.Tensor], Any], axis: int) -> None:
        super().__init__()
        self.function = function
        self.axis = axis

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        lengths = ends[1:] - ends[:-1]
        pieces = torch.split(x, lengths.tolist(), dim=self.axis)
        return torch.cat([self.function(piece) for piece in pieces], dim=self.axis)


OF_PIECES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "attention": lambda y: F.scaled_dot_product_attention(y, y * 2, y + 1),
    "written_out": lambda y: torch.softmax(y @ y.transpose(-1, -2), -1) @ y,
    "roll": lambda y: y.roll(1, -2),
    "cumsum": lambda y: y.cumsum(-2),
    "flip": lambda y: y.flip(-2),
    "normed": lambda y: F.layer_norm(y, (4,)),
}


@pytest.mark.parametrize("name", OF_PIECES)
def test_pieces_whose_lengths_the_data_say_go_through(name: str) -> None:
    def given(*ends: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(1, 2, 10, 4, generator=torch.Generator().manual_seed(3)), torch.tensor(ends)

    more = given(0, 7, 10), given(0, 1, 10), given(0, 10, 10), given(0, 0, 10)
    export_and_compare(Pieces(OF_PIECES[name], 2), given(0, 4, 10), *more)


class SeldomTripled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x[0, 0] - 0.3).abs() < 0.01:
            x = x * 3
        return x


def test_a_truth_value_is_no_size() -> None:
    """It is 0 or 1 to torch; no extreme of the inputs shows what is taken for granted here."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    seldom = x.clone()
    seldom[0, 0] = 0.3
    export_and_compare(SeldomTripled(), (x,), (seldom,))
