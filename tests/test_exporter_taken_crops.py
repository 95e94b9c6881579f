"""Decisions by sizes that do nothing but crop: both ways are one, whatever the example's sizes are."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

from batch_export.errors import ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture.taken_crops import any_crop
from tests.exporting import assert_same

_AXES = {"x": {1: "height", 2: "width"}}
_SIZES = [*itertools.product((2, 3, 5, 8), repeat=2)]


class _Table(nn.Module):
    """A square table of positions, as long as the longer side of an image, cropped to it."""

    def table(self, side: int) -> torch.Tensor:
        along = torch.arange(side, dtype=torch.float32)
        return along[:, None] * 10 + along


class _Rows(_Table):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = self.table(max(x.shape[1], x.shape[2]))
        if x.shape[1] < table.shape[0]:
            table = table[: x.shape[1]]
        if table.shape[1] > x.shape[2]:
            table = table[:, : x.shape[2]]
        return x + table


class _FromTheEnd(_Table):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sides = x.shape[1:]
        table = self.table(max(sides))[None]
        if sides[0] < table.shape[-2]:
            table = table[..., : sides[0], :]
        if sides[1] != table.shape[-1]:
            table = table[..., : sides[1]]
        return x + table


class _Others(_Table):
    """No crops alone: another way beside them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = self.table(max(x.shape[1], x.shape[2]))
        if x.shape[1] < table.shape[0]:
            table = table[-x.shape[1] :]
        if x.shape[2] < table.shape[1]:
            table = table[:, : x.shape[2]]
        else:
            assert table.ndim == 2
            table = table + 1
        return x + table


class _LastOnes(nn.Module):
    """The last four elements of an axis, of which the example has more, and the first three of these."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 4:
            x = x[:, -4:]
        return 2 * (x if x.shape[1] <= 3 else x[:, :3])


def test_a_crop_to_a_number_is_no_limit(recwarn: pytest.WarningsRecorder) -> None:
    program = export(_LastOnes(), (torch.rand(2, 6),), dynamic_shapes={"x": {1: "length"}})

    assert not [one for one in recwarn if "the file holds only while" in str(one.message)]
    for length in (1, 3, 4, 9):
        x = torch.rand(2, length)
        assert_same(program(x), [_LastOnes()(x)])


@pytest.mark.parametrize("module", [_Rows(), _FromTheEnd()])
def test_a_crop_is_right_at_sizes_that_decide_otherwise_than_the_example(module: nn.Module) -> None:
    program = export(module, (torch.rand(2, 4, 4),), dynamic_shapes=_AXES)

    for height, width in _SIZES:
        x = torch.rand(2, height, width)
        assert_same(program(x), [module(x)])


@pytest.mark.ops
def test_what_is_more_than_a_crop_is_a_limit_with_its_line() -> None:
    with pytest.warns(
        ExportWarning, match=r"only while `height == max\(height, width\)` \(at .*test_exporter_taken_crops\.py:\d+\)"
    ):
        program = export(_Others(), (torch.rand(2, 4, 4),), dynamic_shapes=_AXES)

    for height, width in _SIZES:
        if height >= width:
            x = torch.rand(2, height, width)
            assert_same(program(x), [_Others()(x)])


@pytest.mark.parametrize(
    ("written", "is_crop"),
    [
        ("if n < x.shape[0]: x = x[:n]", True),
        ("if self.n <= self.x.size(1): self.x = self.x[:, : self.n, ...]", True),
        ("if n < x.shape[0]: x = x[-n:]", True),
        ("y = x if x.shape[0] <= 8 else x[:8]", True),
        ("y = x[..., -8:] if 8 < x.shape[-1] else x", True),
        ("if x.size(0) < y.size(0): y = y[: x.size(0)]", True),
        ("y = x if x.shape[0] <= 8 else z[:8]", False),
        ("if n < x.shape[0]: x = x[n:]", False),
        ("if n < x.shape[0]: y = x[:n]", False),
        ("if n < x.shape[0]: x = x[1:n]", False),
        ("if n < x.shape[0]: x = x[0, :n]", False),
        ("if n < x.shape[0]: x = x[: next(n)]", False),
        ("if 0 < n < x.shape[0]: x = x[:n]", False),
    ],
)
def test_lines_that_do_nothing_but_crop(tmp_path: Path, written: str, *, is_crop: bool) -> None:
    file = tmp_path / "lines.py"
    file.write_text(written + "\n")

    assert any_crop([f"{file}:1"]) is is_crop
