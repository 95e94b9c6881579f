"""Windows whose length or step is a free size are right at every size; a file refuses a size too short for a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy.functions import FloorDiv

from batch_export.exporter.capture.course import _is_of_few
from batch_export.exporter.capture.guards import Guard
from tests.exporting import export_and_compare

Step = Callable[[torch.Tensor], torch.Tensor]


class Function(torch.nn.Module):
    def __init__(self, function: Step) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _written(x: torch.Tensor) -> torch.Tensor:
    y, window = x.clone(), min(x.shape[1], 3)
    y.unfold(1, window, window).mul_(5)
    return y


FREE: dict[str, Step] = {
    "no longer than the axis": lambda x: x.unfold(1, min(x.shape[1], 4), 1),
    "half the axis, of a transpose": lambda x: x.t().unfold(0, x.shape[1] // 2 + 1, 2).amax(-1),
    "the axis": lambda x: x.unfold(-1, x.shape[1], 1),
    "a step": lambda x: x.unfold(1, max(1, x.shape[1] // 4), max(1, x.shape[1] // 4)).sum(-1),
    "written to": _written,
    "means": lambda x: functional.avg_pool1d(x[None, :, :], min(4, x.shape[1]), 1, ceil_mode=True),
    "means of a part": lambda x: functional.avg_pool1d(x[None, 1:], x.shape[1] // 2 + 1),
    "a free number": lambda x: functional.adaptive_avg_pool1d(x[None], x.shape[1] // 2 + 1),
    "areas": lambda x: functional.interpolate(x[None], scale_factor=2.0, mode="area"),
    "areas of a size": lambda x: functional.interpolate(x[None], x.shape[1] // 2 + 1, mode="area"),
    "maxima": lambda x: functional.max_pool2d(x[None, None], (2, x.shape[1] // 3 + 1), 1),
}


@pytest.mark.parametrize("name", FREE)
def test_windows_of_a_free_size(name: str) -> None:
    others = [(torch.randn(3, size),) for size in (1, 2, 3, 4, 5, 9)]
    export_and_compare(Function(FREE[name]), (torch.randn(3, 6),), *others, dynamic_shapes=({1: "n"},))


def test_an_axis_too_short_for_a_window_is_an_error() -> None:
    module = Function(lambda x: x.unfold(1, 4, 2))
    others = [(torch.randn(3, size),) for size in (4, 5, 9)]
    program = export_and_compare(module, (torch.randn(3, 6),), *others, dynamic_shapes=({1: "n"},))
    with pytest.raises(Exception, match="out of data bounds"):
        program(torch.randn(3, 3))


def test_what_is_a_number_at_every_size_is_no_branch_of_few() -> None:
    """A capture from a size that was searched for holds it against a guard only where other sizes were seen."""
    n = sympy.Symbol("n", integer=True, positive=True)
    channels = Guard("", expression=sympy.Eq(FloorDiv(64 * n, n + 0 * n), 64, evaluate=False))

    assert channels.fixes_size
    assert not _is_of_few(channels)
    assert _is_of_few(replace(channels, holds_beyond=True))
    assert _is_of_few(replace(channels, restricts=True))
    assert not _is_of_few(Guard("", expression=sympy.Ne(n, 4)))
