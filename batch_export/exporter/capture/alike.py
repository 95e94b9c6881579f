"""Modules that are built alike: what may be captured once for all of them, and what makes them differ after all.

Arrives: the module that is captured. Leaves: for each submodule the names of those of its like, and a log of the plain
attributes in which they differ and that a forward reads. Weights are of one shape and dtype in all of them; which
tensor stands where is another file's matter (`block_recording.py`).
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from batch_export.exporter.capture.own_attributes import OwnAttributes, modules_of

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, type)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_DEPTH = 4
_MISSING = object()

Place = tuple[str, str]
"""A plain attribute of a block: the submodule's path in the block, and the attribute's name."""


@dataclass(slots=True)
class Alike:
    """Modules of one structure.

    Attributes:
        members: the modules, by their path in the model; one module under two paths is one member.
        differing: plain attributes whose values are not the same in all of them.
        reason: why none of them may be captured for another; empty when they may.
    """

    members: dict[str, torch.nn.Module] = field(default_factory=dict)
    differing: frozenset[Place] = frozenset()
    reason: str = ""


def groups(model: torch.nn.Module) -> dict[int, Alike]:
    """id of a module -> its group, for all modules with children of which a model has at least three calls' worth."""
    signatures: dict[int, Hashable] = {}
    found: dict[Hashable, Alike] = defaultdict(Alike)
    for path, module in modules_of(model):
        if path and any(one is not None for one in module._modules.values()):
            found[_signature(module, signatures)].members[path] = module
    result: dict[int, Alike] = {}
    for one in found.values():
        modules = list(one.members.values())
        one.reason = next((reason for module in modules if (reason := changed_call(module))), "")
        if not one.reason:
            one.differing = _differing(modules)
        result.update({id(module): one for module in modules})
    return result


def _signature(module: torch.nn.Module, known: dict[int, Hashable]) -> Hashable:
    """What two modules must share: class, mode, names, facts of weights, and the same of their children."""
    if id(module) not in known:
        tensors = tuple(
            (name, None if one is None else _facts(one))
            for name, one in (*module._parameters.items(), *module._buffers.items())
        )
        children = tuple(
            (name, None if one is None else _signature(one, known)) for name, one in module._modules.items()
        )
        known[id(module)] = (type(module), module.training, tensors, children)
    return known[id(module)]


def _facts(tensor: torch.Tensor) -> Hashable:
    """What a forward may ask a weight, but for its numbers."""
    own = ((name, one if isinstance(one, _SIMPLE) else id(one)) for name, one in vars(tensor).items())
    layout = tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device
    return (type(tensor), layout, tensor.requires_grad, tensor.is_leaf and tensor.grad is not None, *sorted(own))


def changed_call(block: torch.nn.Module) -> str:
    """Why calling a block is more than calling its class's forward; empty when it is not."""
    for path, module in modules_of(block):
        found = _changed(module)
        if found:
            return f"{type(module).__name__} {path}".strip() + f" has {found}"
    return ""


def _changed(module: torch.nn.Module) -> str:
    """What a module has of its own that is called with it."""
    if any(getattr(module, hooks, None) for hooks in _HOOKS):
        return "hooks"
    own = vars(module)
    return "a forward of its own" if "forward" in own or "__call__" in own else ""


def _differing(modules: Sequence[torch.nn.Module]) -> frozenset[Place]:
    first = {path: OwnAttributes(vars(one), _OF_EVERY_MODULE) for path, one in _under_every_path(modules[0])}
    places: set[Place] = set()
    for other in modules[1:]:
        for path, one in _under_every_path(other):
            if first[path].are_in(vars(one)):
                continue
            mine, its = dict(first[path].values), _plain(one)
            places.update(
                (path, name)
                for name in mine.keys() | its.keys()
                if (path, name) not in places
                and not same(mine.get(name, _MISSING), its.get(name, _MISSING), modules[0], other)
            )
    return frozenset(places)


