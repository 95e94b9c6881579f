"""Crops and joined parts by a condition on sizes are right at every size, whatever the example's sizes are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rarer import first
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import DynamicShapeError, TranslationError
from batch_export.exporter import export
from tests.exporting import Called, assert_same, eager

pytestmark = pytest.mark.sampled


def even(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] % 2:
        x = x[:, :-1]
    return x.unflatten(1, (-1, 2)).sum(-1)


def evened(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] % 2:
        x = torch.cat([x, x[:, -1:]], 1)
    return x[:, ::2] - x[:, 1::2]


def named(x: torch.Tensor) -> torch.Tensor:
    odd = x.shape[1] % 2 == 1
    x = torch.cat([x, x[:, :1].flip(1)], dim=1) if odd else x
    return x[:, ::2] - x[:, 1::2]


def several(x: torch.Tensor) -> torch.Tensor:
    """What is asked is asked of the tensor before it is cropped, and a number goes with it."""
    y, n = x * 2, x.shape[1]
    if x.shape[1] % 2:
        x = x[:, :-1]
        y = y[:, 1:]
        n = n - 1
    return (x + y).reshape(x.shape[0], n // 2, 2).sum(-1)


def middle(x: torch.Tensor) -> torch.Tensor:
    d = x.shape[1] - 4
    if d > 0:
        x = x[:, d // 2 : d // 2 + 4]
    elif d < 0:
        x = F.pad(x, (0, -d))
    return x * torch.arange(4.0)


def longer(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] < 4:
        x = torch.cat((x[:, :1].repeat(1, 4 - x.shape[1]), x), dim=1)
    return x.cumsum(1)


def thirds(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    if n % 3 == 1:
        x = torch.cat([x, x[:, :1], x[:, -1:]], 1)
    elif n % 3 == 2:
        x = torch.cat([x, x[:, :1]], 1)
    return x.unflatten(1, (-1, 3)).sum(-1)


def square(x: torch.Tensor) -> torch.Tensor:
    h, w = x.shape
    if h > w:
        x = x[(h - w) // 2 : (h - w) // 2 + w]
    elif w > h:
        x = x[:, (w - h) // 2 : (w - h) // 2 + h]
    return x * 2


def halves(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        if x.shape[1] % 2:
            x = torch.cat([x, x[:, :1]], 1)
        x = x[:, ::2] + x[:, 1::2]
    return x


def written(x: torch.Tensor) -> torch.Tensor:
    """A crop is a view, as eager's is."""
    y = x.clone()
    z = y
    if y.shape[1] > 3:
        y = y[:, :3]
    y.mul_(2)
    return z


def with_numbers(x: torch.Tensor) -> torch.Tensor:
    """What is filled in may be less than 0, and an axis may be left as it is."""
    n, kept = x.shape[1], -1
    if n < 5:
        x = torch.cat([x, x.new_full((x.shape[0], 1), -n), x[:, :1].expand(kept, 5 - n)], 1)
    return x.cumsum(1)


class Joining:
    """Something else of that name."""

    def cat(self, tensors: list[torch.Tensor], dim: int) -> torch.Tensor:
        return torch.cat([tensors[0].neg(), *tensors[1:]], dim)


def chained(x: torch.Tensor) -> torch.Tensor:
    """What is asked last is asked of the tensor before it is cropped, too."""
    if x.shape[1] > 6:
        x = x[:, :6]
    elif x.shape[1] < 3:
        x = torch.cat([x, x[:, :1]], 1)
    elif x.shape[1] == 6:
        x = x[:, 1:]
    return x * 2


def windows(x: torch.Tensor) -> torch.Tensor:
    """As attention in windows pads an axis, and crops what was longer to a tensor that lies in its own order."""
    length = x.shape[1]
    missing = (0, (4 - length % 4) % 4)
    y = F.pad(x, missing)
    y = y.view(-1, 4).cumsum(1).view(y.shape)
    if missing[1] > 0:
        y = y[:, :length].contiguous()
    return x + y.view(-1, length) * 2


def cloned(x: torch.Tensor) -> torch.Tensor:
    """A write to a copy leaves what was read before it."""
    y = x * 1
    z = y.sum(1)
    y = y[:, :3].clone() if y.shape[1] > 3 else y
    y.add_(1)
    return y + z[:, None]


def padded(x: torch.Tensor) -> torch.Tensor:
    """Padding as an expression, and by an amount that is asked for again."""
    n, p = x.shape[1], 0
    x = F.pad(x, (0, 10 - n)) if n < 10 else x
    x = x if x.shape[1] % 4 == 0 else F.pad(x, (0, 4 - x.shape[1] % 4), value=float("-inf"))
    if n % 3:
        p = 3 - n % 3
        x = F.pad(x, (p, 0))
    y = x.cumsum(1)
    if p > 0:
        y = y[:, p:]
    return y


