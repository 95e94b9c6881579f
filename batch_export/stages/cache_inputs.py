"""Caches that a config names as inputs: forward takes their tensors, and makes the cache objects of them itself.

A module and what its spec says of caches arrive; the module leaves, of a subclass of the same name whose forward takes
dicts of tensors where caches stand. Capture, eager runs and runtimes all see tensors, and every run starts with caches
of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from batch_export.errors import ModelError
from batch_export.spec import CacheSpec

_KEYS, _VALUES = "key_cache", "value_cache"
_PAIR = ("self_attention_cache", "cross_attention_cache")


def take_caches(module: torch.nn.Module, caches: Sequence[CacheSpec], kind_of: Callable[[str], Any]) -> None:
    """Changes the module's forward in place.

    Args:
        module: the module.
        caches: which inputs are caches.
        kind_of: from the dotted name of a cache's class to the class.
    """
    if not caches:
        return
    kinds = [(cache, kind_of(cache.target)) for cache in sorted(caches, key=lambda cache: -len(cache.path))]
    original = type(module)
    signature = inspect.signature(original.forward)

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        given = _copied(dict(bound.arguments))
        for cache, kind in kinds:
            *outer, last = cache.path
            place = given
            for step in outer:
                place = place[step]
            place[last] = _made(kind, cache, place[last], self)
        bound.arguments.update(given)
        return original.forward(*bound.args, **bound.kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    body = {"forward": forward, "__module__": original.__module__, "__qualname__": original.__qualname__}
    module.__class__ = type(original.__name__, (original,), body)


def _copied(tree: Any) -> Any:
    """The same tree in dicts and lists of its own."""
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(value) for value in tree] if isinstance(tree, list) else tree


def _made(kind: Any, cache: CacheSpec, parts: Any, module: torch.nn.Module) -> Any:
    """The cache with these tensors in it; a class that takes a `config` is given the module's."""
    if set(parts) == set(_PAIR):
        return kind(*(parts[name] for name in _PAIR))
    arguments = _copied(cache.arguments)
    config = getattr(module, "config", None)
    if config is not None and "config" in inspect.signature(kind).parameters:
        arguments.setdefault("config", config)
    made = kind(**arguments)
    for layer, (keys, values) in enumerate(zip(parts[_KEYS], parts[_VALUES], strict=True)):
        made.update(keys, values, layer)
    return made


def class_named(model: str, dotted: str, found: Any) -> Any:
    """The class of a cache.

    Raises:
        ModelError: there is no class of that name, or it has no `update`.
    """
    if not isinstance(found, type) or not (hasattr(found, "update") or "EncoderDecoder" in found.__name__):
        raise ModelError(
            f"model {model!r}: 'cache' names {dotted}, which is not a cache class such as transformers.DynamicCache"
        )
    return found