def _under_every_path(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Path and module; one that is in several places under each of their paths."""
    found = modules_of(root)
    places = sum(child is not None for _, one in found for child in one._modules.values())
    return iter(found) if places == len(found) - 1 else root.named_modules(remove_duplicate=False)


def _plain(module: torch.nn.Module) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}


def same(one: Any, other: Any, owner: torch.nn.Module, others: torch.nn.Module, depth: int = _DEPTH) -> bool:
    """Whether a value of one block says the same as a value of another: by value, or by place in its block."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _SIMPLE):
        return bool(one == other)
    if isinstance(one, torch.nn.Module):
        return _path_in(owner, one) is not None and _path_in(owner, one) == _path_in(others, other)
    if isinstance(one, types.MethodType):
        return one.__func__ is other.__func__ and same(one.__self__, other.__self__, owner, others, depth)
    if depth and isinstance(one, functools.partial):
        mine, its = ((each.func, each.args, each.keywords, vars(each)) for each in (one, other))
        return same(mine, its, owner, others, depth)
    if depth and isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(
            same(mine, its, owner, others, depth - 1) for mine, its in zip(one, other, strict=True)
        )
    if depth and isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], owner, others, depth - 1) for key in one)
    if depth and isinstance(one, (set, frozenset)):
        return bool(one == other) and all(isinstance(item, _SIMPLE) for item in one)
    return False


def _path_in(owner: torch.nn.Module, module: torch.nn.Module) -> str | None:
    return next((path for path, one in owner.named_modules() if one is module), None)


class Reads:
    """Notes which of the differing attributes are read, while it is open.

    A data descriptor stands in each class for each attribute name: Python asks it before the instance.
    """

    def __init__(self, model: torch.nn.Module, found: dict[int, Alike]) -> None:
        self.noted: set[tuple[int, str]] = set()
        wanted: set[tuple[type, str]] = set()
        for one in {id(alike): alike for alike in found.values()}.values():
            for path, name in one.differing:
                wanted.update((type(member.get_submodule(path)), name) for member in one.members.values())
        self._wanted = sorted(wanted, key=lambda item: (item[0].__name__, item[1]))

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Puts the descriptors in place; classes are as before afterwards."""
        kept: list[tuple[type, str, Any]] = []
        try:
            for owner, name in self._wanted:
                own = vars(owner).get(name, _MISSING)
                inherited = getattr(owner, name, _MISSING)
                setattr(owner, name, _Watched(self.noted, name, inherited))
                kept.append((owner, name, own))
            yield
        finally:
            for owner, name, own in reversed(kept):
                if own is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)


class _Watched:
    def __init__(self, noted: set[tuple[int, str]], name: str, of_class: object) -> None:
        self._noted, self._name, self.of_class = noted, name, of_class

    def __get__(self, instance: object, owner: type) -> object:
        if instance is None:
            if self.of_class is _MISSING:
                raise AttributeError(self._name)
            return self.of_class
        self._noted.add((id(vars(instance)), self._name))
        found = vars(instance).get(self._name, self.of_class)
        if found is _MISSING:
            raise AttributeError(self._name)
        return found

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self._name] = value

    def __delete__(self, instance: object) -> None:
        if self._name not in vars(instance):
            raise AttributeError(self._name)
        del vars(instance)[self._name]


def of_class(value: object, absent: object) -> object:
    """What a class itself has in the place of a value found there while reads are noted.

    Args:
        value: what was found in the class.
        absent: what to give where the class has nothing.
    """
    if not isinstance(value, _Watched):
        return value
    return absent if value.of_class is _MISSING else value.of_class


def read_places(block: torch.nn.Module, alike: Alike, noted: set[tuple[int, str]]) -> frozenset[Place]:
    """Which of the differing attributes of a block were read."""
    return frozenset(
        (path, name) for path, name in alike.differing if (id(vars(block.get_submodule(path))), name) in noted
    )


def agree(one: torch.nn.Module, other: torch.nn.Module, places: frozenset[Place]) -> bool:
    """Whether two blocks have the same values in these attributes."""
    return all(
        same(
            vars(one.get_submodule(path)).get(name, _MISSING),
            vars(other.get_submodule(path)).get(name, _MISSING),
            one,
            other,
        )
        for path, name in places
    )
