"""Attributes that every call of a model writes before it reads them: no call sees what an earlier one left.

Arrives: a model, the names of attributes that forward changes, and inputs. Leaves: those names that the model was seen
to read first in no run. What a state is added to, appended to or compared with is read first.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.kept_state import RunsUndone
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.same_numbers import seed_all


def written_first(names: Sequence[str], module: torch.nn.Module, runs: Sequence[Inputs]) -> list[str]:
    """Those plain attributes that the model writes in the first of some runs, and reads before it writes them in none.

    Args:
        names: dotted names of attributes that forward changes.
        module: the model, which stays as it is.
        runs: inputs that it takes, which it is given in this order and then in the other one.
    """
    candidates = [name for name in names if not _is_registered(name, module)]
    with RunsUndone(module).run():  # one call after the other: a write may go by what an earlier one left
        for place, (args, kwargs) in enumerate([*runs, *reversed(runs)]):
            given, keywords = copy.deepcopy((args, kwargs))
            written, read = set[str](), set[str]()
            with _noted(names, module, written, read):
                seed_all()
                module(*given, **keywords)
            candidates = [name for name in candidates if name not in read and (place or name in written)]
    return candidates


def _is_registered(name: str, module: torch.nn.Module) -> bool:
    """Whether an attribute is a buffer, a parameter or a submodule, which belongs to what a model is."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    return any(last in registered for registered in (owner._buffers, owner._parameters, owner._modules))


@contextlib.contextmanager
def _noted(names: Sequence[str], module: torch.nn.Module, written: set[str], read: set[str]) -> Iterator[None]:
    """Within, attributes that are written are added to one set, and those that are read before to another one.

    What a class holds for all its modules is written past the module, and counts as neither.
    """
    own: dict[str, list[str]] = {}
    for name in names:
        path, _, last = name.rpartition(".")
        own.setdefault(path, []).append(last)
    with contextlib.ExitStack() as stack:
        for path, lasts in own.items():
            full = {last: f"{path}.{last}" if path else last for last in lasts}
            stack.enter_context(_watched(module.get_submodule(path), full, written, read))
        yield


@contextlib.contextmanager
def _watched(owner: torch.nn.Module, names: Mapping[str, str], written: set[str], read: set[str]) -> Iterator[None]:
    kind = type(owner)

    def getting(self: Any, name: str) -> Any:
        if self is owner and name == "__dict__" and is_users(sys._getframe(1).f_code.co_filename):
            read.update(set(names.values()) - written)
        elif self is owner and name in names and names[name] not in written:
            read.add(names[name])
        return kind.__getattribute__(self, name)

    def setting(self: Any, name: str, value: Any) -> None:
        if self is owner and name in names:
            written.add(names[name])
        kind.__setattr__(self, name, value)

    owner.__class__ = type(kind.__name__, (kind,), {"__getattribute__": getting, "__setattr__": setting})
    try:
        yield
    finally:
        owner.__class__ = kind
