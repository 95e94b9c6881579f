"""Windows whose length or step is a free size are right at every size; a file refuses a size too short for a window."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from torch.nn import functional
from torch.utils._sympy.functions import FloorDiv, Mod

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


def test_what_is_left_of_a_division_is_no_size_that_a_guard_fixes() -> None:
    n = sympy.Symbol("n", integer=True, positive=True)
    fixing = [sympy.Eq(n, 4), sympy.Eq(FloorDiv(n, 4), 1)]
    free = [sympy.Eq(Mod(n, 4), 0), sympy.Eq(n * FloorDiv(n + 3, 4), FloorDiv(n, 2)), sympy.Ne(n, 4)]

    assert [Guard("", expression=one).fixes_size for one in (*fixing, *free)] == [True] * 2 + [False] * 3
