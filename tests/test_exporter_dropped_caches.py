"""Caches outside of a model: after an export, and between its parts, they hold no tensors of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from batch_export.exporter import export
from tests.exporting import assert_same


@functools.lru_cache(maxsize=8)
def kept(rows: int, columns: int) -> torch.Tensor:
    return torch.arange(rows)[:, None] * 10 + torch.arange(columns)


def _remembering() -> Callable[[int, int], torch.Tensor]:
    inner = functools.cache(kept.__wrapped__)

    @functools.wraps(kept)
    def wrapper(rows: int, columns: int) -> torch.Tensor:
        return inner(rows, columns)

    return wrapper


wrapped = _remembering()
_TABLES: dict[tuple[int, int], torch.Tensor] = {(0, 0): torch.zeros(0, 0)}


class Tables:
    """A class with a cache of its own."""

    made: dict[tuple[int, int], tuple[torch.Tensor]] = {}

    @classmethod
    def of(cls, rows: int, columns: int) -> torch.Tensor:
        if (rows, columns) not in cls.made:
            cls.made[rows, columns] = (kept.__wrapped__(rows, columns),)
        return cls.made[rows, columns][0]


def in_a_dict(rows: int, columns: int) -> torch.Tensor:
    if (rows, columns) not in _TABLES:
        _TABLES[rows, columns] = kept.__wrapped__(rows, columns)
    return _TABLES[rows, columns]


class _Kept(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + kept(x.shape[1], x.shape[2])


class _Wrapped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + wrapped(x.shape[1], x.shape[2])


class _Method(nn.Module):
    @functools.lru_cache  # noqa: B019  (what is tested)
    def table(self, rows: int, columns: int) -> torch.Tensor:
        return kept.__wrapped__(rows, columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table(x.shape[1], x.shape[2])


class _InADict(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + in_a_dict(x.shape[1], x.shape[2])


class _InAClass(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + Tables.of(x.shape[1], x.shape[2])


@pytest.mark.parametrize("kind", [_Kept, _Wrapped, _Method, _InADict, _InAClass])
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_model_with_a_cache_runs_as_before_its_export(kind: type[nn.Module], *, is_warm: bool) -> None:
    kept.cache_clear()
    Tables.made.clear()
    module, x = kind(), torch.rand(1, 3, 4)
    if is_warm:
        module(x)

    program = export(module, (x,), verify=True)

    assert type(module(x)) is torch.Tensor
    assert_same(program(x), [module(x)])
    assert (0, 0) in _TABLES


@pytest.mark.parametrize("kind", [_Kept, _Wrapped])
def test_trials_at_other_sizes_leave_nothing_in_a_cache(kind: type[nn.Module]) -> None:
    kept.cache_clear()
    module = kind()
    program = export(module, (torch.rand(1, 4, 4),), dynamic_shapes={"x": {1: "rows", 2: "columns"}}, verify=True)

    for side in range(2, 14):
        x = torch.rand(1, side, side + 1)
        assert type(module(x)) is torch.Tensor
        assert_same(program(x), [module(x)])


def test_a_cache_of_something_else_keeps_it() -> None:
    made = object()

    @functools.cache
    def only(_rows: int) -> object:
        return made

    class Asking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if only(int(x.shape[0])) is made else x

    export(Asking(), (torch.rand(2),))

    assert only.cache_info().currsize == 1
