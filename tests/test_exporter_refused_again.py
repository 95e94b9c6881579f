"""Examples whose capture would be refused as an earlier one was are not captured from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

from batch_export import export
from batch_export.errors import DynamicShapeError
from batch_export.exporter.capture import course

pytestmark = pytest.mark.sampled


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def doubled_if_even(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] % 2 == 0:
        x = torch.sin(x).double()
    return x * x.shape[0]


def other_beyond(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0) if x.shape[0] <= 6 else x.cumsum(0).amax(0).double()


def sizes_captured(monkeypatch: pytest.MonkeyPatch, function: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    captured: list[int] = []
    by_strategies = course.by_strategies

    def noting(request: course.Request, inputs: object, strategies: course.Strategies) -> object:
        captured.append(inputs[0][0].shape[0])  # type: ignore[index]
        return by_strategies(request, inputs, strategies)  # type: ignore[arg-type]

    monkeypatch.setattr(course, "by_strategies", noting)
    with pytest.raises(DynamicShapeError, match="the captured program holds only while"):
        export(Applied(function), (torch.randn(4, 3),), dynamic_shapes={"x": {0: Dim("n")}})
    return captured


def test_the_same_way_is_not_captured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not captured from 8, which is even as 4 is; both ways last, and then each from sizes that are on it."""
    both = [4, 5, 7]
    assert sizes_captured(monkeypatch, doubled_if_even) == [4, 5, *both, *both]


def test_nothing_is_captured_once_both_ways_were_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways last, from two others as well."""
    both = [4, 7, 8]
    assert sizes_captured(monkeypatch, other_beyond) == [4, 8, *both, *both]
