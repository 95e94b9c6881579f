"""Decisions by sizes that do nothing but pad: both ways are one, whatever the example's sizes are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rarer import first
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import TranslationError
from batch_export.exporter import export
from batch_export.exporter.capture.taken_pads import any_pad
from tests.exporting import assert_same

pytestmark = pytest.mark.sampled

_SIZES = [*itertools.product((1, 4, 5, 8), (2, 3, 12))]


class _Calls(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def to_multiples(x: torch.Tensor) -> torch.Tensor:
    """As patches of images are cut: by another number where nothing is missing."""
    height, width = x.shape[-2:]
    if width % 4 != 0:
        missing = (0, 4 - width % 4)
        x = F.pad(x, missing)
    if height % 4:
        x = F.pad(x, (0, 0, 0, 4 - height % 4))
    return x.unflatten(-1, (-1, 4)).sum(-2)


def to_patches(x: torch.Tensor) -> torch.Tensor:
    """By a number of one name in two places, each of which gives it anew, and which is a third one behind them."""
    height, width = x.shape[-2:]
    if width % 3 != 0:
        missing = (0, 3 - width % 3)
        x = F.pad(x, missing)
    if height % 4 != 0:
        missing = (0, 0, 0, 4 - height % 4)
        x = F.pad(x, missing)
    missing = (1, 1)
    return F.pad(x.unflatten(-1, (-1, 3)).sum(-2), missing)


def to_even_and_large(x: torch.Tensor) -> torch.Tensor:
    """By one element, and where either of two questions is answered by yes."""
    if x.shape[-1] % 2:
        x = F.pad(x, (0, 1))
    if x.shape[-2] % 2 == 1 or x.shape[-2] < 6:
        x = F.pad(x, (0, 0, 1, 2), value=3.0)
    return x[..., ::2] - x[..., 1::2].cumsum(-2)


def to_a_length(x: torch.Tensor) -> torch.Tensor:
    """As sounds are made as long as a model takes them, and back."""
    length = x.shape[-1]
    if length < 10:
        x = torch.nn.functional.pad(x, [0, 10 - length])
    return x.cumsum(-1)[..., :length]


def to_even(x: torch.Tensor) -> torch.Tensor:
    if x.size(2) % 2 == 1:
        x = F.pad(x, (0, 1))
    return x[..., ::2] - x[..., 1::2]


@pytest.mark.parametrize("function", first(2, [to_multiples, to_patches, to_even_and_large, to_a_length, to_even]))
@pytest.mark.parametrize("sizes", [pytest.param((8, 12), marks=pytest.mark.ops), (7, 9)])
def test_padding_is_right_at_sizes_that_decide_otherwise_than_the_example(
    function: Callable[[torch.Tensor], torch.Tensor], sizes: tuple[int, int]
) -> None:
    module = _Calls(function)
    program = export(module, (torch.rand(2, *sizes),), dynamic_shapes={"x": {1: "height", 2: "width"}})

    for height, width in _SIZES:
        x = torch.rand(2, height, width)
        assert_same(program(x), [module(x)])


class _Mask(torch.nn.Module):
    """Made as long as the other input, under another name than its own, by a number that is named where it is asked."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = mask
        if (missing := x.shape[1] - mask.shape[1]) > 0:
            made = F.pad(mask, (0, missing), value=2.0)
        return x + made[:, : x.shape[1]]


