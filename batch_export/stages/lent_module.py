"""What somebody else's exporter changes in the module that it is given, and in the process round it.

A module arrives before the exporter has it; afterwards what is no longer as it was leaves, by name: weights, buffers,
submodules, hooks, training modes, the module's own methods, and functions that were replaced in torch or where the
model's classes are defined. Nothing but training modes is put back. Tensors above a megabyte are told by a sample of
their numbers, and by torch's counter of writes: a check is to cost nothing beside an export.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch

from batch_export.stages.built import plain_text

_WHOLE = 1 << 20
"""Bytes: of larger tensors one page of every sixteen is read."""
_PAGE, _STRIDE = 1 << 12, 1 << 16
_TORCH = ("torch", "torch._VF", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "math")
"""Modules from which forward takes its functions, whatever the model."""
_ELSEWHERE = ("_parameters", "_buffers", "_modules", "training")
_HOOKS = re.compile(r"_hooks(_with_kwargs|_always_called)?$")


@dataclass(frozen=True, slots=True)
class Changes:
    """What is no longer as it was.

    Attributes:
        of_module: by kind (`weights`, `buffers`, `submodules`, `hooks`, `modes`, `methods`) the names.
        of_process: functions and methods that are others now.
        is_same: whether the module is proven to be what it was: attributes, which forward may change while it is
            traced, count here only.
    """

    of_module: dict[str, list[str]] = field(default_factory=dict)
    of_process: list[str] = field(default_factory=list)
    is_same: bool = True

    def named(self) -> dict[str, list[str]]:
        """Everything by kind; empty where nothing with a name has changed."""
        return {**self.of_module, **({"process": self.of_process} if self.of_process else {})}


@dataclass(frozen=True, slots=True)
class _Part:
    """One submodule: its class, its training mode, by name its tensors and submodules, hooks and other attributes."""

    module: torch.nn.Module
    kind: type
    training: bool
    held: dict[str, dict[str, object]]
    hooks: dict[str, list[object]]
    attributes: dict[str, tuple[object, str]]


class LentModule:
    """A module and its process as they are now.

    Args:
        module: the module, which has not been lent yet.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._parts = {path: _part(one) for path, one in module.named_modules()}
        self._tensors: dict[int, tuple[torch.Tensor, _Look]] = {}
        looking = _Looking()
        for part in self._parts.values():
            for held in (*part.held.values(), {name: value for name, (value, _) in part.attributes.items()}):
                for value in held.values():
                    if isinstance(value, torch.Tensor) and id(value) not in self._tensors:
                        self._tensors[id(value)] = (value, looking.at(value))
        self._spaces = [_Space(*one) for one in _spaces(part.kind for part in self._parts.values())]

    def changes(self) -> Changes:
        """What has changed since; asked once, right after the module came back."""
        of_module: dict[str, list[str]] = {}
        is_same = True
        looking = _Looking()
        looks = {place: looking.at(tensor) for place, (tensor, _) in self._tensors.items()}
        now = dict(self._module.named_modules())

        def tell(kind: str, path: str, name: str = "") -> None:
            of_module.setdefault(kind, []).append(".".join(filter(None, (path, name))) or "the model")

        def is_other(before: object, after: object) -> bool:
            if not isinstance(before, torch.Tensor):
                return before is not after
            if before is after:
                return looks[id(before)].differs(self._tensors[id(before)][1])
            return not isinstance(after, torch.Tensor) or looking.at(after).differs(self._tensors[id(before)][1])

        for path, part in self._parts.items():
            one = part.module
            if now.get(path) is not one:
                is_same = False
                continue  # whoever held it has another one in its place, or none
            if type(one) is not part.kind:
                tell("methods", path)
            if one.training != part.training:
                tell("modes", path)
            after = _part(one)
            for kind, before in part.held.items():
                held = after.held[kind]
                for key in before.keys() | held.keys():
                    if key not in before or key not in held or is_other(before[key], held[key]):
                        tell(kind, path, key)
            if not _are_alike(part.hooks, after.hooks):
                tell("hooks", path)
            for key in sorted(part.attributes.keys() | after.attributes.keys()):
                if callable(getattr(part.kind, key, None)) and _is_replaced(part.attributes, after.attributes, key):
                    tell("methods", path, key)
            is_same = is_same and _are_same(part.attributes, after.attributes)
        certain = all(look.is_certainly(self._tensors[place][1]) for place, look in looks.items())
        of_process = [name for space in self._spaces for name in space.replaced()]
        named = {kind: sorted(names) for kind, names in of_module.items()}
        return Changes(named, sorted(set(of_process)), is_same and certain and not named)

    def put_modes_back(self) -> None:
        """Gives each submodule the training mode that it had."""
        for part in self._parts.values():
            part.module.training = part.training


@dataclass(frozen=True, slots=True)
class _Look:
    """What a tensor looks like: its kind, a checksum of its numbers, how often it was written, and where it lies."""

    kind: str
    numbers: int = 0
    writes: int = 0
    memory: int = 0
    is_whole: bool = False

    def differs(self, before: _Look) -> bool:
        """Whether it is seen to be another."""
        return self.kind != before.kind or self.numbers != before.numbers

    def is_certainly(self, before: _Look) -> bool:
        """Whether nothing says that it may have been written where nobody looked."""
        return self.is_whole or (self.writes == before.writes and self.memory == before.memory)


