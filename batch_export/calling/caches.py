"""Cache objects of transformers as nested inputs and outputs: their tensors are leaves, all else is structure.

Arrives: nothing; the classes are looked for among the modules that are loaded already. Leaves: registrations with
torch's pytree, for classes that have none. A cache comes back with its type, its windows and its counts. Nothing is
imported, and a registration of the library's or the user's own stays.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import _pytree as fx_pytree
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

_LIBRARY = "transformers"
_COUNT, _KEYS = "cumulative_length", "keys"
"""Attributes of a layer: how many tokens it has seen, and the keys of those that it still has."""
_PLAIN = (type(None), bool, int, float, str)


def register() -> None:
    """Registers every cache class that is loaded by now; a second call looks for new ones only."""
    for kind in _classes():
        if kind in pytree.SUPPORTED_NODES:
            continue
        flatten, unflatten = _ways(kind)
        pytree.register_pytree_node(
            kind,
            flatten,
            unflatten,
            serialized_type_name=_path(kind),
            flatten_with_keys_fn=_with_keys(flatten),
        )
        fx_pytree.register_pytree_flatten_spec(kind, _children_of(flatten))


def _classes() -> Iterator[type]:
    home = sys.modules.get(f"{_LIBRARY}.cache_utils")
    if home is None:
        return
    yield home.Cache
    yield from _below(home.Cache)
    models = [module for name, module in list(sys.modules.items()) if name.startswith(f"{_LIBRARY}.models.")]
    for module in models:  # some models have caches of their own kind
        for name, kind in list(vars(module).items()):
            if name.endswith("Cache") and isinstance(kind, type) and kind.__module__ == module.__name__:
                yield kind


def _below(kind: type) -> Iterator[type]:
    children: list[type] = kind.__subclasses__()
    for child in children:
        yield child
        yield from _below(child)


_Flatten = Callable[[Any], tuple[list[Any], Any]]
_Unflatten = Callable[[Any, Any], Any]


def _ways(kind: type) -> tuple[_Flatten, _Unflatten]:
    names = {one.__name__ for one in kind.__mro__}
    if "EncoderDecoderCache" in names:
        return _flatten_pair, _unflatten_pair
    return (_flatten_in_two, _unflatten_in_two) if "DynamicCache" in names else (_flatten, _unflatten)


def _children_of(flatten: _Flatten) -> Callable[[Any, Any], list[Any]]:
    return lambda cache, _: flatten(cache)[0]


def _with_keys(flatten: _Flatten) -> Callable[[Any], tuple[list[tuple[Any, Any]], Any]]:
    def with_keys(cache: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = flatten(cache)
        return [
            (pytree.MappingKey(name), child) for name, child in zip(context["names"], children, strict=True)
        ], context

    return with_keys


# Any cache: one leaf for each tensor --------------------------------------------------------------------------------


def _flatten(cache: Any) -> tuple[list[Any], Any]:
    leaves: dict[str, Any] = {}
    context = _described(cache, (), leaves)
    return list(leaves.values()), {"names": list(leaves), "object": context}


def _unflatten(children: Any, context: Any) -> Any:
    return _made(context["object"], dict(zip(context["names"], children, strict=True)))


# A DynamicCache: its keys and its values, as the library's own registration has them --------------------------------


def _flatten_in_two(cache: Any) -> tuple[list[Any], Any]:
    leaves, context = _flatten(cache)
    names = context["names"]
    lists: dict[str, dict[str, Any]] = {"key_cache": {}, "value_cache": {}, "more": {}}
    for name, leaf in zip(names, leaves, strict=True):
        place = {"keys": "key_cache", "values": "value_cache"}.get(name.rpartition("_")[2], "more")
        lists[place][name] = leaf
    if not lists["more"]:
        del lists["more"]
    parts = [list(found) for found in lists.values()]
    return [list(found.values()) for found in lists.values()], {**context, "names": list(lists), "parts": parts}


def _unflatten_in_two(children: Any, context: Any) -> Any:
    leaves = {
        name: leaf
        for part, found in zip(context["parts"], children, strict=True)
        for name, leaf in zip(part, found, strict=True)
    }
    return _made(context["object"], leaves)


# A pair of caches ---------------------------------------------------------------------------------------------------

_PAIR = ("self_attention_cache", "cross_attention_cache")


def _flatten_pair(cache: Any) -> tuple[list[Any], Any]:
    rest = {name: _described(value, (), {}) for name, value in vars(cache).items() if name not in _PAIR}
    return [getattr(cache, name) for name in _PAIR], {"names": list(_PAIR), "class": _path(type(cache)), "rest": rest}


def _unflatten_pair(children: Any, context: Any) -> Any:
    cache = _blank(context["class"])
    vars(cache).update(zip(_PAIR, children, strict=True))
    vars(cache).update({name: _made(value, {}) for name, value in context["rest"].items()})
    return cache


# Objects in terms of JSON -------------------------------------------------------------------------------------------


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _blank(path: str) -> Any:
    kind = _found(path)
    return kind.__new__(kind)


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _described(value: Any, path: tuple[str, ...], leaves: dict[str, Any]) -> Any:
    """The value without its tensors, which become leaves with names made of their path."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        name = "_".join(path) or "tensor"
        leaves[name] = value
        return {"tensor": name}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return None  # a count of a free axis, on the way out
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, type):
        return {"type": _path(value)}
    if isinstance(value, (list, tuple)):
        items = [_described(one, (*path, str(index)), leaves) for index, one in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict):
        return {"items": [[key, _described(one, (*path, str(key)), leaves)] for key, one in value.items()]}
    return {"class": _path(type(value)), "state": _state(value, path, leaves)}