class _OtherMask(torch.nn.Module):
    """The name is of something else where nothing is missing."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = mask
        made = made * 3
        if (missing := x.shape[1] - mask.shape[1]) > 0:
            made = F.pad(mask, (0, missing), value=2.0)
        return x + made[:, : x.shape[1]]


@pytest.mark.parametrize("module", [_Mask(), _OtherMask()])
@pytest.mark.parametrize("sizes", [pytest.param((5, 9), marks=pytest.mark.ops), (9, 5)])
def test_padding_under_another_name_is_right_at_every_size(module: torch.nn.Module, sizes: tuple[int, int]) -> None:
    given = torch.rand(2, sizes[0]), torch.rand(2, sizes[1])
    program = export(module, given, dynamic_shapes={"x": {1: "n"}, "mask": {1: "m"}}, guards="error")

    for n, m in itertools.product((1, 2, 5, 9), (2, 5, 8, 9, 12)):
        x, mask = torch.rand(2, n), torch.rand(2, m)
        assert_same(program(x, mask), [module(x, mask)])


def written_to(x: torch.Tensor) -> torch.Tensor:
    """Where nothing is missing the write reaches the tensor that is returned beside."""
    y = x * 2
    z = y
    if z.shape[-1] < 10:
        z = F.pad(z, (0, 10 - z.shape[-1]))
    z.add_(1)
    return y + z.sum()


def first_element_cleared(x: torch.Tensor) -> torch.Tensor:
    """The other way round: the tensor that may have been padded is read after a write to what it was."""
    y = before = x * 2
    if y.shape[-1] < 10:
        y = F.pad(y, (0, 10 - y.shape[-1]))
    before[:, :1].fill_(0)
    return y


@pytest.mark.parametrize(("function", "width"), [(written_to, 12), (first_element_cleared, 7)])
def test_what_is_written_to_behind_is_captured_both_ways(
    function: Callable[[torch.Tensor], torch.Tensor], width: int
) -> None:
    """A padding at every size would be a copy where the model has none."""
    module = _Calls(function)
    program = export(module, (torch.rand(2, width),), dynamic_shapes={"x": {1: "width"}})
    for size in (1, 3, 7, 9, 10, 11, 20):
        x = torch.rand(2, size) - 0.5
        assert_same(program(x), [module(x)])


def made_positive_in_place(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is padded by nothing is the tensor itself, which is read again."""
    before = x * 2
    x = before
    if x.shape[-1] % 4:
        x = F.pad(x, (0, 4 - x.shape[-1] % 4))
    return F.relu(x, inplace=True), before


def test_a_write_to_what_is_not_padded_at_some_sizes_is_refused_with_the_padding() -> None:
    told = r"pad is a copy of mul, but .* where width has .*test_exporter_taken_pads\.py:\d+\).*clone\(\)"
    with pytest.raises(TranslationError, match=told):
        export(_Calls(made_positive_in_place), (torch.rand(2, 7),), dynamic_shapes={"x": {1: "width"}})


def own_way(x: torch.Tensor) -> torch.Tensor:
    """What is called so is a function of the model's, whose amount is no padding of torch's."""

    def pad(x: torch.Tensor, count: int) -> torch.Tensor:
        return torch.cat([x, x.new_ones(x.shape[0], count)], 1)

    if x.shape[-1] % 4:
        x = pad(x, 4 - x.shape[-1] % 4)
    return x


@pytest.mark.ops
def test_a_function_of_the_models_own_that_is_called_pad_is_captured_both_ways() -> None:
    program = export(_Calls(own_way), (torch.rand(2, 7),), dynamic_shapes={"x": {1: "width"}})
    for width in (1, 4, 5, 6, 7, 8, 12):
        x = torch.rand(2, width)
        torch.testing.assert_close(program(x)[0], own_way(x))


class Several(torch.nn.Module):
    """One line that pads tensors of a free width, of a known one, and by another tensor's."""

    def multiple(self, x: torch.Tensor, count: int) -> torch.Tensor:
        if count % 4 != 0:
            x = F.pad(x, (0, 4 - count % 4))
        return x

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        made = [self.multiple(one, one.shape[-1]) for one in (x, y)]
        for one in (x, y):
            if one.shape[-1] % 2:
                one = F.pad(one, (0, 1))
            made.append(one)
        return [*made, self.multiple(z, x.shape[-1])]


