"""Lists that forward makes of a free size or of a tensor's slices have a free length in the file."""

from __future__ import annotations

import itertools

import pytest
import torch
from exporting import export_and_compare

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.free_sequences import FreeNumbers, Run

pytestmark = pytest.mark.sampled


class Lengths(torch.nn.Module):
    """A weight for each sample, of which `len` says the number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = len(x)
        assert isinstance(count, int)
        return self.weight.tile([count, 1]) + x / len(x[0])


def test_the_length_of_a_tensor_is_a_size() -> None:
    given = (torch.randn(4, 3),)
    export_and_compare(Lengths(), given, (torch.randn(1, 3),), (torch.randn(7, 3),), dynamic_shapes=({0: "batch"},))
    captured = capture(Lengths(), given, dynamic_shapes=({0: "batch"},))
    assert [one.strategy for one in captured.attempts] == ["torch.export(strict=False)"]


class Backwards(torch.nn.Module):
    """Which places lie within a length, counted from the end."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.tensor(list(range(x.shape[1] - 2))[::-1], device=x.device)[None, :].repeat(len(x), 1)
        return places < lengths[:, None], torch.as_tensor(range(3, x.shape[1], 2), dtype=torch.float32)


def test_numbers_counted_backwards() -> None:
    others = [(torch.randn(rows, size), torch.arange(rows)) for rows, size in ((1, 7), (2, 4), (5, 12), (2, 3), (2, 2))]
    shapes = ({0: "batch", 1: "size"}, {0: "batch"})
    export_and_compare(Backwards(), (torch.randn(3, 9), torch.tensor([1, 5, 7])), *others, dynamic_shapes=shapes)


class Repeated(torch.nn.Module):
    """One number again and again, which eager makes a tensor of."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch = x.shape[0]
        zeros = [0] * batch
        places, halves = torch.tensor(zeros), torch.tensor(batch * [0.5], device=x.device)
        masks, sizes = torch.tensor([True] * (batch + 1)), torch.as_tensor([3, *[batch]] * 1 + [batch] * batch)
        marked = torch.tensor([7] + zeros[1:], dtype=torch.float32)  # noqa: RUF005
        return places, x * halves[:, None], masks, sizes, marked, x * len(zeros)


def test_one_number_in_a_list_of_free_length() -> None:
    export_and_compare(
        Repeated(), (torch.randn(4, 3),), (torch.randn(1, 3),), (torch.randn(7, 3),), dynamic_shapes=({0: "batch"},)
    )
    doubled = lambda x: x * sum([2] * x.shape[0])  # noqa: E731
    with pytest.raises(DynamicShapeError, match="the model makes it 4"):
        export(doubled, (torch.randn(4, 3),), dynamic_shapes=({0: "batch"},))


class Pooled(torch.nn.Module):
    """Every second place again and again, with one of its own in front."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = list(range(x.shape[1]))
        found = []
        for block in range(3):
            if block:
                front = [1 - 2**block]
                pooled = front + places[1:-1][::2]
                found.append(torch.arange(pooled[0], places[-1], 1) * len(pooled))
                places = pooled
            found.append(torch.tensor(places, dtype=torch.float32) + places[0] + places[-1])
        return tuple(found)


def test_numbers_pooled_behind_a_number_of_their_own() -> None:
    others = [(torch.randn(2, size),) for size in (12, 13, 14, 15, 31)]
    export_and_compare(Pooled(), (torch.randn(2, 17),), *others, dynamic_shapes=({0: "batch", 1: "size"},))


class Rows(torch.nn.Module):
    """The slices of a tensor, joined along each of their axes and beside one another."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = list(x)
        again = tuple(rows)
        assert isinstance(rows, list)
        assert type(again) is tuple
        joined = torch.cat(rows), torch.cat(tensors=again, dim=-1) * len(rows)
        return *joined, torch.stack(again, dim=1), torch.stack(rows[1:], -1), rows[0] + rows[-1]


def test_slices_are_joined() -> None:
    others = [(torch.randn(rows, size, 3),) for rows, size in ((2, 2), (5, 1), (3, 7))]
    export_and_compare(Rows(), (torch.randn(4, 2, 3),), *others, dynamic_shapes=({0: "rows", 1: "size"},))


class Written(torch.nn.Module):
    """What slices are joined to is a copy of them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        stacked, joined = torch.stack(list(x)), torch.cat(list(x))
        stacked.add_(1)
        joined.mul_(2)
        return x * 3, stacked, joined


def test_a_write_to_joined_slices_leaves_them() -> None:
    export_and_compare(Written(), (torch.randn(4, 2, 3),), (torch.randn(1, 2, 3),), dynamic_shapes=({0: "rows"},))


class Looping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = list(x)
        rows.append(x[0] * 2)
        for place in range(len(x)):
            rows[place] = rows[place] + place
        return torch.stack(rows)


def test_what_no_rule_follows_is_a_list_as_before() -> None:
    export_and_compare(Looping(), (torch.randn(3, 2),))
    export_and_compare(Looping(), (torch.randn(3, 2),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    with pytest.raises(DynamicShapeError, match=r"the model makes it 3 \(at .*test_exporter_free_sequences\.py:\d+"):
        export(Looping(), (torch.randn(3, 2),), dynamic_shapes=({0: "rows"},))


def _numbers(*runs: tuple[int, int, int]) -> FreeNumbers:
    return FreeNumbers([Run(*run) for run in runs], list)


@pytest.mark.parametrize(
    "runs", [[(4, 1, 6)], [(9, -2, 5)], [(-7, 1, 1), (0, 3, 6)], [(5, 1, 2), (1, 1, 1), (0, 2, 4)]]
)
def test_slices_are_those_of_a_list(runs: list[tuple[int, int, int]]) -> None:
    plain = _numbers(*runs).plain()
    starts, stops = (None, 0, 1, 3, 40, -2, -40), (None, 0, 2, 5, 40, -1, -4, -40)
    for start, stop, stride in itertools.product(starts, stops, (1, 2, 3)):
        part = _numbers(*runs)[start:stop:stride]
        assert len(part) == len(plain[start:stop:stride])
        assert list(part) == plain[start:stop:stride]
    numbers, front, behind = _numbers(*runs), [3], [4, 5]
    assert [numbers[place] for place in range(-len(plain), len(plain))] == plain * 2
    assert list(numbers[::-1]) == plain[::-1]
    assert list(front + numbers + behind) == front + plain + behind


class Counted(torch.nn.Module):
    """Whole numbers, and floats where there are none: so eager makes a tensor of an empty list."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(list(range(x.shape[0])))


def test_a_list_that_may_be_empty_is_told() -> None:
    with pytest.warns(ExportWarning, match=r"only while `n > 0` \(at .*free_sequences.py:\d+\)"):
        program = export(Counted(), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))
    assert program(torch.randn(7, 3))[0].tolist() == list(range(7))
