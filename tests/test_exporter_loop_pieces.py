"""Loops over a free size whose rounds give pieces of a size that data say: joined, padded or stacked, else refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import export_and_compare
from rarer import first
from torch.nn import functional, utils

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor


class Of(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor, n: Tensor) -> Any:
        return self.function(self.linear, x, n)


def sliced(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([linear(x[i, : n[i]]) for i in range(x.size(0))])


def by_numbers(linear: Any, x: Tensor, n: Tensor) -> Any:
    made = []
    for i in range(x.size(0)):
        made.append(x[i, : int(n[i])] * 2)
    return torch.cat(made, dim=-2) + len(made)


def by_items(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([x[i].narrow(0, 0, n[i].item()) for i in range(x.size(0))])


def from_a_place(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([x[i, n[i] - 1 :] for i in range(x.size(0))])


def zipped(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([one[:count].cumsum(0) for one, count in zip(x, n, strict=True)]).sum()


def masked(linear: Any, x: Tensor, n: Tensor) -> Any:
    whole = torch.cat([row[row[:, 0] > 0] for row in x])
    return whole, torch.cat([row[row[:, 1] > 0] for row in x.unbind(0)])


def by_masks(linear: Any, x: Tensor, n: Tensor) -> Any:
    mask = torch.arange(x.size(1)) < n[:, None]
    return torch.cat([x[i][mask[i]] for i in range(x.size(0))])


def of_places(linear: Any, x: Tensor, n: Tensor) -> Any:
    kinds = torch.cat([torch.unique(row > 0) for row in x])
    return torch.cat([torch.nonzero(row[:, 0] > 0) for row in x]), kinds


def repeated(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([torch.repeat_interleave(x[i], n[i], dim=0) for i in range(x.size(0))])


def counted(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([torch.arange(count) for count in n])


def growing(linear: Any, x: Tensor, n: Tensor) -> Any:
    made = x[0, :0]
    for i in range(x.size(0)):
        made = torch.cat([made, x[i, : n[i]]])
    return made


def beside_others(linear: Any, x: Tensor, n: Tensor) -> Any:
    state = torch.zeros(4)
    first, second, sums = [], [], []
    for i in range(x.size(0)):
        piece = x[i, : n[i]] + state
        state = state + piece.sum(0)
        first.append(piece)
        second.append(x[i, n[i] :].t())
        sums.append(piece.sum())
    return torch.cat(first), torch.cat(second, 1), torch.stack(sums), state


def padded(linear: Any, x: Tensor, n: Tensor) -> Any:
    made = []
    for one, count in zip(x, n, strict=True):
        made.append(one[:count])
    return utils.rnn.pad_sequence(made, batch_first=True, padding_value=-1.0)


def of_a_part_of_a_square(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.cat([x[i, : n[i], : n[i]].flatten() for i in range(x.size(0))])


JOINED = [sliced, by_numbers, by_items, from_a_place, zipped, masked, by_masks, of_places, repeated, counted]
JOINED += [growing, beside_others, padded, of_a_part_of_a_square]


def given(rows: int, size: int, counts: list[int]) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, size, 4), torch.tensor(counts)


SHAPES = ({0: "b", 1: "t"}, {0: "b"})


@pytest.mark.parametrize("function", first(5, JOINED))
def test_pieces_whose_size_data_say_are_joined(function: Callable[..., Any]) -> None:
    """An operator's rounds are of one size: the file ended with an error, at the example's sizes, too."""
    torch.manual_seed(0)
    others = [given(3, 5, [2, 1, 5]), given(1, 2, [1]), given(4, 7, [7, 7, 1, 2])]
    model = Of(function)
    export_and_compare(model, given(2, 6, [6, 3]), *others, dynamic_shapes=SHAPES)


def test_pieces_without_elements() -> None:
    torch.manual_seed(0)
    others = [given(3, 5, [0, 5, 1]), given(2, 5, [0, 0])]
    export_and_compare(Of(sliced), given(2, 6, [6, 3]), *others, dynamic_shapes=SHAPES)


def sums(linear: Any, x: Tensor, n: Tensor) -> Any:
    largest = torch.stack([x[i, : n[i]].amax(0) for i in range(x.size(0))])
    return torch.stack([x[i, : n[i]].sum(0) for i in range(x.size(0))]), largest


def made_as_long(linear: Any, x: Tensor, n: Tensor) -> Any:
    long = x.size(1)
    return torch.stack([functional.pad(x[i, : int(n[i])], (0, 0, 0, long - int(n[i]))) for i in range(x.size(0))])


def filled_up(linear: Any, x: Tensor, n: Tensor) -> Any:
    return torch.stack([torch.cat([x[i, n[i] :], x[i, : n[i]]]) for i in range(x.size(0))])


def written(linear: Any, x: Tensor, n: Tensor) -> Any:
    made, long = torch.zeros(x.size(0), 4, x.size(1)), x.size(1)
    for i in range(x.size(0)):
        made[i] = functional.pad(x[i, : int(n[i])].t(), (0, long - int(n[i])))
    return made


def known_before(linear: Any, x: Tensor, n: Tensor) -> Any:
    kept = x[x[:, 0, 0] > -100]
    return torch.stack([linear(kept[:, i]) for i in range(x.size(1))])


@pytest.mark.parametrize("function", [sums, made_as_long, filled_up, written, known_before])
def test_results_of_one_size_stay_one_operator(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    others = [given(3, 5, [2, 1, 5]), given(1, 2, [1])]
    program = export_and_compare(Of(function), given(2, 6, [6, 3]), *others, dynamic_shapes=SHAPES)
    assert sum(node.op_type == "Scan" for node in program.model.graph) == (2 if function is sums else 1)


def one_of_them(linear: Any, x: Tensor, n: Tensor) -> Any:
    pieces = [x[i, : n[i]] for i in range(x.size(0))]
    return pieces[0] + 1


def behind_one(linear: Any, x: Tensor, n: Tensor) -> Any:
    pieces = [x[0, :1]]
    for i in range(x.size(0)):
        pieces.append(x[i, : n[i]])
    return torch.cat(pieces)


def two_a_round(linear: Any, x: Tensor, n: Tensor) -> Any:
    pieces = []
    for i in range(x.size(0)):
        pieces.append(x[i, n[i] :])
        pieces.append(x[i, : n[i]])
    return torch.cat(pieces)


def from_a_number(linear: Any, x: Tensor, n: Tensor) -> Any:
    total, pieces = 0, []
    for i in range(x.size(0)):
        total = total + x[i].sum()
        pieces.append(x[i, : n[i]] + total)
    return torch.cat(pieces)


@pytest.mark.parametrize("function", first(1, [one_of_them, behind_one, two_a_round, from_a_number]))
def test_other_pieces_are_refused_with_the_reason(function: Callable[..., Any]) -> None:
    with pytest.raises(DynamicShapeError, match=r"pieces .*size data say"):
        export(Of(function), given(2, 6, [6, 3]), None, dynamic_shapes=SHAPES)
    fixed = given(2, 6, [6, 3]), given(2, 6, [1, 4])
    export_and_compare(Of(function), *fixed, dynamic_shapes=({1: "t"}, None))
