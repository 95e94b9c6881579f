"""Padding in front of a pool: numbers below the padding, pads as wide as the kernel, as onnxruntime optimises them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from batch_export import export
from batch_export.errors import ExportWarning
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled

MODELS: dict[str, Callable[[Tensor], Tensor]] = {
    "maximum": lambda x: functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 2),
    "one side": lambda x: functional.max_pool2d(functional.pad(x, (0, 1, 0, 1)), 3, 2),
    "pads of its own": lambda x: functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, 2, padding=1),
    "as wide as the kernel": lambda x: functional.max_pool2d(functional.pad(x, (3, 3, 3, 3)), 3, 2),
    "one axis": lambda x: functional.max_pool1d(functional.pad(x[0], (2, 2)), 2),
    "average": lambda x: functional.avg_pool2d(functional.pad(x, (3, 3, 3, 3)), 3, 2),
    "without the padding": lambda x: functional.avg_pool2d(
        functional.pad(x, (1, 1, 1, 1)), 3, 2, padding=1, count_include_pad=False
    ),
    "of infinity": lambda x: functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=float("-inf")), 3, 2),
    "used twice": lambda x: (padded := functional.pad(x, (1, 1, 1, 1))).sum() + functional.max_pool2d(padded, 2),
}


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("opset", [11, 17, 18, 23])
@pytest.mark.parametrize("name", MODELS)
def test_padding_is_not_taken_into_the_pool(name: str, opset: int) -> None:
    x = -torch.rand(1, 3, 9, 10) - 1
    model = Calls(MODELS[name])
    found = torch.as_tensor(export(model, (x,), opset_version=opset)(x)[0])
    torch.testing.assert_close(found, model(x))


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("divisor", [None, 2])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 1), (3, 3, 1), (4, 3, 2), (2, 3, 0), (3, 5, 1)])
def test_means_of_overhanging_windows_over_free_sizes(
    kernel: int, stride: int, padding: int, divisor: int | None, count_include_pad: bool
) -> None:
    pool = torch.nn.AvgPool2d(kernel, stride, padding, True, count_include_pad, divisor)
    inputs = [(torch.randn(2, 2, *sizes),) for sizes in ((6, 7), (4, 5), (8, 9), (10, 11), (5, 13))]
    export_and_compare(pool, *inputs, dynamic_shapes=({2: "height", 3: "width"},))


OVERHANGING: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "maxima of pictures": (lambda x: functional.max_pool2d(x, 2, 3, ceil_mode=True), 2),
    "maxima of rows": (lambda x: functional.max_pool1d(x, 3, 2, 1, ceil_mode=True), 1),
    "maxima of volumes": (lambda x: functional.max_pool3d(x, 1, 2, ceil_mode=True), 3),
    "means of rows": (lambda x: functional.avg_pool1d(x, 4, 3, 2, ceil_mode=True), 1),
    "means of pictures": (lambda x: functional.avg_pool2d(x, 2, 3, ceil_mode=True), 2),
    "norms": (lambda x: functional.lp_pool2d(x.abs(), 2, 2, 3, ceil_mode=True), 2),
}


@pytest.mark.parametrize("name", OVERHANGING)
def test_windows_that_overhang_at_some_sizes_take_no_size_away(name: str) -> None:
    pool, axes = OVERHANGING[name]
    inputs = [(torch.randn(2, 2, *sizes[:axes]),) for sizes in ((9, 10, 6), (4, 6, 5), (7, 8, 9), (11, 9, 4))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_and_compare(Calls(pool), *inputs, dynamic_shapes=({2 + axis: "hwd"[axis] for axis in range(axes)},))
