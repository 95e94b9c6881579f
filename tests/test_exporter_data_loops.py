"""Loops that end where the data say so are one operator of the file, with as many rounds as eager takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import CaptureError, TranslationError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
ROWS = ({0: "n"},)


def halved(x: Tensor) -> Any:
    """Nothing but a test in front of each round."""
    while x.abs().max() > 1:
        x = x / 2
    return x


def counted(x: Tensor) -> Any:
    """A test of two things, and a number that goes on."""
    count = 0
    while x.norm() > 1 and count < 50:
        x, count = x * 0.7, count + 1
    return x, x * count


def endless(x: Tensor) -> Any:
    """Rounds that end at their own end."""
    x, count = x.abs() + 1, 0
    while True:
        x = x / 2
        count += 1
        if x.max() < 0.1:
            break
    return x, x * count


def converging(x: Tensor) -> Any:
    """What begins as a number, and is a tensor behind the first round."""
    before, now = float("inf"), x.abs().sum()
    while abs(before - now) > 1e-3:
        before = now
        x = x * 0.5
        now = x.abs().sum()
    return x, now


def newton(x: Tensor) -> Any:
    """At most so many rounds, the rest of the last of which is left out."""
    root = x.clamp(min=1.0)
    for _ in range(30):
        new = 0.5 * (root + x.abs() / root)
        if bool((new - root).abs().max() < 1e-3):
            break
        root = new
    return root


def assigning(x: Tensor) -> Any:
    """What the last round does alone; a name that is not there before the loop; the step behind it."""
    other = x * 0
    for step in range(20):  # noqa: B007  (read behind the loop)
        new = torch.cos(x)
        if (new - x).abs().max().item() < 1e-2:
            other = new * 10
            break
        x = new
        other = other + 1
    return x, other, new, x * step  # the last one


def nested(x: Tensor) -> Any:
    """Loops within, and the step as a number."""
    x = x.abs()
    for step in range(15):
        for _ in range(3):
            x = x * 0.9
        if x.sum() < 0.5:
            break
        x = x + 0.01 * step
    return x


def in_place(x: Tensor) -> Any:
    """Writes at the step's place and in place, reads there, a view by an attribute, and a second loop."""
    made, table = torch.full((x.shape[0], 12), 9.0), torch.arange(24.0).reshape(2, 12)
    for step in range(12):
        x = x * 0.6 + 0.01 * table[:, step].sum() + (table.T @ table).sum() * 1e-6
        made[:, step] = x
        made.mul_(1.5)
        if x.abs().max() < 1.2:
            break
    while x.abs().sum() > 1:
        x = x * 0.8
    return x, made


def by_numbers(x: Tensor) -> Any:
    """What `int` cuts off, and what `item` says in doubles."""
    one, two, three, count = x, x, x, 0
    while int(one.max()) > 3:
        one = one - 0.7
        count += 1
    while two.max().item() > 0.1 or float(two.min()) / 3 > 0.5:
        two = two * 0.1
    for _ in range(5):
        if three.max().item() <= 0.1:
            break
        three = three * 0.1
    return one, two, three, x * count