def padded_to_the_middle(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1]
    if n < 6:
        missing = 6 - n
        left = missing // 2
        x = F.pad(x, (left, missing - left), mode="constant", value=1.0)
    elif n > 9:
        x = x[:, :9]
    return x.cumsum(1)


def counted(x: torch.Tensor) -> torch.Tensor:
    """A number to which something is added, and amounts that are chosen together."""
    n, amounts = x.shape[1], (0, 0)
    k = n // 2
    if n % 2:
        k += 1
        amounts = (0, 1)
    return F.pad(x, amounts)[:, ::2] * torch.arange(k)


def both_asked(x: torch.Tensor, even: bool = True) -> torch.Tensor:
    """Where two questions hold, where one does not, and where a number lies between two others."""
    n = x.shape[1]
    if even and n % 2 and n > 4:
        x = x[:, :-1]
    if not n % 3:
        x = torch.cat([x, x[:, :1]], 1)
    x = F.pad(x, (0, 3)) if 3 <= n < 7 else x
    k = 1
    if not (n % 2 == 0 and x.shape[0] > 2):
        k += n
    return x.cumsum(1) * k


def repeated(x: torch.Tensor) -> torch.Tensor:
    """A number that is read by the next round alone."""
    n, more = x.shape[1], 0
    for step in (2, 3):
        if n % step:
            missing = step - n % step
            x = F.pad(x, (0, missing))
            n = n + missing
    for step in (4, 5):
        if x.shape[1] % step:
            x = F.pad(x, (0, more + 1))
            more = step
    return x.cumsum(1)


def two_sides(x: torch.Tensor) -> torch.Tensor:
    """Both sides change tensors, and both give a number."""
    n, table = x.shape[1], torch.arange(6.0)
    if n > table.shape[0]:  # noqa: SIM108
        table = F.pad(table, (0, n - table.shape[0]))
    else:
        table = table[:n]
    if n > 4 and n % 2:
        k = n - 4
        x = x[:, k:]
        table = table[k:]
    else:
        left = 1
        k = 2
        x = F.pad(x, (left, 0))
        x = x[:, left:]
    return x * table + k


