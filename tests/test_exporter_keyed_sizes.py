"""Free sizes as keys of dicts and members of sets: caches by size, and what a number beside such a key means."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import export_and_compare

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
SHAPES = ({0: "b", 1: "n"},)
EXAMPLE = (torch.randn(2, 5, 4),)
OTHERS = [(torch.randn(b, n, 4),) for b, n in ((3, 7), (1, 3), (1, 1), (5, 5), (2, 9))]
_OF_A_MODULE: dict[Any, Tensor] = {}


class _Cached(torch.nn.Module):
    """A model with a cache, looked up as its forms do."""

    def __init__(self, form: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.form = form
        self.cache: dict[Any, Any] = {}

    def forward(self, x: Tensor) -> Any:
        return self.form(self.cache, x)


def _table(n: Any) -> Tensor:
    return torch.arange(n).float()[:, None] / 10


def _asked_first(cache: Any, x: Tensor) -> Any:
    n = x.shape[1]
    if n not in cache:
        cache[n] = _table(n)
    return x + cache[n]


def _got(cache: Any, x: Tensor) -> Any:
    n = x.size(1)
    found = cache.get(n)
    if found is None:
        found = cache[n] = _table(n)
    return x + found


def _tried(cache: Any, x: Tensor) -> Any:
    n = x.shape[1]
    try:
        found = cache[n]
    except KeyError:
        found = _table(n)
        cache[n] = found
    return x + found


def _of_two(cache: Any, x: Tensor) -> Any:
    key = (x.shape[0], x.shape[1], x.device, None)
    if key in cache:
        return x + cache[key]
    cache[key] = _table(x.shape[0] * x.shape[1]).view(x.shape[0], x.shape[1], 1)
    return x + cache[key]


def _set_by_default(_: Any, x: Tensor) -> Any:
    kept: dict[Any, list[Tensor]] = {}
    several = kept.setdefault(x.shape[1], [])
    several.append(x)
    kept.setdefault(x.shape[1], []).append(x * 2)
    return torch.cat(kept[x.shape[1]]), x * len(several)


def _of_the_module(_: Any, x: Tensor) -> Any:
    n = x.shape[1]
    if n + 1 not in _OF_A_MODULE:
        _OF_A_MODULE[n + 1] = _table(n)
    return x + _OF_A_MODULE[n + 1]


def _one_of_some(_: Any, x: Tensor) -> Any:
    if x.shape[1] in {3, 7}:
        return x * 2
    return x + 1


@pytest.mark.parametrize(
    "form",
    [_asked_first, _got, _tried, _of_two, _set_by_default, _of_the_module, _one_of_some],
    ids=lambda one: one.__name__,
)
def test_what_is_kept_by_size_is_found_by_size(form: Callable[[Any, Tensor], Any]) -> None:
    module = _Cached(form)
    export_and_compare(module, EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)
    fresh = _Cached(form)
    _OF_A_MODULE.clear()
    export(fresh, EXAMPLE, dynamic_shapes=SHAPES)
    assert not fresh.cache
    assert all(type(one) is int for one in _OF_A_MODULE), "of runs of the model beside the capture"


def _stored_later(x: Tensor) -> Any:
    kept = {}
    kept[x.shape[1]] = x * 1
    kept[7] = x * 2
    return kept[x.shape[1]]


def _got_by_number(x: Tensor) -> Any:
    kept = {}
    kept[x.shape[1]] = 3.0
    return x * kept.get(7, 1.0)


def _counted(x: Tensor) -> Any:
    counts: dict[Any, int] = defaultdict(int)
    for size in x.shape:
        counts[size] += 1
    return x * max(counts.values())


def _by_table(x: Tensor) -> Any:
    return x * {3: 2.0, 7: 5.0}.get(x.shape[1], 1.0)


def _of_two_sizes(x: Tensor) -> Any:
    seen = set()
    for size in x.shape[:2]:
        seen.add(size)
    return x * len(seen)


def _of_made_sets(x: Tensor) -> Any:
    return x * len({x.shape[0]: 1, x.shape[1]: 2}), x * len(set(x.shape))


class _Called(torch.nn.Module):
    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Any:
        return self.form(x)


@pytest.mark.parametrize(
    "form",
    [_stored_later, _got_by_number, _counted, _by_table, _of_two_sizes, _of_made_sets],
    ids=lambda one: one.__name__,
)
def test_a_size_that_may_be_another_key_is_refused(form: Callable[[Tensor], Any]) -> None:
    with pytest.raises((CaptureError, DynamicShapeError), match=r"n=7|axis [01]"):
        export(_Called(form), EXAMPLE, dynamic_shapes=SHAPES)


def _masked(cache: Any, x: Tensor) -> Any:
    n = x.shape[1]
    if n not in cache:
        cache[n] = torch.full((n, n), float("-inf")).triu(1)
    return (x @ x.transpose(1, 2) + cache[n]).softmax(-1) @ x


def test_a_mask_that_a_run_before_has_kept_is_what_the_program_makes() -> None:
    module = _Cached(_masked)
    module(*EXAMPLE)
    export_and_compare(module, EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


def test_what_a_cache_has_of_a_run_before_is_not_taken_for_other_sizes() -> None:
    module = _Cached(_asked_first)
    module(torch.randn(2, 7, 4))
    export_and_compare(module, EXAMPLE, *OTHERS, (torch.randn(2, 7, 4),), dynamic_shapes=SHAPES)
    module.cache = {7: torch.ones(7, 1)}
    with pytest.raises(DynamicShapeError, match="axis 1"):
        export(module, EXAMPLE, dynamic_shapes=SHAPES)
    module.cache = {5: torch.ones(5, 1)}
    with pytest.raises(DynamicShapeError, match="axis 1"):
        export(module, EXAMPLE, dynamic_shapes=SHAPES)


@functools.lru_cache(maxsize=8)
def _steps(n: int) -> Tensor:
    return torch.linspace(0, 1, n)[:, None]


@functools.cache
def _window(n: int, scale: float = 1.0) -> Tensor:
    return torch.hann_window(n)[:, None] * scale


class _Remembering(torch.nn.Module):
    """Tables by size, remembered by functions in three places."""

    @staticmethod
    @functools.lru_cache
    def powers(n: int) -> Tensor:
        return torch.logspace(0, 1, n)[:, None]

    @functools.lru_cache  # noqa: B019  (what is tested)
    def decided(self, n: int) -> Tensor:
        return torch.arange(n).float()[:, None] / max(n - 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, n = x.shape[:2]
        return x * _steps(n) + _window(n, scale=0.5) + self.powers(n) + self.decided(n) + _steps(b)[:1]


@pytest.mark.parametrize("before", [(), (5,), (5, 7)], ids=str)
def test_what_functions_remember_by_size_is_made_at_every_size(before: tuple[int, ...]) -> None:
    for one in (_steps, _window, _Remembering.powers, _Remembering.decided):
        one.cache_clear()
    module = _Remembering()
    for n in before:
        module(torch.randn(2, n, 4))
    export_and_compare(module, EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)
    x = torch.randn(4, 6, 4)
    assert type(module(x)) is Tensor
