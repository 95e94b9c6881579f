"""Plain attributes that forward changes: a file has no memory, so it computes for ever what the first call computes.

Arrives: a module, while a strategy captures it. Leaves: the dotted names of attributes (tensors that are not buffers,
numbers, lists, dicts) that were other ones after forward, and the module with the attributes and the hooks that it had
before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import torch

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
_HOOKS = tuple(sorted(name for name in _OF_EVERY_MODULE if "hooks" in name))
_DEPTH = 3
"""Containers in containers are compared down to here."""


def _attributes(module: torch.nn.Module) -> dict[str, dict[str, object]]:
    return {
        path: {name: value for name, value in vars(one).items() if name not in _OF_EVERY_MODULE}
        for path, one in module.named_modules()
    }


def _frozen(value: object, depth: int = _DEPTH) -> object:
    """What a container holds now; other values are themselves."""
    if depth and isinstance(value, (list, tuple)):
        return [_frozen(item, depth - 1) for item in value]
    if depth and isinstance(value, dict):
        return {key: _frozen(item, depth - 1) for key, item in value.items()}
    return value


def _equal(before: object, after: object) -> bool:
    if before is after:
        return True
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_equal, before, after))
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_equal(before[key], after[key]) for key in before)
    simple = (bool, int, float, complex, str, bytes, type(None))
    return type(before) is type(after) and isinstance(before, simple) and before == after


def _is_remembered(module: torch.nn.Module, name: str) -> bool:
    """Whether an attribute is the remembered value of a property, or torch's own book of a layer's weights."""
    if isinstance(getattr(type(module), name, None), functools.cached_property):
        return True
    classes = [one for one in type(module).__mro__ if one is not torch.nn.Module]
    return name.startswith("_") and any(one.__module__.startswith("torch.nn.") for one in classes)


def _changed(module: torch.nn.Module, before: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    missing = object()
    for path, now in _attributes(module).items():
        earlier = before.get(path, {})
        owner = module.get_submodule(path)
        for name in dict.fromkeys((*earlier, *now)):
            old, new = earlier.get(name, missing), now.get(name, missing)
            if not _equal(old, _frozen(new)) and not _is_remembered(owner, name):
                yield f"{path}.{name}" if path else name


def _forget_new(module: torch.nn.Module, before: Mapping[str, Mapping[str, object]]) -> None:
    """Takes away what forward added: during capture these are tensors without content."""
    for path, one in module.named_modules():
        for name in [name for name in vars(one) if name not in _OF_EVERY_MODULE]:
            if path in before and name not in before[path] and not _is_remembered(one, name):
                delattr(one, name)


def _hooks(module: torch.nn.Module) -> dict[str, dict[str, set[Hashable]]]:
    """By module and kind of hook, the keys of the hooks that it has."""
    return {
        path: {kind: set(found) for kind in _HOOKS if isinstance(found := vars(one).get(kind), dict)}
        for path, one in module.named_modules()
    }


def _unhook_new(module: torch.nn.Module, before: Mapping[str, Mapping[str, set[Hashable]]]) -> None:
    """Takes away the hooks that forward registered: the attributes go by which it would know that they are there."""
    for path, kinds in _hooks(module).items():
        for kind, keys in kinds.items():
            for key in keys - before.get(path, {}).get(kind, keys):
                del vars(module.get_submodule(path))[kind][key]


@contextlib.contextmanager
def watching(module: torch.nn.Module) -> Iterator[list[str]]:
    """While open, forward's changes to plain attributes of the module are noted in the list that is yielded.

    NOTE: torch puts attributes back before its capture returns, so a private function of torch that does it is wrapped;
    without that function only what torch leaves behind is seen.
    """
    changed: list[str] = []
    before = {path: {k: _frozen(v) for k, v in found.items()} for path, found in _attributes(module).items()}
    hooked = _hooks(module)
    trace: Any = importlib.import_module("torch.export._trace")
    original: Callable[..., Any] | None = getattr(trace, "_detect_attribute_assignment", None)

    @contextlib.contextmanager
    def noticing(traced: torch.nn.Module) -> Iterator[None]:
        assert original is not None
        with original(traced):
            try:
                yield
            finally:
                if traced is module:
                    changed.extend(_changed(module, before))

    if original is not None:
        trace._detect_attribute_assignment = noticing
    try:
        yield changed
    finally:
        if original is not None:
            trace._detect_attribute_assignment = original
        changed.extend(_changed(module, before))
        changed[:] = dict.fromkeys(changed)
        _forget_new(module, before)
        _unhook_new(module, hooked)
