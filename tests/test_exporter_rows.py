"""Loops over the rows of a tensor, of which there may be any number, and what such loops sum up."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from exporting import Called, export_and_compare
from torch import Tensor

from batch_export.errors import CaptureError, DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

X = torch.linspace(-1, 1.3, 24).reshape(4, 6)
OTHERS = [(torch.cat([X, 2 * X, X - 1])[:rows],) for rows in (1, 2, 3, 7)]


def appended(x: Tensor) -> Tensor:
    found = []
    for row in x:
        found.append(row * 2)
    return torch.stack(found)


def listed(x: Tensor) -> Tensor:
    ends = [row[-3:] for row in x]
    smallest = torch.stack([row.min() for row in ends]).min()
    return torch.stack([row.sum() for row in x]) + smallest


def carried(x: Tensor) -> Tensor:
    state = x[0] * 0
    for row in x:
        state = torch.tanh(state + row)
    return state


def branched(x: Tensor) -> Tensor:
    rows = [row[-3:] for row in x]
    found, masks = [], []
    for row in rows:
        length = row.shape[0]
        mask = torch.zeros(length)
        if length < 5:
            row = torch.cat([torch.zeros(5 - length), row])
            mask = torch.cat([torch.ones(5 - length), mask])
        elif length > 5:
            row = row[-5:]
        found.append(row)
        masks.append(mask)
    return torch.stack(found) + torch.stack(masks)


def padded(x: Tensor) -> Tensor:
    found = []
    for row in x:
        longer = row
        if row.dim() == 1:
            longer = torch.nn.functional.pad(row, (0, 8 - row.shape[0]))
        found.append(longer[None])
    return torch.cat(found)


def backwards(x: Tensor) -> Tensor:
    state = torch.zeros(6)
    for row in reversed(x):
        state = state / 2 + row
    return state


def summed(x: Tensor) -> Tensor:
    total = 0
    for row in x:
        total += row
    return total  # type: ignore[return-value]


def counted(x: Tensor) -> Tensor:
    total = 0.5
    for step in range(x.shape[0]):
        total = total + x[step].sum()
    return total * x


def multiplied(x: Tensor) -> Tensor:
    product, sums = 1, []
    for row in x:
        product = product * row
        sums.append(product)
    return torch.stack(sums)


def asked_for_its_kind(x: Tensor) -> Tensor:
    total = 2
    for row in x:
        total = max(total, 1) * row if isinstance(total, int) else total - row
    return total  # type: ignore[return-value]


def of_halves(x: Tensor) -> Tensor:
    total, x = 0.1, x.half()
    for row in x:
        total = total + row
    return total  # type: ignore[return-value]


def from_the_end(x: Tensor) -> Tensor:
    state, states = 0.5, []
    for step in range(x.shape[0] - 1, -1, -1):
        state = state / 2 + x[step]
        states.append(state)
    return torch.stack(states)


def filled_from_the_end(x: Tensor) -> Tensor:
    state, filled = 0.5, torch.zeros_like(x)
    for step in reversed(range(x.shape[0])):
        state = state / 2 + x[step]
        filled[step] = state
    return filled


def turned_round(x: Tensor) -> Tensor:
    kept, rows = [], list(x)
    for row in x:
        kept.insert(0, row)
    rows.reverse()
    return x + torch.stack(kept) * torch.stack(rows)


def written_rows(x: Tensor) -> Tensor:
    x = x.clone()
    for row in x:
        row += 1
    return x


def written_names(x: Tensor) -> Tensor:
    x = x.clone()
    for row in x:
        same = row
        same += 1
    return x


def written_first(x: Tensor) -> Tensor:
    x = x.clone()
    total = x[0]
    for row in x:
        total += row
    return x + total


def alike(x: Tensor) -> Tensor:
    total, sums = 0, []
    for row in x:
        total += row
        sums.append(total)
    return torch.stack(sums)


def remembered(x: Tensor) -> Tensor:
    total, last = 0, None
    for row in x:
        total += row
        last = total
    return last  # type: ignore[return-value]


def numbered(x: Tensor) -> Tensor:
    count, found = 0, []
    for row in x:
        count = count + 1
        found.append(row * count)
    return torch.stack(found)


def halved(x: Tensor) -> Tensor:
    total = 0
    for step in range(x.shape[0]):
        total = (total + step) / 2  # type: ignore[assignment]
    return x * total


def counted_beside_a_write(x: Tensor) -> Tensor:
    state, total = torch.zeros(6), 0
    for row in x:
        state += row
        total = total + state.sum()
    return state + total


def written_outside(x: Tensor) -> Tensor:
    weight, total = torch.ones(6), 0
    for row in x:
        both = weight.add_(row)
        total = total + both
    return total  # type: ignore[return-value]


def put(x: Tensor) -> None:
    """Writes to what it is given, by another name."""
    x.add_(1)


def kept(x: Tensor) -> Tensor:
    x, rows = x.clone(), []
    for row in x:
        rows.append(row)
    put(x)
    return torch.stack(rows)


def put_into_a_row(x: Tensor) -> Tensor:
    x, rows = x.clone(), []
    for row in x:
        rows.append(row[:2])
    put(rows[0])
    return x


def put_into_a_row_from_the_end(x: Tensor) -> Tensor:
    x, rows = x.clone(), []
    for row in x:
        rows.insert(0, row)
    put(rows[0])
    return x


def put_into_a_reversed_list(x: Tensor) -> Tensor:
    x = x.clone()
    rows = list(x)
    rows.reverse()
    put(rows[0])
    return x


def put_into_what_goes_on(x: Tensor) -> Tensor:
    x = x.clone()
    last = x[0]
    for row in x:
        last = row
    put(last)
    return x


KEPT = [kept, put_into_a_row, put_into_a_row_from_the_end, put_into_a_reversed_list, put_into_what_goes_on]


class Remembering(torch.nn.Module):
    """Goes on from its buffer, and writes to it behind the loop."""

    state: Tensor

    def __init__(self, *, keeps_result: bool) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(6))
        self.keeps_result = keeps_result

    def forward(self, x: Tensor) -> Tensor:
        state = self.state
        for row in x:
            state = torch.tanh(state + row)
        if self.keeps_result:
            self.state.copy_(state)
        else:
            self.state.add_(1)
        return state * 2


def decided(x: Tensor) -> Tensor:
    total = torch.zeros(6)
    for row in x:
        if row.sum() > 0:
            total = total + row
    return total


LOOPS = [
    *(appended, listed, carried, branched, padded, backwards, summed, counted, multiplied, asked_for_its_kind),
    *(of_halves, from_the_end, filled_from_the_end, turned_round, numbered, halved, counted_beside_a_write),
    decided,
]
OTHER_LOOPS = [
    *(written_rows, written_names, written_first, alike, remembered),
    written_outside,
]


@pytest.mark.parametrize("loop", LOOPS)
def test_loops_over_rows_hold_for_any_number_of_them(loop: Callable[[Tensor], Tensor]) -> None:
    export_and_compare(Called(loop), (X,), *OTHERS, dynamic_shapes=({0: "rows"},))


@pytest.mark.parametrize(("loop", "is_told"), [(summed, True), (counted, False), (appended, False)])
def test_a_number_that_no_rounds_leave_is_told(loop: Callable[[Tensor], Tensor], is_told: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ExportWarning)
        program = export(Called(loop), (X,), dynamic_shapes=({0: "rows"},))
    assert any("only while `rows != 0`" in str(one.message) for one in told) == is_told
    if loop is counted:
        assert torch.as_tensor(program(X[:0])[0]).shape == loop(X[:0]).shape


@pytest.mark.parametrize("loop", OTHER_LOOPS)
def test_other_loops_over_rows_count_with_the_example(loop: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises((DynamicShapeError, CaptureError)):
        export(Called(loop), (X,), dynamic_shapes=({0: "rows"},))


@pytest.mark.parametrize("loop", KEPT)
def test_rows_that_are_written_to_later_count_with_the_example(loop: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises((DynamicShapeError, CaptureError)):
        export(Called(loop), (X,), dynamic_shapes=({0: "rows"},))
    export_and_compare(Called(loop), (X,), (X + 1,))


@pytest.mark.parametrize("keeps_result", [True, False])
def test_state_that_is_written_behind_a_loop(keeps_result: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ExportWarning)
        model = Remembering(keeps_result=keeps_result)
        program = export_and_compare(model, (X,), *OTHERS, dynamic_shapes=({0: "rows"},))
    is_told = any("only while `rows != 0`" in str(one.message) for one in told)
    is_right = torch.equal(torch.as_tensor(program(X[:0])[0]), model(X[:0]))
    assert is_told or is_right


def test_loops_within_inference_mode() -> None:
    with torch.inference_mode():
        program = export(Called(summed), (X * 1,), dynamic_shapes=({0: "rows"},))
    for (x,) in OTHERS:
        torch.testing.assert_close(torch.as_tensor(program(x)[0]), summed(x))


def test_a_list_of_free_length_is_no_output() -> None:
    def forward(x: Tensor) -> Tensor:
        rows = []
        for row in x:
            rows.append(row * 2)
        return rows  # type: ignore[return-value]

    with pytest.raises(CaptureError, match="one element for each place of a free axis"):
        export(Called(forward), (X,), dynamic_shapes=({0: "rows"},))


@pytest.mark.parametrize("loop", OTHER_LOOPS)
def test_with_a_fixed_number_of_rows_they_are_exported(loop: Callable[[Tensor], Tensor]) -> None:
    export_and_compare(Called(loop), (X,), (X + 1,))