class Decoder(torch.nn.Module):
    """A greedy decoder with weights, which ends where every row has."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = (
            torch.nn.Embedding(10, 8),
            torch.nn.GRUCell(8, 8),
            torch.nn.Linear(8, 10),
        )

    def forward(self, x: Tensor) -> Any:
        state = x[:, None] * torch.linspace(-1, 1, 8)
        token = torch.zeros(x.shape[0], dtype=torch.long)
        tokens, score = torch.full((x.shape[0], 9), 11), torch.zeros(x.shape[0])
        for step in range(9):
            state = self.cell(self.embedding(token), state)
            logits = self.head(state)
            token, score = logits.argmax(-1), score + logits.max(-1).values
            tokens[:, step] = token
            if (token == 3).all():
                break
        return tokens, score


class Listing(Decoder):
    """Tokens in a list that begins with one and whose last is read again, scores in one that begins empty."""

    def forward(self, x: Tensor) -> Any:
        state = x[:, None] * torch.linspace(-1, 1, 8)
        tokens, scores = [torch.zeros(x.shape[0], dtype=torch.long)], []
        for _ in range(9):
            state = self.cell(self.embedding(tokens[-1]), state)
            logits = self.head(state)
            scores.append(logits.max(-1).values)
            if (logits.argmax(-1) == 3).all():
                scores.append(scores[-1] * 2)
                break
            tokens.append(logits.argmax(-1))
        return torch.stack(tokens, dim=1), torch.stack(scores), scores[-1], state * len(scores)


def apart(x: Tensor) -> Any:
    """A list in every round of a loop round it, and one that may stay empty."""
    found, more = [], []
    for turn in range(2):
        parts = [x * 0]
        for _ in range(12):
            x = x * 0.6
            parts.append(x)
            if x.abs().max() < 0.1:
                break
        found.append(torch.stack(parts).sum(0))
        x = x * 20 + turn
    for _ in range(3):
        if x.abs().max() < 25:
            break
        more.append(x[None])
        x = x - x.sign()
    more.append(x[None])
    return torch.stack(found), torch.cat(more)


LOOPS: list[Any] = [
    assigning,
    Listing,
    counted,
    in_place,
    Decoder,
    by_numbers,
    halved,
    endless,
    converging,
    newton,
    nested,
    apart,
]


@pytest.mark.parametrize("function", first(4, LOOPS))
def test_rounds_are_as_many_as_in_eager(function: Any) -> None:
    torch.manual_seed(0)
    module = function() if isinstance(function, type) else Called(function)
    sizes = [(torch.randn(3) * 100,), (torch.randn(1) * 0.01,), (torch.randn(4) * 20,), (torch.zeros(2),)]
    sizes += [(torch.full((2,), 3.5),), (torch.full((3,), 1.0),), (torch.full((2,), 0.1),)]
    export_and_compare(module, (torch.randn(5),), *sizes, dynamic_shapes=ROWS)


@pytest.mark.parametrize("function", first(0, [halved, newton]))
def test_the_loop_is_one_operator_of_the_file(function: Callable[[Tensor], Any]) -> None:
    program = export(Called(function), (torch.randn(5),))
    assert [node.op_type for node in program.model.graph].count("Loop") == 1


def limited(x: Tensor) -> Any:
    """So many rounds at the most, behind what a round computes; numbers alone ask for it."""
    count = 0
    while x.abs().max() > 1:
        x = x / 2
        count += 1
        if count >= 20:
            break
        x = x - 0.01
    return x, x * count


def given_up(x: Tensor) -> Any:
    """An end in front of all else, with something that the last round does alone."""
    count, total = 0, x * 0
    while not x.abs().max() < 1:
        if count > 15:
            total = total * 2
            count = count + 100
            break
        total = total + x
        x = x / 2 - 0.3
        count += 1
    return x, total, x * count


def counting(x: Tensor) -> Any:
    """A test by numbers, and an end by data."""
    count = 0
    while count < 20:
        count += 1
        x = x / 2
        if x.abs().max() < 1:
            break
        x = x - 0.01
    return x, x * count


def walking(x: Tensor) -> Any:
    """Behind the end Python does not ask for the place beyond the last one, which is none."""
    place = torch.zeros(1, dtype=torch.int64)
    while (torch.arange(30.0).index_select(0, place) < x.abs().max()).all():
        place = place + 1
        if (place >= 30).any():
            break
    return x, place


def returning(x: Tensor) -> Any:
    """Rounds that a `return` leaves."""
    count = 0
    while True:
        x = x * 0.7
        count += 1
        if x.norm() < 1:
            return x, x * count


def returning_the_same(x: Tensor) -> Any:
    """What a loop returns, and what stands behind it."""
    for _ in range(12):
        x = x * 0.5
        if torch.allclose(x, torch.zeros_like(x), atol=1.0):
            return x
    return x


def until_nothing_changes(x: Tensor) -> Any:
    """A fixed point, asked for by `torch.equal` and by the method."""
    label = x.long()
    for _ in range(8):
        new = label // 2
        if torch.equal(new, label):
            break
        label = new
    for _ in range(8):
        new = label.roll(1) * 2 // 3
        if new.equal(label):
            break
        label = new
    return label, x


BROKEN_OFF = [limited, walking, returning, given_up, counting, returning_the_same, until_nothing_changes]


@pytest.mark.parametrize("function", first(2, BROKEN_OFF))
def test_a_test_in_front_of_each_round_and_an_end_within_hold_both(function: Callable[[Tensor], Any]) -> None:
    others = [(torch.tensor(number),) for number in ([1e9, 3.0], [1e30, -2.0, 5.0], [0.0], [40.0, 0.5])]
    export_and_compare(Called(function), (torch.tensor([3.0, -2.0]),), *others, dynamic_shapes=ROWS)


def of_one_list(x: Tensor) -> Any:
    found = same = []
    for _ in range(12):
        x = x * 0.5
        found.append(x)
        if x.abs().max() < 0.1:
            break
    return torch.stack(same)


def of_the_first(x: Tensor) -> Any:
    found = [x]
    for _ in range(12):
        found.append(found[0] * 0.5 + x)
        if x.abs().max() < 0.1:
            break
        x = x * 0.7
    return torch.stack(found)


def in_some_rounds(x: Tensor) -> Any:
    found = [x]
    for step in range(12):
        x = x * 0.5
        if step % 2:
            found.append(x)
        if x.abs().max() < 0.1:
            break
    return torch.stack(found)


def of_two_kinds(x: Tensor) -> Any:
    found = [x.double()]
    for _ in range(12):
        x = x * 0.5
        found.append(x)
        if x.abs().max() < 0.1:
            break
    return found[-1]


def a_list_itself(x: Tensor) -> Any:
    found = []
    for _ in range(12):
        x = x * 0.5
        found.append(x)
        if x.abs().max() < 0.1:
            break
    return found


def of_a_last_that_changes(x: Tensor) -> Any:
    found = [x * 1]
    for _ in range(12):
        last = found[-1]
        last += 1
        found.append(last * 0.5)
        if last.abs().max() < 3:
            break
    return torch.stack(found)


def changed_behind(x: Tensor) -> Any:
    found = []
    for _ in range(12):
        x = x * 0.5
        found.append(x)
        if x.abs().max() < 0.1:
            break
    x.mul_(3)
    return torch.stack(found)


def of_too_many(x: Tensor) -> Any:
    found = []
    for _ in range(10_000_000):
        x = x * 0.5
        found.append(x)
        if x.abs().max() < 0.1:
            break
    return torch.stack(found)


LISTS = [
    (of_a_last_that_changes, "is no list of which the loop"),
    (changed_behind, "is no list of which the loop"),
    (of_too_many, "a list may get 10000000 tensors"),
    (in_some_rounds, "`found.append\\(x\\)` at line [0-9]+ is no list of which the loop"),
    (a_list_itself, "forward returns a list"),
    (of_one_list, "is no list of which the loop"),
    (of_the_first, "reads the last element only"),
    (of_two_kinds, "several shapes or dtypes"),
]


@pytest.mark.parametrize(("function", "why"), LISTS)
def test_other_lists_are_refused_with_the_reason(function: Callable[[Tensor], Any], why: str) -> None:
    with pytest.raises(CaptureError, match=f"the loop there is no operator of the file: .*{why}"):
        export(Called(function), (torch.linspace(-2, 3, 5),))


def of_one_memory(x: Tensor) -> Any:
    x = x.clone()
    same = x
    for _ in range(12):
        x.mul_(0.5)
        if x.abs().max() < 0.1:
            break
    return x, same


def growing(x: Tensor) -> Any:
    while x.sum() < 300:
        x = torch.cat([x, x.abs() + 1])
    return x


TABLE = torch.zeros(2, 5)


def of_a_view(x: Tensor) -> Any:
    while x.abs().max() > 0.1:
        x = x * 0.5
        TABLE[0].copy_(x)
    return x + TABLE[0]


def seen_by_a_view(x: Tensor) -> Any:
    x = x.clone()
    row = x[0]
    while row > 0.1:
        x.mul_(0.5)
    return x


def damp(x: Tensor) -> None:
    x.mul_(0.5)


def by_another(x: Tensor) -> Any:
    x = x.clone()
    while x.max() > 0.1:
        damp(x)
    return x


def read_by_a_function(x: Tensor) -> Any:
    scale = 1.0

    def scaled(y: Tensor) -> Tensor:
        return y * scale

    for _ in range(10):
        if scaled(x).max() < 0.1:
            break
        scale = scale * 0.5
    return scaled(x)


def of_powers(x: Tensor) -> Any:
    count = 0
    while x.max() > 0.1:
        count += 1
        x = x * 2**-count
    return x


def of_a_power_behind(x: Tensor) -> Any:
    """A counter whose power may be a fraction: of a whole tensor it is none."""
    left, size = 3, x.abs().max() + 0 * x
    while size.max() > 1000:
        size = size / 2
        left -= 1
    return size * 2**left


def of_answers_added(x: Tensor) -> Any:
    """Comparisons of a counter that are added up: of tensors that is their `or`."""
    count = 0
    while x.abs().max() > 1:
        x = x / 2
        count += 1
    return x * ((count > 12) + (count > 0) + 1)


def kept_behind(x: Tensor) -> Any:
    """What the rounds write to is kept behind them, and they come again."""
    y, kept = x * 1, []
    for k in range(2):
        while y.abs().sum() > 1.5 - k:
            y -= y * 0.25
        kept.append(y)
    return kept


REFUSED = [
    of_a_power_behind,
    of_one_memory,
    of_answers_added,
    seen_by_a_view,
    by_another,
    read_by_a_function,
    of_powers,
    growing,
    of_a_view,
    kept_behind,
]


@pytest.mark.parametrize("function", first(2, REFUSED))
def test_other_loops_are_refused(function: Callable[[Tensor], Any]) -> None:
    for example in (torch.linspace(-2, 3, 5), torch.full((2,), 0.05)):
        with pytest.raises(CaptureError, match="data"):
            export(Called(function), (example,))


def of_sizes(x: Tensor) -> Any:
    count = x.shape[0]
    while x.sum() < 10 and count > 1:
        x = x + 1
    return x


def of_a_size_within(x: Tensor) -> Any:
    for _ in range(6):
        if x.sum() > 10:
            break
        x = x + max(x.shape[0], 2)
    return x


@pytest.mark.parametrize("function", first(1, [of_sizes, of_a_size_within]))
def test_loops_that_ask_for_free_sizes_are_refused(function: Callable[[Tensor], Any]) -> None:
    """Within the operator torch takes each of them for 2 or more."""
    with pytest.raises(CaptureError, match="data"):
        export(Called(function), (torch.full((3,), 0.1),), dynamic_shapes=ROWS)


def test_a_write_within_a_loop_to_what_lies_outside_is_refused() -> None:
    class Writing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = torch.nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Any:
            y, z = x + 0, x
            while y.max() > 0.1:
                z = self.relu(x)
                y = y * 0.5
            return x, z

    with pytest.raises((CaptureError, TranslationError)):
        export(Writing(), (torch.linspace(-2, 3, 5),))
