"""Cache objects of transformers as inputs and outputs, without a wrapper class."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from batch_export import export
from batch_export.calling import caches

library: Any = pytest.importorskip("transformers.cache_utils")

KEYS = torch.arange(2 * 2 * 3 * 4, dtype=torch.float32).reshape(2, 2, 3, 4)


class Step(torch.nn.Module):
    """What a decoder does with its cache."""

    def forward(self, x: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        keys, values = cache.update(x, 2 * x, 0)
        return (keys * values).sum(-1) + cache.get_seq_length(), cache


def _filled(cache: Any, length: int = 3) -> Any:
    cache.update(KEYS[:, :, :1].repeat(1, 1, length, 1), KEYS[:, :, :1].repeat(1, 1, length, 1), 0)
    return cache


def _windowed(length: int) -> Any:
    return _filled(library.Cache(layers=[library.DynamicSlidingWindowLayer(sliding_window=4)]), length)


def _static() -> Any:
    return _filled(library.Cache(layers=[library.StaticLayer(max_cache_len=8)]))


def _compared(model: torch.nn.Module, *args: Any, **options: Any) -> Any:
    program = export(model, copy.deepcopy(args), **options)
    expected = [one for one in pytree.tree_leaves(model(*copy.deepcopy(args))) if isinstance(one, torch.Tensor)]
    for one, other in zip(program(*copy.deepcopy(args)), expected, strict=False):
        torch.testing.assert_close(one, other)
    return program


def test_a_dynamic_cache_in_and_out_with_a_free_length() -> None:
    past = {0: "batch", 2: "past"}
    x, cache = KEYS[:, :, :2], _filled(library.DynamicCache())
    program = _compared(Step(), x, cache, dynamic_shapes=({0: "batch", 2: "new"}, [[past], [past]]))
    assert [value.name for value in program.model.graph.inputs] == ["x", "cache_key_cache_0", "cache_value_cache_0"]
    assert [len(value.shape) for value in program.model.graph.outputs] == [3, 4, 4]
    other = _filled(library.DynamicCache(), 5)
    torch.testing.assert_close(program(KEYS[:, :, :1], copy.deepcopy(other))[0], Step()(KEYS[:, :, :1], other)[0])


@pytest.mark.parametrize("length", [2, 9])
def test_a_window_survives_also_when_it_is_full(length: int) -> None:
    program = _compared(Step(), KEYS[:, :, :1], _windowed(length))
    assert program.model.graph.inputs[1].shape[2] == min(length, 3)


def test_a_static_cache_is_changed_in_place() -> None:
    program = _compared(Step(), KEYS[:, :, :2], _static(), mutations="drop")
    assert [value.name for value in program.model.graph.inputs][1:] == [
        "cache_0_keys",
        "cache_0_values",
        "cache_0_cumulative_length",
    ]
    names = [value.name for value in export(Step(), (KEYS[:, :, :2], _static())).model.graph.outputs]
    assert "cache_0_keys_mutated" in names


def test_a_pair_of_caches() -> None:
    class Cross(torch.nn.Module):
        def forward(self, x: torch.Tensor, cache: Any) -> Any:
            keys, _ = cache.self_attention_cache.update(x, x, 0)
            return keys.sum() + cache.cross_attention_cache.layers[0].values.sum() * cache.is_updated[0], cache

    pair = library.EncoderDecoderCache(_filled(library.DynamicCache()), _filled(library.DynamicCache(), 4))
    program = _compared(Cross(), KEYS[:, :, :1], pair)
    assert [value.name for value in program.model.graph.inputs][-1] == "cache_cross_attention_cache_value_cache_0"


def test_types_windows_and_counts_come_back() -> None:
    caches.register()
    for cache in (_windowed(9), _static(), _filled(library.DynamicCache())):
        leaves, tree = pytree.tree_flatten(cache)
        again = pytree.tree_unflatten(leaves, tree)
        assert type(again) is type(cache)
        assert [type(layer) for layer in again.layers] == [type(layer) for layer in cache.layers]
        assert int(again.get_seq_length()) == int(cache.get_seq_length())
        assert again.get_max_length() == cache.get_max_length()
        assert pytree.treespec_loads(pytree.treespec_dumps(tree)) == tree


def test_a_registration_of_the_users_own_stays() -> None:
    class Mine(library.DynamicCache):  # type: ignore[misc, name-defined]
        pass

    def flatten(cache: Any) -> Any:
        return [cache.layers[0].keys], None

    pytree.register_pytree_node(Mine, flatten, lambda children, _: children, serialized_type_name="mine")
    caches.register()
    assert len(pytree.tree_leaves(_filled(Mine()))) == 1


def test_inputs_by_name_may_be_given_in_any_order() -> None:
    """`input_names` go by the call, beside a cache of several tensors too, and axes by the names."""

    class Beside(torch.nn.Module):
        def forward(self, ids: torch.Tensor, past: Any = None, mask: Any = None) -> tuple[torch.Tensor, ...]:
            return ids * 2, past.layers[0].keys - past.layers[0].values, mask + 1

    model, past = Beside(), library.DynamicCache([(KEYS, KEYS * 3)])
    given = {"ids": torch.randn(2, 3), "mask": torch.randn(2, 7), "past": past}
    axes = {"ids": {0: "b", 1: "s"}, "mask": {0: "b", 1: "t"}, "k": {0: "b", 2: "l"}, "v": {0: "b", 2: "l"}}
    program = export(model, kwargs=given, input_names=["ids", "mask", "k", "v"], dynamic_axes=axes)
    assert {one.name: list(map(str, one.shape)) for one in program.model.graph.inputs} == {
        "ids": ["b", "s"],
        "k": ["b", "2", "l", "4"],
        "v": ["b", "2", "l", "4"],
        "mask": ["b", "t"],
    }
    other = {"mask": torch.randn(1, 5), "past": library.DynamicCache([(KEYS[:1, :, :2], KEYS[1:, :, 1:])])}
    other["ids"] = torch.randn(1, 2)
    for one, expected in zip(program(**copy.deepcopy(other)), model(**other), strict=True):
        torch.testing.assert_close(one, expected)
