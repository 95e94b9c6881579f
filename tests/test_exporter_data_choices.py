"""Small decisions by data in loops: each of them is a choice of values, so that a model may have any number of them."""

from __future__ import annotations

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
EXAMPLE = (torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) * 3,)
OTHERS = [
    (torch.randn(8, 3) * 3,),
    (torch.randn(8, 3) * 0.3,),
    (torch.randn(8, 3) * 8,),
    (torch.zeros(8, 3),),
    (torch.ones(8, 3),),
    (-torch.ones(8, 3),),
]
SHORTER = [(torch.randn(n, 3) * 3,) for n in (1, 2, 5, 13)]


def summed(x: Tensor) -> Any:
    """One side, both sides, and what begins as a number."""
    total, other, number = x.new_zeros(3), x.sum(0), 0.0
    for row in x:
        if row.sum() > 0:
            total = total + row
        if row.max() > 1:  # noqa: SIM108
            other = other * 0.5
        else:
            other = other + row
        if row[0] > 0:
            number = number + row[0]
    return total, other, x * number


def appended(x: Tensor) -> Any:
    """Lists that get one element whichever way is taken; the rest of a round behind `continue`."""
    found, more = [], []
    for row in x:
        twice = row * 2
        if row.max() > 1:
            found.append(twice)
        elif row.min() < -1:
            found.append(row - 1)
        else:
            found.append(row)
        if row.sum() > 0:
            more.append(row)
            continue
        more.append(twice + 1)
    return torch.stack(found), torch.stack(more)


def bisected(x: Tensor) -> Any:
    """Bounds of which one moves in each round; two decisions in one."""
    low, high, y = x.min(), x.max(), x
    for _ in range(9):
        middle = (low + high) / 2
        if (x > middle).sum() > x.numel() // 2:
            low = middle
        else:
            high = middle
        if y.abs().max() > 1:
            if y.sum() > 0:  # noqa: SIM108
                y = y - 0.5
            else:
                y = y + 0.5
    return low, high, y


def swapped(x: Tensor) -> Any:
    """Several names at once, and the largest so far with its place."""
    a, b, best, place = x[0], x[1], x[0], 0
    for i in range(7):
        if a.sum() < b.sum():
            a, b = b, a
        a = a * 0.9 + x[i]
        if x[i].norm() > best.norm():
            best = x[i]
            place = i
    return a, b, best, x * place


def written(x: Tensor) -> Any:
    """Parts of a tensor that some rounds write to."""
    out = torch.zeros_like(x)
    for i in range(8):
        if x[i].max() > 1:
            out[i] = x[i] * 2
        elif x[i].min() < -1:
            out[i] = 1.0
    return out


def listed(x: Tensor) -> Any:
    """Elements of a list that each round writes to."""
    found = [None] * 8
    for i in range(8):
        if x[i].sum() > 0:
            found[i] = x[i]
        else:
            found[i] = -x[i]
    return torch.stack(found)


def in_place(x: Tensor) -> Any:
    """`+=` of a tensor that has another name too, and of a count."""
    total = x.sum(0)
    alias, count, found = total, 0, False
    for i in range(8):
        before = count
        if x[i].sum() > 0 and count < 3:
            total += x[i]
            count += 1
            found = True
    return total, alias, x * count, x * before, x if found else -x, torch.arange(3) * count


def failing_elsewhere(x: Tensor) -> Any:
    """Sides that would fail where they are not taken: at places outside, and by division by 0."""
    place = (x[:, 0] > 0).sum() + 2
    count = x.long().clamp(min=0)[:, 1]
    total, share = x.sum(0), count.sum()
    for i in range(7):
        if place < 8:
            total = total + x[place]
        if place < 8 and x[place].sum() > 0:
            total = total * 2
        if count[i] > 0:
            share = share // count[i] + share % count[i]
    return total, share


def asked_in_parts(x: Tensor) -> Any:
    """Parts that only answer, one by one."""
    total = x.sum(0) * 0
    for i in range(8):
        if x[i].sum() < 5 and len(x) > 3 and torch.isfinite(x[i]).all() and not (x[i, 0] > 2 or x[i, 1].item() < -2):
            total = total + x[i].add(1) + [x[0], x[1]][i % 2].mul(2)
    return total


@pytest.mark.parametrize(
    "function", first(2, [asked_in_parts, summed, failing_elsewhere, in_place, appended, bisected, swapped, written])
)
def test_both_sides_are_what_eager_gives(function: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(function), EXAMPLE, *OTHERS)


@pytest.mark.parametrize("function", first(1, [summed, bisected]))
def test_so_it_is_of_loops_over_a_free_axis(function: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(function), EXAMPLE, *OTHERS, *SHORTER, dynamic_shapes=ROWS)


def of_one_memory(x: Tensor) -> Any:
    """One side gives a tensor another name, by which it is written to later."""
    y = x * 1
    z = y
    for row in x:
        if row.sum() > 0:  # noqa: SIM108
            z = y
        else:
            z = y * 2
    z += 1
    return y, z


