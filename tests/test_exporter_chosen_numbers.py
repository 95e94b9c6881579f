"""Decisions by sizes that do nothing but choose numbers: both ways are one, whatever the example's sizes are."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from rarer import first
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export
from batch_export.exporter.capture.chosen_numbers import any_choice
from tests.exporting import assert_same, export_and_compare

pytestmark = pytest.mark.sampled


def missing(size: int, window: int, step: int) -> int:
    """As TensorFlow pads ("same")."""
    if size % step == 0:
        count, kept = max(window - step, 0), 0
    else:
        count, kept = max(window - size % step, 0), 0
    return count + kept


class Padded(torch.nn.Module):
    """Numbers by a function, by an expression, and by a name that has one already."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = missing(x.shape[1], 3, 2)
        x = F.avg_pool1d(F.pad(x, (count // 2, count - count // 2)), 3, 2)
        more = 4 - x.shape[1] % 4 if x.shape[1] % 4 else 0
        rest = 0
        if x.shape[1] < 3:
            rest = 4
        return F.pad(x, (0, more + rest)).unflatten(1, (-1, 4)).sum(1)


class Windowed(torch.nn.Module):
    """The last ones of a text, as many as there are positions, and numbers of three ways."""

    positions: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.longest = 6
        self.register_buffer("positions", torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        length = self.longest if size > self.longest else size
        first = 0 if size <= self.longest else size - self.longest
        if size < 4:
            level, other = 1, size
        elif size < 8:
            level, other = 2, 0
        else:
            level, other = 3, first
        return (x[:, first:] + self.positions[:length]) * level - other


class Named(torch.nn.Module):
    """Numbers that have their names where they are asked for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (rest := x.shape[1] % 3):
            count = 2
        elif (half := x.shape[1] // 2) > 4:
            count = half
        else:
            count = rest
        more = 1
        if (parts := x.shape[1] // 4) >= 2:
            more = parts * 2
        return x * count + more - parts


@pytest.mark.parametrize("module", [Padded(), Windowed(), Named()])
@pytest.mark.parametrize("size", first(1, [5, 8]))
def test_numbers_are_right_at_sizes_that_decide_otherwise_than_the_example(module: torch.nn.Module, size: int) -> None:
    program = export(module, (torch.rand(2, size),), dynamic_shapes={"x": {1: "n"}})

    for other in (1, 2, 3, 4, 5, 6, 7, 8, 13, 16):
        x = torch.rand(2, other)
        assert_same(program(x), [module(x)])


class Counted(torch.nn.Module):
    """Python itself counts with the number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for place in range(3 if x.shape[1] > 6 else 2):
            x = x * place + x
        return x if x.shape[1] > 6 else x.double()


@pytest.mark.ops
def test_a_number_that_python_counts_with_is_refused_with_its_line() -> None:
    with pytest.raises(DynamicShapeError, match=r"holds only while.*\(at .*test_exporter_chosen_numbers\.py:\d+\)"):
        export(Counted(), (torch.rand(2, 8),), dynamic_shapes={"x": {1: "n"}})


class Shared(torch.nn.Module):
    """A quotient that is no number where there is nothing to divide by: only the model does not work it out there."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        each = x.shape[0] // y.shape[0] if y.shape[0] > 0 else 1
        return x[:each] * 2


def test_a_number_that_some_sizes_do_not_have_is_worked_out_where_they_do() -> None:
    shapes = {"x": {0: "rows"}, "y": {0: "parts"}}
    others = [(torch.randn(rows, 2), torch.randn(parts, 2)) for rows, parts in ((9, 2), (1, 3), (5, 0), (0, 4))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export_and_compare(Shared(), (torch.randn(6, 2), torch.randn(3, 2)), *others, dynamic_shapes=shapes)


@pytest.mark.parametrize(
    ("written", "is_choice"),
    [
        ("y = 8 - n % 8 if n % 8 else 0", True),
        ("if n > 3: y = n", True),
        ("if n > 3 or h > 3: y = n\nelse: y = max(h, 2)", True),
        ("if n > 3:\n    y = n\n    z = h\nelse:\n    y, z = h, n", True),
        ("if n > 3:\n    y = n\n    z = y", False),
        ("if x.size(1) % 4: y = 4 - x.size(1) % 4", True),
        ("if x.item(1) % 4: y = 4", False),
        ("if n > 3: y = next(n)", False),
        ("if n > 3: y += 1", True),
        ("if n > 3: y[0] = 1", False),
        ("if n > 3 and h > 3: y = n", True),
        ("if not (n > 3 or h > 3): y = n\nelse: y = h", True),
        ("y = n if 3 < n < h else 0", True),
        ("if (n > 3 and h > 3) or w > 3: y = n", False),
        ("if (n > 3 or h > 3) and not w: y = n", False),
        ("if not (n > 3 or h > 3) and w: y = n", True),
        ("if is_odd(n): y = n", False),
        ("if (k := is_odd(n)) > 3: y = k", True),
        ("if not (k := n % 3): y = h", True),
        ("if h > (k := n % 3): y = k", False),
        ("if h and (k := n % 3): y = k", False),
        ("y = x[:3] if n > 3 else x", True),
    ],
)
def test_lines_that_do_nothing_but_choose_numbers(tmp_path: Path, written: str, *, is_choice: bool) -> None:
    file = tmp_path / "lines.py"
    file.write_text(written + "\n")

    assert any_choice([f"{file}:1"]) is is_choice


class Deep(torch.nn.Module):
    """Five layers that pad as TensorFlow does, each by the length that the one before it leaves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            size = x.shape[1]
            count = max(3 - 2, 0) if size % 2 == 0 else max(3 - size % 2, 0)
            x = F.max_pool1d(F.pad(x, (count // 2, count - count // 2)), 3, 2)
        return x


def test_layers_that_pad_as_tensorflow_does_keep_their_lengths_short() -> None:
    """A choice that is written out has the length before it four times: five layers took minutes."""
    program = export(Deep(), (torch.randn(2, 64),), dynamic_shapes=({0: "b", 1: "n"},))
    (length,) = [
        one for one in program.captured.traced.graph.find_nodes(op="output")[0].args[0][0].meta["val"].shape[1:]
    ]
    assert len(str(length.node.expr)) < 1000
    for size in (1, 2, 31, 33, 64, 65, 100, 127):
        x = torch.randn(3, size)
        assert_same(program(x), [Deep()(x)])
