"""Decisions by sizes that do nothing but resize: both ways are in the file, whatever the example's sizes are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rarer import first
from torch.nn import functional as F  # noqa: N812
from torch.nn.functional import interpolate

from batch_export.errors import TranslationError
from batch_export.exporter import export
from batch_export.exporter.capture.taken_resizes import any_resize
from tests.exporting import assert_same

pytestmark = pytest.mark.sampled

_SIZES = ((6, 8), (12, 10), (6, 10), (7, 7), (1, 1))
_NAMED = ({0: "batch", 2: "h", 3: "w"}, {0: "batch", 2: "p", 3: "q"})


class _Calls(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)


def to_the_others(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[2:] != y.shape[2:]:
        x = F.interpolate(x, size=y.shape[2:], mode="bilinear", align_corners=False)
    return x + y


def _matched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[-2:] == y.shape[-2:]:
        return x
    return interpolate(x, y.size()[-2:], mode="nearest")


def by_a_function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each to the other's, by one line."""
    return torch.cat([_matched(x, y), y], 1), _matched(y, x) * x


def by_an_expression(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    h, w = y.shape[-2:]
    made = x if (x.shape[2], x.shape[3]) == (h, w) else F.interpolate(x, size=(h, w), mode="bicubic")
    return made * y


def by_two_questions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if not (x.shape[2] != y.shape[2] or x.shape[3] != y.shape[3]):
        made = x
    else:
        made = F.interpolate(input=x, size=list(y.shape[-2:]), mode="nearest-exact")
    return made * y


def of_lengths(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.flatten(2), y.flatten(2)
    if x.size(-1) != y.size(-1):
        x = F.interpolate(x, size=y.size(-1), mode="linear")
    return x + y


_FUNCTIONS = [to_the_others, by_a_function, by_an_expression, by_two_questions, of_lengths]


@pytest.mark.parametrize("function", first(2, _FUNCTIONS))
@pytest.mark.parametrize("sizes", [((6, 8), (6, 8)), pytest.param(((6, 8), (12, 10)), marks=pytest.mark.ops)])
def test_it_is_resized_where_sizes_differ(function: Any, sizes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    module = _Calls(function)
    given = tuple(torch.rand(2, 1, *size) for size in sizes)
    program = export(module, given, dynamic_shapes=_NAMED)

    for one, other in itertools.product(_SIZES, _SIZES):
        x, y = torch.rand(3, 1, *one) - 0.5, torch.rand(3, 1, *other)
        if one == other:
            x[0, 0, 0, 0] = float("inf")  # beside which a resized tensor has NaN
        expected = module(x, y)
        assert_same(program(x, y), list(expected) if isinstance(expected, tuple) else [expected])


class Levels(torch.nn.Module):
    """Halves three times and doubles as often, which gives the sizes before only where 8 divides them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.ModuleList(torch.nn.Conv2d(1 if i == 0 else 2, 2, 3, padding=1) for i in range(4))
        self.up = torch.nn.ModuleList(torch.nn.Conv2d(4, 2, 3, padding=1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for at, layer in enumerate(self.down):
            x = layer(x).relu()
            if at < 3:
                kept.append(x)
                x = F.max_pool2d(x, 2)
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2)
            before = kept.pop()
            if x.shape != before.shape:
                x = F.interpolate(x, size=before.shape[2:], mode="bilinear", align_corners=True)
            x = layer(torch.cat([x, before], 1))
        return x


@pytest.mark.parametrize("sizes", [(16, 24), pytest.param((17, 22), marks=pytest.mark.ops)])
def test_levels_of_a_network_whose_sizes_need_not_divide(
    sizes: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    module = Levels()
    program = export(module, (torch.rand(1, 1, *sizes),), dynamic_shapes=({0: "batch", 2: "h", 3: "w"},))
    assert "def forward" not in capfd.readouterr().err

    for h, w in ((8, 8), (9, 11), (16, 24), (17, 25), (15, 14), (10, 16), (31, 33)):
        x = torch.rand(2, 1, h, w)
        assert_same(program(x), [module(x).detach()])


def by_height_alone(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[2] != y.shape[2]:
        x = F.interpolate(x, size=y.shape[2:])
    return x.sum((2, 3)) + y.sum((2, 3))


def test_what_is_not_compared_may_differ() -> None:
    module = _Calls(by_height_alone)
    program = export(module, (torch.rand(2, 1, 6, 8), torch.rand(2, 1, 4, 5)), dynamic_shapes=_NAMED)
    for one, other in itertools.product(_SIZES, _SIZES):
        given = torch.rand(2, 1, *one), torch.rand(2, 1, *other)
        assert_same(program(*given), [module(*given)])


def written_behind(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What is not resized is the tensor itself, which is read again."""
    before = x * 2
    x = before
    if x.shape[2:] != y.shape[2:]:
        x = F.interpolate(x, size=y.shape[2:])
    x += y
    return x.sum((2, 3)) + before.sum((2, 3))


def test_a_write_behind_it_is_refused_where_both_are_read() -> None:
    given = torch.rand(2, 1, 6, 8), torch.rand(2, 1, 4, 5)
    told = r"is a copy of mul, but .* where .*test_exporter_taken_resizes\.py:\d+\).*clone\(\)"
    with pytest.raises(TranslationError, match=told):
        export(_Calls(written_behind), given, dynamic_shapes=_NAMED)


def own_way(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What is called so is a function of the model's."""

    def interpolate(x: torch.Tensor, size: torch.Size) -> torch.Tensor:
        return F.adaptive_avg_pool2d(x, list(size)) + 1

    if x.shape[2:] != y.shape[2:]:
        x = interpolate(x, size=y.shape[2:])
    return x + y


@pytest.mark.ops
def test_a_function_of_the_models_own_of_that_name_is_captured_both_ways() -> None:
    module = _Calls(own_way)
    program = export(module, (torch.rand(2, 1, 6, 8), torch.rand(2, 1, 6, 8)), dynamic_shapes=_NAMED)
    for one, other in itertools.product(_SIZES[:2], _SIZES[:2]):
        given = torch.rand(2, 1, *one), torch.rand(2, 1, *other)
        assert_same(program(*given), [module(*given)])


def test_places_that_ask_for_other_sizes_are_found(tmp_path: Any) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "if x.shape != y.shape:\n    x = F.interpolate(x, size=y.shape[2:])\nif x.shape != y.shape:\n    x = 1\n"
    )
    assert any_resize([f"{file}:1"])
    assert not any_resize([f"{file}:3", f"{file}:9", "nowhere:1", ""])