def read_by_a_view(x: Tensor) -> Any:
    """What a side writes to is read by a view of it."""
    total = x.sum(0)
    view = total.view(3, 1)
    for row in x:
        if row.sum() > 0:
            total += row
            total += view[0] * 1
    return total


def of_two_kinds(x: Tensor) -> Any:
    """Either a whole number or a fraction."""
    k = 0.5
    for row in x:
        if row.sum() > 0:
            k = 1
    return torch.arange(3) * k


def changed_elsewhere(x: Tensor) -> Any:
    """A count that another function adds to, in place if it is a tensor."""
    count = 0
    for row in x:
        if row.sum() > 0:
            count = count + 1
    more = count
    more += 2
    return x * count, x * more


def asked_for_its_type(x: Tensor) -> Any:
    """A number that is asked whether it is one."""
    count = 0
    for row in x:
        if row.sum() > 0:
            count = count + 1
    return x * (1 if isinstance(count, int) else 2)


def of_texts(x: Tensor) -> Any:
    state, y = "first", x.sum()
    for row in x:
        if row[0] > 0:
            state = "other"
        y = y * 2 if state == "first" else y + 1
    return y


def of_powers(x: Tensor) -> Any:
    """A whole number whose power may be a fraction."""
    count = 0
    for row in x:
        if row.max() > 1000:
            count = count + 1
    less = 2 - count
    return x * 10**less


def summed_answers(x: Tensor) -> Any:
    """Truth values that are added up."""
    first, second = False, True
    for row in x:
        if row.max() > 1000:
            first = True
    return x * (first + second)


def read_by_another_name(x: Tensor) -> Any:
    """An element is written to, and read by a view, by another name of a list."""
    y, total = x * 1, x.sum(0)
    rows = y.unbind(0)
    for i in range(8):
        if x[i].max() > 1000:
            y[i] = 1.0
            total = total + rows[i]
    return y, total


def written_by_another_name(x: Tensor) -> Any:
    y = x * 1
    z = y
    for i in range(8):
        if x[i].max() > 1000:
            y[i] = x[0]
        else:
            z[i] = 3.0
    return y, z


def of_a_later_line(x: Tensor) -> Any:
    """A value of the round before, of a name that gets its first one below."""
    total = x.sum() * 0
    for i in range(8):
        if i > 0:  # noqa: SIM102
            if x[i].max() > 1000:
                total = total + best  # noqa: F821
                best = x[i].max()
        if i == 0:
            best = x[0].max()  # noqa: F841
    return total


def of_eight_bits(x: Tensor) -> Any:
    """A number times a tensor of one element, which goes round at 128."""
    factor, small = 1, x.to(torch.int8)
    found = torch.zeros_like(small[:, 0])
    for i in range(8):
        if x[i].max() > 1000:
            factor = 3
        found[i] = small[i, 0] * factor // 2
    return found


def of_a_digit(x: Tensor) -> Any:
    """A fraction beside a tensor of one element, of which it has the digits."""
    more, found = 1.0, torch.zeros_like(x[:, 0])
    for i in range(8):
        if x[i].max() > 1000:
            more = 1e8 + 0.5
        found[i] = (x[i, 0] + more) - more
    return found


def taken_on_the_way(x: Tensor) -> Any:
    """What is asked takes something from a list, but not where the first part says no."""
    total, rows = x.sum(0) * 0, list(x.unbind(0))
    for i in range(8):
        if x[i].max() < 1000 and rows.pop().sum() != 77:
            total = total + x[i]
    return total, len(rows) * x


def written_on_the_way(x: Tensor) -> Any:
    y, total = x * 1, x.sum(0) * 0
    for i in range(8):
        if x[i].max() < 1000 and y.add_(1).sum() != 77:
            total = total + x[i]
    return total, y


def with_a_second_name(x: Tensor) -> Any:
    """A number of rounds by data has another name when it is added to."""
    count, rest = 0, x.abs().sum()
    while rest > 20:
        rest = rest - 5
        count = count + 1
    before = count
    for i in range(8):
        if x[i].max() > 1000:
            count += 1
    return x + before, x * count


class Tally:
    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Tensor) -> Tensor:
        self.count += 1
        return value + self.count


def of_its_own(x: Tensor) -> Any:
    """A method of the model's own, of a name that tensors have, too."""
    tally, total = Tally(), x[0]
    for i in range(8):
        if x[i].max() > 1000:
            total = total + tally.add(x[i])
    return total


def asked_of_its_own(x: Tensor) -> Any:
    """What is asked behind an `or` counts, but not where the first part says yes."""
    tally, total = Tally(), x[0]
    for i in range(8):
        if not (x[i].max() > 1e30 or tally.add(x[i, 0]) > 1e30):
            total = total + x[i]
    return total, tally.count * x


def of_a_list_of_its_own(x: Tensor) -> Any:
    tallies, total = [Tally(), Tally()], x[0]
    for i in range(8):
        if x[i].max() > 1000:
            total = total + tallies[i % 2].add(x[i])
    return total