@pytest.mark.parametrize("width", [7, 8])
def test_each_time_that_a_line_pads_goes_by_what_it_asked_then(width: int) -> None:
    def inputs(rows: int, width: int) -> tuple[torch.Tensor, ...]:
        return torch.rand(rows, width), torch.rand(rows, 5), torch.rand(3, 2)

    module = Several()
    shapes = {"x": {0: "rows", 1: "width"}, "y": {0: "rows"}, "z": None}
    program = export(module, inputs(2, width), dynamic_shapes=shapes)

    for size in (1, 2, 4, 7, 8):
        given = inputs(3, size)
        assert_same(program(*given), module(*given))


def made_positive_alone(x: torch.Tensor) -> torch.Tensor:
    """Nothing else is read after the write."""
    y = x * 2
    if y.shape[-1] % 4:
        y = F.pad(y, (0, 4 - y.shape[-1] % 4))
    return F.relu(y - 1, inplace=True) + F.relu(y, inplace=True)


def test_a_write_that_nothing_else_shows_is_right_at_every_size() -> None:
    module = _Calls(made_positive_alone)
    program = export(module, (torch.rand(2, 7),), dynamic_shapes={"x": {1: "width"}})

    for width in (1, 3, 4, 8):
        x = torch.randn(2, width)
        assert_same(program(x), [module(x)])


@pytest.mark.parametrize(
    ("written", "is_pad"),
    [
        ("if w % 4: x = F.pad(x, (0, 4 - w % 4))", True),
        ("if h % 2 == 1 or w % 2 == 1: self.x = nn.functional.pad(self.x, (0, w % 2, 0, h % 2), value=1)", True),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    y = x + 1", True),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    y = x + p", False),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    p = 1\n    y = x + p", True),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    if h:\n        p = 1\n    y = x + p", False),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    if h:\n        p = 1\n        y = x + p", True),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    p = 1\n    y = lambda: x + p", False),
        ("if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))\n    p += 1", False),
        ("if w < 9:\n        x = pad(x, (0, p))\n        p = 9 - w", False),
        ("if h < 9:\n        h = 9 - w\n        x = pad(x, (0, 1))", False),
        ("if w < 9:\n        x = pad(x, (0, 9 - w))\n    x += 1", False),
        ("if w < 9:\n        x = pad(x, (0, 9 - w))\n    x[0] = 1", False),
        ("if w < 9:\n        x = pad(x, (0, 9 - w))\n    x.mul_(2)", False),
        ("if w < 9: x = pad(x, (0, 9 - w))\n    else: x = x + 1", False),
        ("if x.size(1) % 2: x = pad(x, (0, 4 - x.size(-1) % 4))", True),
        ("if w % 2 and h % 2: x = pad(x, (0, 1))", False),
        ("if w < 9: x = pad(y, (0, 9 - w))", False),
        ("x = y\n    if w < 9: x = pad(y, (0, 9 - w))", True),
        ("x = y\n    if w < 9: x = pad(y, (0, 9 - w))\n    y[0] = 1", False),
        ("if (p := 9 - w) > 0: x = pad(x, (0, p))", True),
        ("if (p := 9 - w): x = pad(x, (0, p))", True),
        ("if (p := missing(w)) > 0: x = pad(x, (0, p))", True),
        ("if h > 0 and (p := 9 - w): x = pad(x, (0, p))", False),
        ("if w < 9: x = pad(x, (0, missing(w)))", False),
        ("if is_odd(w): x = pad(x, (0, 1))", False),
        ("if w % 4: w = w + 1", False),
    ],
)
def test_lines_that_do_nothing_but_pad(tmp_path: Path, written: str, *, is_pad: bool) -> None:
    file = tmp_path / "lines.py"
    file.write_text(f"def forward(self, x, y, h, w):\n    {written}\n")

    assert any_pad([f"{file}:{2 + written.startswith('x = ')}"]) is is_pad


def test_a_number_given_before_a_padding_is_another_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "lines.py"
    pads = "if w < 9:\n        p = 9 - w\n        x = pad(x, (0, p))"
    file.write_text(f"def forward(self, x, w):\n    p = 1\n    {pads}\n    return x + p\n")

    assert not any_pad([f"{file}:3"])
