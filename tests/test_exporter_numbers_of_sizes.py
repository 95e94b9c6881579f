"""Numbers in tensors that are made of sizes, and of settings that a layer keeps in buffers, are known to a capture."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture
from tests.exporting import Called, export_and_compare

pytestmark = pytest.mark.sampled


class Padded(torch.nn.Module):
    """A convolution that works out its padding in tensors, its settings in buffers that are no part of its state."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(1, 1, kernel, stride)
        self.register_buffer("stride", torch.tensor(stride), persistent=False)
        self.register_buffer("kernel", torch.tensor(kernel), persistent=False)
        self.register_buffer("total", torch.tensor(kernel - stride), persistent=False)
        self.stride: torch.Tensor
        self.kernel: torch.Tensor
        self.total: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[-1]
        frames = torch.ceil((length - self.kernel + self.total) / self.stride + 1).to(torch.int64) - 1
        more = frames * self.stride + self.kernel - self.total - length
        right = self.total // 2
        left = self.total - right
        widest = max(left, right + more)
        if length <= widest:
            x = functional.pad(x, (0, widest - length + 1))
        return self.conv(functional.pad(x, (left, right + more), "reflect"))


@pytest.fixture
def layers() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Padded(7, 1), Padded(4, 2), Padded(8, 5))


def test_settings_in_buffers_decide_nothing_by_data(layers: torch.nn.Module) -> None:
    program = export_and_compare(layers, (torch.randn(2, 1, 41),))
    assert len(list(program.model.graph)) <= 6


def test_lengths_made_of_them_stay_free(layers: torch.nn.Module) -> None:
    others = [(torch.randn(1, 1, size),) for size in (42, 43, 44, 50, 63, 100)]
    export_and_compare(layers, (torch.randn(2, 1, 41),), *others, dynamic_shapes=({0: "batch", 2: "samples"},))


class Deciding(torch.nn.Module):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = torch.div(torch.tensor(x.shape[0]), 2, rounding_mode="floor")
        return x * 2 if half >= self.limit else x


def test_a_decision_by_such_a_number_is_one_by_a_size() -> None:
    with pytest.raises(DynamicShapeError, match=r"n // 2.*test_exporter_numbers_of_sizes\.py:\d+"):
        export(Deciding(5), (torch.randn(4),), dynamic_shapes=({0: "n"},))
    export_and_compare(Deciding(0), (torch.randn(4),), (torch.randn(7),), dynamic_shapes=({0: "n"},))


class Comparing(torch.nn.Module):
    """Fractions of sizes: whole or not, above or below, negative, cut off, of one another."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size = torch.tensor(x.shape[0])
        half = size / 2 - 3
        ends = [torch.ceil(half), torch.floor(half), half.to(torch.int64), -torch.ceil(half / 2), half * half]
        outputs = [x * (1 if half == 2 else 2), x * (1 if half < 0 else 2), x * (1 if half / size > 0.3 else 2)]
        return *outputs, *(x * (1 if end >= 1 else 3) for end in ends)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 9, 10, 11, 20])
def test_fractions_are_compared_as_in_eager(size: int) -> None:
    given = (torch.randn(size),)
    export_and_compare(Comparing(), given, dynamic_shapes=({0: torch.export.Dim.AUTO},))


class Counting(torch.nn.Module):
    def __init__(self, *, persistent: bool, writes: bool) -> None:
        super().__init__()
        self.writes = writes
        self.register_buffer("count", torch.tensor(3), persistent=persistent)
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if self.count > 3 else x * 3
        if self.writes:
            self.count += 1
        return y


@pytest.mark.parametrize(("persistent", "writes"), [(True, False), (False, True)], ids=["state", "written"])
def test_buffers_that_may_have_other_numbers_are_data(persistent: bool, writes: bool) -> None:
    captured = capture(Counting(persistent=persistent, writes=writes), (torch.randn(3),))
    assert [one.partition(" (")[0] for one in captured.both_ways] == ["`y = x * 2 if self.count > 3 else x * 3`"]


class Summed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.tensor(x.shape[0])
        count += x.sum().to(torch.int64)
        return x * 2 if count > 3 else x


def test_what_data_are_written_to_is_data() -> None:
    assert capture(Summed(), (torch.randn(3),), dynamic_shapes=({0: "n"},)).both_ways


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: functional.pad(x, (0, math.floor(math.log2(x.shape[1])))), r"\(n\) .* the model makes it 4"),
        (lambda x: functional.pad(x, (0, 2 ** math.ceil(math.log2(x.shape[1])) - x.shape[1])), "by the size n would"),
        (lambda x: x * 2 if math.log(x.shape[1]) > 1 else x.double(), "by the size n would"),
    ],
)
def test_a_decision_by_a_logarithm_of_a_size_names_the_size_and_the_line(
    function: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    for _ in range(2):  # torch names each file once in a process
        with pytest.raises((CaptureError, DynamicShapeError), match=words) as refused:
            export(function, (torch.randn(3, 4),), dynamic_shapes=({0: "b", 1: "n"},))
        told = str(refused.value)
        assert f"at {__file__}:{function.__code__.co_firstlineno}" in told
        assert "log_guard" not in told
        assert "data" not in told.partition("Next step")[0]


def _powers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = x.shape[0]
    return x + 3**n % 7, x + n**11 % 7, x * (-1) ** n, x + n**0, torch.zeros(n**2), torch.zeros(2 ** min(n, 5))


def test_powers_of_sizes_are_exact_as_far_as_whole_numbers_go() -> None:
    program = export(Called(_powers), (torch.randn(5, 2),), dynamic_shapes=({0: "n"},))
    for n in (0, 1, 2, 33, 35, 37, 38, 39):
        x = torch.randn(n, 2)
        for one, other in zip(program(x), _powers(x), strict=True):
            torch.testing.assert_close(one, other)


def _powers_of_steps(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.shape[1])
    for i in range(x.shape[0]):
        total = total + x[i] * (3**i % 7) + i**11 % 5
    return total


def test_powers_of_steps_are_exact_too() -> None:
    export_and_compare(
        Called(_powers_of_steps), (torch.randn(5, 2),), (torch.randn(39, 2),), dynamic_shapes=({0: "n"},)
    )