REFUSED = [
    of_a_later_line,
    of_eight_bits,
    of_a_digit,
    taken_on_the_way,
    written_on_the_way,
    with_a_second_name,
    of_its_own,
    asked_of_its_own,
    of_a_list_of_its_own,
    of_powers,
    read_by_another_name,
    written_by_another_name,
    summed_answers,
    read_by_a_view,
    changed_elsewhere,
    asked_for_its_type,
    of_one_memory,
    of_two_kinds,
    of_texts,
]


@pytest.mark.parametrize("function", first(2, REFUSED))
def test_what_is_no_choice_of_values_is_refused(function: Any) -> None:
    module = function() if isinstance(function, type) else Called(function)
    with pytest.raises(CaptureError, match=r"test_exporter_data_choices\.py:\d+"):
        export(module, EXAMPLE)


class Best(torch.nn.Module):
    """What forward gives are outputs, of which a whole number is a tensor in any case."""

    def forward(self, x: Tensor) -> Any:
        best, place, count = x[0].sum(), 0, 0
        for i in range(8):
            if x[i].sum() > best:
                best = x[i].sum()
                place = i
        rest = x.abs().sum()
        while rest > 1:
            rest = rest / 2
            count = count + 1
        return best, {"place": place, "steps": [count, count * 2]}


class Within(torch.nn.Module):
    """What a module gives to another one is a number of Python's, of which a power may be a fraction."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Best()

    def forward(self, x: Tensor) -> Any:
        _, found = self.inner(x)
        return x * 2.0 ** -found["place"]


def test_whole_numbers_by_data_may_be_outputs() -> None:
    program = export(Best(), EXAMPLE)
    for given in (EXAMPLE, *OTHERS):
        best, found = Best()(*given)
        actual = program(*given)
        torch.testing.assert_close(actual[0], best)
        assert [one.dtype for one in actual[1:]] == [torch.int64] * 3
        assert [int(one) for one in actual[1:]] == [found["place"], *found["steps"]]
    with pytest.raises(CaptureError, match=r"one of two numbers|more is done with it"):
        export(Within(), EXAMPLE)


def counted_of_a_function(x: Tensor) -> int:
    n = 0
    for row in x:
        if row.sum() > 0:
            n += 1
    return n


def test_a_function_as_the_model_gives_such_numbers_too() -> None:
    program = export(counted_of_a_function, (torch.randn(6, 3),))
    for factor in (1, -1, 30):
        given = torch.randn(6, 3) * factor
        assert int(program(given)[0]) == counted_of_a_function(given)


def largest_sum(x: Tensor) -> Tensor:
    best = x[0]
    running = x[0]
    for i in range(1, 6):
        if running > 0:  # noqa: SIM108
            running = running + x[i]
        else:
            running = x[i]
        if running > best:
            best = running
    return best


def largest_sum_with_writes(x: Tensor) -> Tensor:
    y = x * 1
    best = y[0]
    running = y[0]
    for i in range(1, 4):
        if running > 0:  # noqa: SIM108
            running = running + y[i]
        else:
            running = y[i]
        y += 1
        if running > best:
            best = running
    return best


def test_parts_of_the_input_are_values_where_nothing_is_written_to() -> None:
    program = export(largest_sum, (torch.randn(6),))
    for given in (torch.randn(6), -torch.rand(6), torch.rand(6), torch.randn(6) * 20):
        torch.testing.assert_close(program(given)[0], largest_sum(given))
    try:
        program = export(largest_sum_with_writes, (torch.randn(4),))
    except CaptureError:
        return
    for given in (torch.randn(4), -torch.rand(4), torch.rand(4)):
        torch.testing.assert_close(program(given)[0], largest_sum_with_writes(given))


def half_of_them(x: Tensor) -> Any:
    count = 0
    for i in range(x.size(0) // 2):
        if x[2 * i].abs().sum() > 1000:
            count += 1
    return x * count


def test_a_limit_at_which_the_example_is_not_is_refused() -> None:
    """Such a program is none at the example itself."""
    with pytest.raises((CaptureError, DynamicShapeError)):
        export(Called(half_of_them), EXAMPLE, dynamic_shapes=ROWS)


class _PositiveRows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(4)
        for row in x:
            if row.sum() > 0:
                total = total + row
        return total


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_a_choice_in_the_rounds_of_a_loop_does_not_go_by_how_many_the_example_has(rows: int) -> None:
    others = [(torch.randn(size, 4),) for size in (1, 2, 5, 12)]
    export_and_compare(_PositiveRows(), (torch.randn(rows, 4),), *others, dynamic_shapes=({0: "n"},))


class _TwoChoices(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(4)
        for row in x:
            if row[0] > 0:  # noqa: SIM108  # the statement is what is tested
                h = h * 0.5 + row
            else:
                h = h - row
            if h.sum() > 1:
                h = h * 0
        return h


@pytest.mark.parametrize("rows", [3, 7])
def test_several_choices_in_a_round_are_found_one_after_the_other(rows: int) -> None:
    others = [(torch.randn(size, 4),) for size in (1, 2, 5, 12)]
    export_and_compare(_TwoChoices(), (torch.randn(rows, 4),), *others, dynamic_shapes=({0: "n"},))
