"""Decisions by whole quotients of sizes, whose answers change far from the sizes that anybody would try."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F  # noqa: N812  (as models call it)

from batch_export import export
from batch_export.errors import DynamicShapeError
from batch_export.exporter.capture.every_size import holds_at_every, sizes
from tests.exporting import assert_same, eager

pytestmark = pytest.mark.sampled


def number(x: torch.Tensor) -> torch.Tensor:
    frames, factor = x.shape[1] // 160, 2
    if frames > 5:
        factor = 1
    return x * factor


def expression(x: torch.Tensor) -> torch.Tensor:
    return x * (1 if x.shape[1] // 160 > 5 else 2)


def hops(x: torch.Tensor) -> torch.Tensor:
    frames, factor = x.shape[1] // 4 + 1, 0
    if frames % 16:
        factor = 1
    return x * factor


def padded(x: torch.Tensor) -> torch.Tensor:
    frames = x.unfold(1, 8, 4).mean(-1)
    if frames.shape[1] % 16 != 0:
        frames = F.pad(frames, (0, 16 - frames.shape[1] % 16))
    return frames


def cropped(x: torch.Tensor) -> torch.Tensor:
    chunks = -(-x.shape[1] // 6)
    if chunks > 12:
        x = x[:, :12]
    return x * 1


def joined(x: torch.Tensor) -> torch.Tensor:
    count = x.shape[1] // 10 + 3
    if count > 12:
        x = torch.cat([x, x[:, :2]], 1)
    return x + 1


def one_of_many(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] // 20 == 7:
        return x * 3
    return x + 1


def tail(x: torch.Tensor) -> torch.Tensor:
    count = x.shape[1] // 8 + 1
    y = x[:, ::8]
    if count % 10 == 0:
        y = y[:, :-1]
    return y


def patches(x: torch.Tensor) -> torch.Tensor:
    count = (x.shape[0] // 14) * (x.shape[1] // 14)
    return x * (1 if count > 20 else 2)


@pytest.mark.parametrize("length", [37, 60, 1000])
@pytest.mark.parametrize(
    "function",
    [number, expression, hops, padded, cropped, joined, one_of_many, tail, patches],
    ids=lambda one: one.__name__,
)
def test_what_a_quotient_decides_is_decided_at_every_size(
    function: Callable[[torch.Tensor], torch.Tensor], length: int
) -> None:
    class Called(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    program = export(Called(), (torch.randn(30, length),), dynamic_shapes=({0: "b", 1: "n"},))
    for size in (8, 30, 60, 63, 64, 72, 79, 80, 100, 119, 120, 139, 140, 159, 160, 400, 959, 960, 2000):
        given = torch.randn(28, size)
        assert_same(program(given), eager(Called(), (given,)))


def test_a_squeeze_of_a_quotient_drops_an_axis_far_away() -> None:
    class Means(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            count = x.shape[1] // 160
            return x[:, : count * 160].reshape(x.shape[0], count, 160).mean(-1).squeeze(1)

    with pytest.raises(DynamicShapeError, match="drops an axis"):
        export(Means(), (torch.randn(2, 330),), dynamic_shapes=({0: "b", 1: "n"},))


def test_as_many_sizes_are_tried_as_are_different() -> None:
    from sympy import Symbol
    from torch.utils._sympy.functions import FloorDiv, Mod

    n, m = Symbol("n", integer=True, nonnegative=True), Symbol("m", integer=True, nonnegative=True)
    frames = FloorDiv(n, 160)
    assert (found := sizes([frames > 5])) is not None
    assert max(found) > 960
    assert not holds_at_every([frames], lambda value: value <= 5, among=[frames > 5])
    assert holds_at_every([Mod(FloorDiv(n, 4), 16), n], lambda left, size: left == size // 4 % 16)
    late = FloorDiv(n, 20) * FloorDiv(n, 20) > n  # from 400 on, and again behind
    assert (found := sizes([late])) is None or max(found) > 440
    assert not holds_at_every([late], lambda holds: not holds)
    assert sizes([n + m]) is None
    assert sizes([FloorDiv(n, m + 1)]) is None
    assert sizes([FloorDiv(n, 160) > 100_000]) is None
