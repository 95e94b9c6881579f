"""What data decide in the rounds of a loop over a free size, as one operator: choices, sums and writes at the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare
from torch import Tensor
from torch.nn import functional

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled


def _by_place(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            total = total + x[i]
    return total


def _within_a_sum(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + (x[i] if x[i].sum() > 0 else -x[i])
    return total


def _largest(x: Tensor) -> Tensor:
    best = x[0]
    for i in range(1, x.shape[0]):
        best = x[i] if x[i].norm() > best.norm() else best
    return best


def _kept_or_larger(x: Tensor) -> Tensor:
    best = x[0]
    for i in range(1, x.shape[0]):
        best = torch.maximum(best, x[i]) if x[i].sum() > 0 else best
    return best


def _by_another(x: Tensor) -> Tensor:
    mask, total = x.sum(1) > 0, torch.zeros(4)
    for i in range(x.shape[0]):
        if mask[i]:
            total = total * 0.9 + x[i]
    return total


def _called(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for row in x:
        if row.sum() > 0:
            row = row * 0.5
            total = torch.tanh(total + row)
        else:
            total = functional.relu(total - row.abs())
    return total


def _factor(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + torch.tanh(x[i]) * (0.5 if x[i, 0] > 0 else 2.0)
    return total


def _sign(x: Tensor) -> Tensor:
    total, sign = x.new_zeros(4), 1.0
    for i in range(x.shape[0]):
        sign = -sign if x[i, 0] > 0 else sign
        total = total + sign * x[i]
    return total


def _next(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0] - 1):
        if x[i + 1, 0] > x[i, 0]:
            total = total + x[i + 1]
            total = total * 0.5
        else:
            total = total - x[i]
    return total


def _added(x: Tensor) -> Tensor:
    total = x.new_zeros(4)
    for i in range(x.shape[0]):
        if x[i].mean() > 0:
            total += x[i]
    return total


def _added_to_a_part(x: Tensor) -> Tensor:
    y = x.clone()
    first = y[0]
    for i in range(1, x.shape[0]):
        if x[i].sum() > 0:
            first += x[i]
    return y


def _written(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            y[i] = x[i] * 2
    return y


def _one_of_three(x: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0])
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            y[i] = x[i].max()
        elif x[i].sum() < -1:
            y[i] = 3.0
    return y


def _written_either_way(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * 2 if x[i].sum() > 0 else x[i]
    return y


def _emptied(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            y[i] = 0
    return y


def _multiplied(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(1, x.shape[0]):
        y[i] *= y[i - 1].sigmoid()
    return y


def _divided(x: Tensor) -> tuple[Tensor, Tensor]:
    y = (x * 3).long()
    first = y[:, 0]
    for i in range(x.shape[0]):
        y[i, 1:] //= 2
    return y, first


def _appended(x: Tensor) -> Tensor:
    rows = []
    for row in x:
        if row.sum() > 0:
            rows.append(row)
        else:
            rows.append(row * 2)
    return torch.stack(rows)


def _appended_within(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.shape[0]):
        rows.append(x[i].relu() if x[i, 0] > x[i, 1] else -x[i])
    return torch.stack(rows, 1)


def _one_of_three_appended(x: Tensor) -> Tensor:
    found = []
    for i in range(1, x.shape[0]):
        if x[i].sum() > x[i - 1].sum():
            found.append(x[i].max())
        elif x[i].sum() > 0:
            found.append(x[i - 1].min())
        else:
            found.append(x[i].mean())
    return torch.stack(found) if found else x[:0, 0]


def _of_all_before(x: Tensor) -> Tensor:
    outs = []
    for t in range(x.shape[0]):
        part = x[: t + 1].sum(0)
        outs.append(part * 2 if part.sum() > 0 else part)
    return torch.stack(outs)


def _spikes(x: Tensor) -> tuple[Tensor, Tensor]:
    level, found = torch.zeros(()), []
    for i in range(x.shape[0]):
        level = 0.9 * level + x[i, 0]
        if level > 1.0:
            found.append(torch.ones(()))
            level = level - 1.0
        else:
            found.append(torch.zeros(()))
    return torch.stack(found), level


def _appended_before_and_behind(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, state = [], torch.zeros(4)
    for row in x:
        if row.sum() > 0:
            rows.append(state)
            state = state + row
        elif row.sum() < -2:
            rows.append(row)
        else:
            state = row
            rows.append(-state)
    return torch.stack(rows), state


FORMS: list[Callable[[Tensor], Any]] = [
    *(_by_place, _within_a_sum, _largest, _kept_or_larger, _by_another, _called, _factor, _sign, _next),
    *(_added, _added_to_a_part, _written, _one_of_three, _written_either_way, _emptied),
    *(_multiplied, _divided, _appended, _appended_within, _one_of_three_appended),
    *(_spikes, _appended_before_and_behind, _of_all_before),
]


@pytest.mark.parametrize("function", FORMS, ids=[one.__name__ for one in FORMS])
def test_what_data_decide_in_rounds_is_right_at_every_size(function: Callable[[Tensor], Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    others = [(torch.randn(size, 4, generator=generator) * factor,) for size in (1, 2, 3, 9) for factor in (1, 20)]
    others += [(-torch.rand(3, 4),), (torch.rand(4, 4),), (torch.zeros(2, 4),)]
    export_and_compare(Called(function), (torch.randn(5, 4, generator=generator),), *others, dynamic_shapes=({0: "n"},))


def _doubled(value: Tensor) -> Tensor:
    return value * 2


def _of_its_own(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for row in x:
        if row.sum() > 0:
            total = _doubled(total)
        total = total + row
    return total


def _written_twice(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(x.shape[0]):
        row = y[i]
        y[i] *= 2
        row += 1
    return y


class _Kept:
    """Appends what it counts."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []

    def append(self, row: Tensor) -> None:
        self.rows.append(row * (len(self.rows) + 1))


def _appended_to_its_own(x: Tensor) -> Tensor:
    kept = _Kept()
    for row in x:
        if row.sum() > 0:
            kept.append(row)
        else:
            kept.append(-row)
    return torch.stack(kept.rows)


def _of_two_shapes(x: Tensor) -> Tensor:
    rows = []
    for row in x:
        rows.append(row if row.sum() > 0 else row[:1])
    return torch.cat(rows)


@pytest.mark.parametrize("function", [_of_its_own, _written_twice, _appended_to_its_own, _of_two_shapes])
def test_rounds_that_may_do_more_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises((CaptureError, DynamicShapeError), match="loop"):
        export(Called(function), (torch.randn(5, 4),), dynamic_shapes=({0: "n"},))


def _asked_behind_a_write(x: Tensor) -> tuple[Tensor, Tensor]:
    total, y = torch.zeros(4), torch.zeros(4)
    for i in range(x.shape[0]):
        if x[i, 0] > 0:
            y = y + x[i]
        total = total + x[i].clone().mul_(-1).add_(y) * (2 if total.sum() > 0 else 1)
    return total, y


def test_what_a_choice_asks_is_asked_where_it_stands() -> None:
    export_and_compare(Called(_asked_behind_a_write), (torch.randn(3, 4),), (-torch.rand(3, 4),))
