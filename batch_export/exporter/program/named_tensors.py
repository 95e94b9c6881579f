"""Tensors with names: a tuple by position and a mapping by name, as torch's own programs and ours answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class NamedTensors(tuple[torch.Tensor, ...]):
    """Tensors in the order in which they were asked for, as torch's exporter gives them, and by name."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> NamedTensors:
        """One tensor for each name, in order."""
        found = cls(tensors)
        found.names = tuple(names)
        return found

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(key)
        return super().__getitem__(self.names.index(key))

    def __contains__(self, key: object) -> bool:
        return key in self.names if isinstance(key, str) else any(key is tensor for tensor in self)

    def keys(self) -> tuple[str, ...]:
        """The names, in order: `dict(values)` has each tensor under its own."""
        return self.names

    def values(self) -> tuple[torch.Tensor, ...]:
        """The tensors, in order."""
        return tuple(self)

    def items(self) -> list[tuple[str, torch.Tensor]]:
        """Names and tensors, in order."""
        return list(zip(self.names, self, strict=True))
