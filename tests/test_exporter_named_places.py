"""Loops over a free size whose rounds have names for their places, write numbers, or stand in a decorated function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare

from batch_export.errors import DynamicShapeError, TranslationError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
EXAMPLE = (torch.randn(6, 4),)
OTHERS = [(torch.randn(size, 4),) for size in (2, 3, 9)]
SHAPES = ({0: "t"},)


def _overlap_added(x: Tensor) -> Any:
    hop, width = 2, x.shape[1]
    window = torch.hann_window(width)
    out = x.new_zeros((x.shape[0] - 1) * hop + width)
    weight = torch.zeros_like(out)
    for t in range(x.shape[0]):
        start = t * hop
        out[start : start + width] += x[t] * window
        weight[start : start + width] += window**2
    return out / weight.clamp(min=1e-8)


def _counted(x: Tensor) -> Any:
    out, count = x.new_zeros(x.shape[0] + 4, 4), x.new_zeros(x.shape[0] + 4)
    for t in range(x.shape[0]):
        out[t : t + 5] += x[t]
        count[t : t + 5] += 1
    return out / count[:, None]


def _numbers(x: Tensor) -> Any:
    whole, truth = torch.zeros(x.shape[0], dtype=torch.int64), torch.zeros(x.shape[0], dtype=torch.bool)
    for t in range(x.shape[0]):
        whole[t] = 2.7
        truth[t] = 3
    return whole, truth


def _of_steps(x: Tensor) -> Any:
    n = x.shape[0]
    places, left, halves = torch.zeros(n), torch.zeros(n, dtype=torch.int64), torch.ones(n, 4, dtype=torch.int64)
    h = torch.zeros(4)
    for t in range(n):
        places[t] = t * 0.5
        left[t] = n - t
        halves[t] += t // 2
        h = 0.5 * h + x[t] * t
    for t in range(n):
        left[t] = left[t] + t**2
    return places, left, halves, h


def _turned(x: Tensor) -> Any:
    out, last = torch.zeros_like(x), x.shape[0] - 1
    for t in range(x.shape[0]):
        other = last - t
        out[other] = x[t] * 2
    return out


def _of_names(x: Tensor) -> Any:
    pairs = torch.zeros_like(x)
    for t in range(x.shape[0] // 2):
        first = 2 * t
        second = first + 1
        pairs[second] = x[first] - x[second]
    return pairs


def _read_behind(x: Tensor) -> Any:
    out = torch.zeros_like(x)
    place = 0
    for t in range(x.shape[0]):
        place = x.shape[0] - 1 - t
        out[place] = x[t]
    return out, place


@pytest.mark.parametrize("loops", [_overlap_added, _counted, _numbers, _of_steps, _turned, _of_names])
def test_places_with_names_and_numbers_that_are_written(loops: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(loops), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


class _Decorated(torch.nn.Module):
    """Loops over rows and over what they have filled, and what data count."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    @torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Any:
        rows, h = [], torch.zeros(4)
        for row in x:
            h = torch.tanh(h + row)
            rows.append(h)
        back = torch.zeros(4)
        for one in reversed(rows):
            back = back * 0.5 + one
        for _ in range(2):
            turned, h = [], torch.zeros(4)
            for row in x:
                h = 0.5 * h + row
                turned.append(h)
            x = torch.stack(turned[::-1])
        return back, x


def test_loops_of_a_decorated_function() -> None:
    export_and_compare(_Decorated(), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


class _Doubling(torch.nn.Module):
    @torch.no_grad()  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Any:
        steps = 0
        while x.sum() < 50 and steps < 20:
            x = x * 2 + 1
            steps += 1
        return x, steps


def test_whole_numbers_are_outputs_of_a_decorated_forward() -> None:
    program = export(_Doubling(), (torch.rand(6, 4),), dynamic_shapes=SHAPES)
    for size, scale in ((6, 1.0), (2, 3.0), (9, 0.1), (3, 100.0)):
        x = torch.rand(size, 4) * scale
        found, expected = program(x), _Doubling()(x)
        torch.testing.assert_close(found[0], expected[0])
        assert (found[1].dtype, int(found[1])) == (torch.int64, expected[1])


def _added_to_whole_numbers(x: Tensor) -> Any:
    count = torch.zeros(x.shape[0], dtype=torch.int64)
    for t in range(x.shape[0]):
        count[t] += 1.5  # torch refuses it
    return count


@pytest.mark.parametrize(
    ("loops", "why"),
    [
        (_read_behind, "a part of something that goes on is written to"),
        (_added_to_whole_numbers, "can't be cast|captured round by round"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_reason(loops: Callable[[Tensor], Any], why: str) -> None:
    with pytest.raises((DynamicShapeError, Exception), match=why):
        export(Called(loops), EXAMPLE, dynamic_shapes=SHAPES)


class _Mixed(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.zeros(4)
            for row in x:
                h = torch.tanh(h * 0.5 + (x @ row).sum())
        return h


def test_autocast_around_a_loop_is_refused_where_it_is_on() -> None:
    with pytest.raises(TranslationError, match="autocast is on around a loop"):
        export(_Mixed(), EXAMPLE, dynamic_shapes=SHAPES)


class _Moving(torch.nn.Module):
    """A round writes to a buffer in place, which torch's scan does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def step(self, row: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * row)
        return row - self.mean

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.step(row) for row in x])


def test_the_reason_that_torch_gives_for_a_round_is_said() -> None:
    with pytest.raises(DynamicShapeError, match="captured round by round, since"):
        export(_Moving(), EXAMPLE, dynamic_shapes=SHAPES)