def _state(value: Any, path: tuple[str, ...], leaves: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, held in vars(value).items():
        if isinstance(held, torch.Tensor) and name.startswith("_"):
            state[name] = {"again": name.strip("_").removesuffix("_tensor")}
        elif name == _COUNT and _is_length(held, getattr(value, _KEYS, None)):
            state[name] = {"length": _KEYS}
        else:
            state[name] = _described(held, path if name == "layers" else (*path, name), leaves)
    return state


def _is_length(count: Any, keys: Any) -> bool:
    """Whether a layer has seen as many tokens as it has keys: then the count follows a free axis."""
    if not isinstance(count, (int, torch.SymInt)) or not isinstance(keys, torch.Tensor) or keys.dim() < 2:
        return False
    return bool(statically_known_true(count == keys.shape[-2]))


def _made(described: Any, leaves: dict[str, Any]) -> Any:
    if type(described) in _PLAIN:
        return described
    if isinstance(described, list):
        return [_made(one, leaves) for one in described]
    (kind, content), *more = described.items()
    if kind == "class":
        return _with_state(_blank(content), dict(more)["state"], leaves)
    simple: dict[str, Callable[[], Any]] = {
        "tensor": lambda: leaves[content],
        "dtype": lambda: getattr(torch, content),
        "device": lambda: torch.device(content),
        "type": lambda: _found(content),
        "tuple": lambda: tuple(_made(one, leaves) for one in content),
        "items": lambda: {key: _made(one, leaves) for key, one in content},
    }
    return simple[kind]()


def _with_state(made: Any, state: dict[str, Any], leaves: dict[str, Any]) -> Any:
    later: list[tuple[str, str, Any]] = []
    for name, described in state.items():
        if isinstance(described, dict) and ("again" in described or "length" in described):
            later += [(name, kind, content) for kind, content in described.items()]
        else:
            vars(made)[name] = _made(described, leaves)
    for name, kind, content in later:
        held = getattr(made, content, None)
        if kind == "length":
            vars(made)[name] = held.shape[-2] if isinstance(held, torch.Tensor) else 0
        else:
            vars(made)[name] = torch.tensor(held) if isinstance(held, (int, float)) else None
    return made