def either_side(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if x.shape[1] > 4:
        x = x[:, :4]
        m = 4
    else:
        m = x.shape[1]
        y = F.pad(y, (0, m))
    return x.sum(1) + y.cumsum(1)[:, 0] + m


def unpadded(x: torch.Tensor) -> torch.Tensor:
    """What was added is cropped off by its number, counted from the end."""
    missing = (4 - x.shape[1] % 4) % 4
    y = F.pad(x, (0, missing)).view(-1, 4).cumsum(1).view(x.shape[0], -1)
    if missing > 0:
        y = y[:, :-missing]
    rest = y.shape[1] % 3
    return y[..., -rest:] if rest else y


def by_method(x: torch.Tensor) -> torch.Tensor:
    """Sizes are asked by `x.size(1)`."""
    if x.size(1) % 2 == 1:
        x = torch.cat([x, x.new_zeros(x.size(0), 6 - x.size(1) // 2)], 1)
    if x.size(-1) > x.size()[0] + 4:
        x = x[:, : x.size(0) + 4]
    return x * 2


def named_parts(x: torch.Tensor) -> torch.Tensor:
    """What is joined has a name of its own, which another part has too."""
    count, n = x.shape
    if n % 4 != 0:
        missing = 4 - n % 4
        pad = torch.zeros(count, missing, dtype=x.dtype, device=x.device)
        x = torch.cat((x, pad), dim=1)
    if count < 4:
        pad = torch.ones_like(x[:1]).repeat(4 - count, 1)
        x = torch.cat([pad, x], 0)
    return x.view(x.shape[0], -1, 4).cumsum(2)


FUNCTIONS = [
    two_sides,
    either_side,
    repeated,
    both_asked,
    padded,
    padded_to_the_middle,
    counted,
    named_parts,
    unpadded,
    by_method,
    windows,
    cloned,
    chained,
    with_numbers,
    even,
    evened,
    named,
    several,
    middle,
    longer,
    thirds,
    square,
    halves,
    written,
]


@pytest.mark.parametrize("length", [pytest.param(6, marks=pytest.mark.ops), 7])
@pytest.mark.parametrize("function", first(8, FUNCTIONS), ids=lambda one: one.__name__)
def test_both_ways_are_one(function: Callable[[torch.Tensor], torch.Tensor], length: int) -> None:
    module = Called(function)
    program = export(module, (torch.randn(3, length),), dynamic_shapes=({0: "b", 1: "n"},))
    for count in (2, 3, 5):
        for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13):
            given = torch.randn(count, size)
            assert_same(program(given), eager(module, (given,)))
    program.release()


def align(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > y.shape[0]:
        x = x[: y.shape[0]]
    elif x.shape[0] < y.shape[0]:
        y = y[: x.shape[0]]
    return x + y


def test_an_elif_asks_before_anything_is_cropped() -> None:
    class Aligned(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return align(x, y)

    program = export(Aligned(), (torch.randn(5), torch.randn(7)), dynamic_shapes=({0: "n"}, {0: "m"}))
    for n, m in ((5, 7), (7, 5), (4, 4), (1, 3), (3, 1)):
        given = torch.randn(n), torch.randn(m)
        assert_same(program(*given), eager(Aligned(), given))
    program.release()


def test_what_is_joined_to_is_refused_where_the_tensor_before_it_is_read_after_a_write() -> None:
    class Written(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 1
            z = y
            if y.shape[1] % 2:
                y = torch.cat([y, y[:, -1:]], 1)
            y[:, 0] = 7.0
            return y.unflatten(1, (-1, 2)).sum(-1), z

    with pytest.raises(TranslationError, match="one of them is written, and the other is read after it"):
        export(Written(), (torch.randn(3, 7),), dynamic_shapes=({1: "n"},))


def test_a_write_to_a_crop_that_is_a_copy_is_refused_where_the_tensor_before_it_is_read_after_it() -> None:
    class Copied(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 1
            z = y
            if y.shape[1] > 3:
                y = y[:, :3].contiguous()
            y.mul_(2)
            return y, z

    class Cloned(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x * 1
            z = y
            if y.shape[1] > 3:
                y = y[:, :3].clone()
            y.mul_(2)
            return y, z

    for module in (Copied(), Cloned()):
        with pytest.raises(TranslationError, match="one of them is written, and the other is read after it"):
            export(module, (torch.randn(3, 7),), dynamic_shapes=({1: "n"},))


def more_behind_else(x: torch.Tensor) -> torch.Tensor:
    """What stands beside an `if` behind `else` is done on that side alone."""
    y = x.sum(1, keepdim=True)
    if x.shape[1] > 6:
        x = x[:, :6]
    else:
        y = y.exp()
        if x.shape[1] < 3:
            x = torch.cat([x, x], 1)
    return x + y if x.shape[1] > 2 else (x + y).double()


def added_in_place(x: torch.Tensor) -> torch.Tensor:
    """What is added to is a tensor, which has another name."""
    y = x * 1
    z = y
    if x.shape[1] % 2:
        y += 1
    return y + z if x.shape[1] % 2 else (y + z).double()


def of_another_dtype(x: torch.Tensor) -> torch.Tensor:
    x = x.long()
    if x.shape[1] < 4:
        x = torch.cat([x, torch.full((x.shape[0], 4 - x.shape[1]), 0.5)], 1)
    return x * 2


def joined_by_another(x: torch.Tensor) -> torch.Tensor:
    """Something else of the name of torch's function."""
    torch_ = Joining()
    if x.shape[1] % 2:
        x = torch_.cat([x, x[:, :1]], 1).double()
    return x * 2


@pytest.mark.parametrize("length", [*(pytest.param(size, marks=pytest.mark.ops) for size in (3, 6)), 7])
@pytest.mark.parametrize(
    "function",
    first(2, [of_another_dtype, joined_by_another, added_in_place, more_behind_else]),
    ids=lambda one: one.__name__,
)
def test_what_is_more_than_a_join_stays_a_decision(
    function: Callable[[torch.Tensor], torch.Tensor], length: int
) -> None:
    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(Called(function), (torch.randn(3, length),), dynamic_shapes=({1: "n"},))


def test_a_last_elif_that_may_hold_with_the_first_if_stays_a_decision() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        if n > 6:
            x = x[:, :-1]
        elif n < 3:
            x = torch.cat([x, x[:, :1]], 1)
        elif n > 4:
            x = x[:, 1:]
        return x

    program = export(Called(both), (torch.randn(3, 8),), dynamic_shapes=({1: "n"},))
    for length in range(1, 12):
        x = torch.randn(3, length)
        assert_same(program(x), [both(x)])


def test_an_elif_that_may_hold_with_its_if_stays_a_decision() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        if n > 3:
            x = x[:, :3]
        elif n > 2:
            x = x[:, :1].double()
        return x

    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(Called(both), (torch.randn(3, 6),), dynamic_shapes=({1: "n"},))


def test_a_part_that_is_read_behind_its_if_stays_a_decision() -> None:
    class Kept(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            pad = x[:, :0]
            if x.shape[1] % 2:
                pad = x[:, -1:]
                x = torch.cat([x, pad], 1)
            return x, pad

    with pytest.raises(DynamicShapeError, match=r"holds only while `.*test_exporter_chosen_parts\.py"):
        export(Kept(), (torch.randn(3, 6),), dynamic_shapes=({1: "n"},))
