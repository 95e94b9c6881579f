"""What each module of a model holds itself: its modules one after the other, and what their attributes were.

Arrives: a module. Leaves: its modules with their paths, as `named_modules` gives them in as many calls of a generator
as they lie deep; and whether a module's plain attributes are still the same objects. Nothing is looked into.
"""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import Any

import torch


def modules_of(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Path and module, as `root.named_modules()` gives them: each module once, parents first."""
    own = torch.nn.Module.named_modules
    found: list[tuple[str, torch.nn.Module]] = []
    seen: set[torch.nn.Module] = set()
    kinds: set[type] = set()
    pending: list[tuple[str, torch.nn.Module]] = [("", root)]
    while pending:
        path, one = pending.pop()
        if one in seen:
            continue
        kind = type(one)
        if kind not in kinds:
            if kind.named_modules is not own:
                return list(root.named_modules())
            kinds.add(kind)
        seen.add(one)
        found.append((path, one))
        if one._modules:
            inner = [(name, child) for name, child in one._modules.items() if child is not None]
            prefix = f"{path}." if path else ""
            pending.extend((prefix + name, child) for name, child in reversed(inner))
    return found


class OwnAttributes:
    """The entries of a dict at one moment: of the attributes of a module, or of what it has of one kind.

    Args:
        own: the dict; TorchScript's of the modules of a module has no iterator, so it is asked for its keys.
        others: names that are left out.

    Attributes:
        values: name and value, in order.
    """

    __slots__ = ("_names", "_own", "values")

    def __init__(self, own: dict[str, Any], others: Container[str] = ()) -> None:
        self._own = own
        self._names = tuple(own.keys())
        self.values = [(name, value) for name, value in own.items() if name not in others]

    def are_same(self) -> bool:
        """Whether the dict has the same names now, in their order, and for each the same object."""
        return self.are_in(self._own)

    def are_in(self, own: dict[str, Any]) -> bool:
        """Whether another dict has the same names, in their order, and for each of these the same object."""
        if len(own) != len(self._names) or not all(map(operator.eq, own.keys(), self._names)):
            return False
        return all(own[name] is value for name, value in self.values)