class _Looking:
    """Looks at tensors; memory that several share is read once."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[int, bool]] = {}

    def at(self, tensor: torch.Tensor) -> _Look:
        """Looks at one; of what has no plain memory the checksum is 0."""
        kind = f"{type(tensor).__name__} {tensor.layout} {tensor.dtype} {tuple(tensor.shape)} {tensor.device}"
        try:
            kind += f" {tensor.stride()} {tensor.storage_offset()} {tensor.is_conj()} {tensor.is_neg()}"
            writes = 0 if tensor.is_inference() else tensor._version
            storage = tensor.untyped_storage()
            if tensor.device.type != "cpu":
                return _Look(kind, 0, writes, storage._cdata)
            if storage._cdata not in self._read:
                data = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
                self._read[storage._cdata] = (_checksum(data), data.size <= _WHOLE)
            numbers, is_whole = self._read[storage._cdata]
            return _Look(kind, numbers, writes, storage._cdata, is_whole)
        except (RuntimeError, NotImplementedError, TypeError):  # sparse, fake and subclasses of others
            return _Look(kind)


def _checksum(data: Any) -> int:
    if data.size <= _WHOLE:
        return zlib.crc32(data)
    pages = data[: data.size // _STRIDE * _STRIDE].reshape(-1, _STRIDE)[:, :_PAGE]
    if data.ctypes.data % 8:
        return zlib.crc32(pages.tobytes(), zlib.crc32(data[-_PAGE:]))
    words = pages.view(np.uint64)
    sums = (words.sum(axis=0).tobytes(), words.sum(axis=1).tobytes(), data[-_PAGE:].tobytes())
    return zlib.crc32(b"".join(sums))


def _part(module: torch.nn.Module) -> _Part:
    held: dict[str, dict[str, object]] = {
        "weights": dict(module.named_parameters(recurse=False, remove_duplicate=False)),
        "buffers": dict(module.named_buffers(recurse=False, remove_duplicate=False)),
        "submodules": dict(module.named_children()),
    }
    hooks: dict[str, list[object]] = {}
    attributes: dict[str, tuple[object, str]] = {}
    for name, value in vars(module).items():
        if name in _ELSEWHERE:
            continue
        if _HOOKS.search(name) and isinstance(value, Mapping):
            if value:
                hooks[name] = list(value.values())
        else:
            attributes[name] = (value, plain_text(value))
    return _Part(module, type(module), module.training, held, hooks, attributes)


def _are_alike(before: Mapping[str, list[object]], after: Mapping[str, list[object]]) -> bool:
    return before.keys() == after.keys() and all(
        len(hooks) == len(after[name]) and all(one is other for one, other in zip(hooks, after[name], strict=True))
        for name, hooks in before.items()
    )


def _are_same(before: Mapping[str, tuple[object, str]], after: Mapping[str, tuple[object, str]]) -> bool:
    return before.keys() == after.keys() and all(
        text == after[name][1] and (value is after[name][0] or _is_plain(value, text))
        for name, (value, text) in before.items()
    )


def _is_plain(value: object, text: str) -> bool:
    """Whether the text says all about a value; of any other it is the name of its class."""
    return text != type(value).__name__


def _is_replaced(before: Mapping[str, tuple[object, str]], after: Mapping[str, tuple[object, str]], key: str) -> bool:
    return key not in before or key not in after or before[key][0] is not after[key][0]


class _Space:
    """The functions that a module or a class has under its names.

    Args:
        where: its own name.
        holder: the module or class.
    """

    def __init__(self, where: str, holder: ModuleType | type) -> None:
        self._where = where
        self._holder = holder
        self._before = {name: (value, _code(value)) for name, value in vars(holder).items() if _is_function(value)}

    def replaced(self) -> list[str]:
        """Returns the names under which others are found now."""
        now = vars(self._holder)
        found = [name for name, (value, code) in self._before.items() if _is_other(now.get(name), value, code)]
        if isinstance(self._holder, type):
            inherited = self._holder.__mro__[1:]
            added = [name for name, value in now.items() if name not in self._before and _is_function(value)]
            found += [name for name in added if any(_is_function(vars(base).get(name)) for base in inherited)]
        return [f"{self._where}.{name}" for name in found]


def _is_function(value: object) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _code(value: object) -> object:
    return getattr(value, "__code__", None)


def _is_other(now: object, before: object, code: object) -> bool:
    return now is not before or _code(now) is not code


def _spaces(kinds: Iterable[type]) -> Iterator[tuple[str, ModuleType | type]]:
    """Yields by name where the forward of these classes finds its functions."""
    classes = dict.fromkeys(base for kind in kinds for base in kind.__mro__ if base is not object)
    classes |= dict.fromkeys(torch.Tensor.__mro__[:-1])
    for name in dict.fromkeys((*_TORCH, *(kind.__module__ for kind in classes))):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            yield name, module
    for kind in classes:
        yield f"{kind.__module__}.{kind.__qualname__}", kind
