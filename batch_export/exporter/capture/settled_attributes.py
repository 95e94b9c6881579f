"""Attributes that forward changes and that decide nothing: tables and settings that it remembers for some sizes.

Arrives: a model, its example inputs, inputs of other sizes, and the names of attributes that forward changes. Leaves:
those of which it is not shown by runs of the model that the file computes what the model computes in every call. What
is remembered goes by the sizes alone and is the same after each further call, and a call after others gives what a
first one gives. A counter, a list that grows and what is kept of the data are none of these, but for what each call
writes before it reads it (`written_first.py`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.grad_modes import recording
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import RunsUndone
from batch_export.exporter.capture.other_inputs import Inputs, other_values
from batch_export.exporter.capture.same_numbers import seed_all
from batch_export.exporter.capture.trial import is_fake, uncompiled
from batch_export.exporter.capture.written_first import written_first

_LARGE = 1 << 28
"""Bytes of weights from which on several runs of a model would cost too much of an export."""
_DEPTH = 3
"""Containers in containers are compared down to here."""
_UNKNOWN: Final = object()
"""In place of what is not compared."""


def unsettled(
    names: Sequence[str], module: torch.nn.Module, given: Inputs, others: Iterable[Inputs], *, has_axes: bool
) -> list[str]:
    """The attributes that may decide something.

    Args:
        names: dotted names of attributes that forward changes.
        module: the model, which stays as it is.
        given: its example inputs.
        others: inputs of other sizes that it takes.
        has_axes: whether axes are free, so that the model is to be run at other sizes.
    """
    weights = sum(one.numel() * one.element_size() for one in module.parameters())
    if not names or weights > _LARGE or is_fake(module, *given):
        return list(names)
    try:
        with settings_kept(), recording(module), uncompiled(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            others = list(others)
            if others or not has_axes:
                first = written_first(names, module, [given, *other_values(*given, 2), *others])
                names = [name for name in names if name not in first]
            settled = not names or _are_settled(names, module, given, others, has_axes=has_axes)
            return [] if settled else list(names)
    except Exception:  # what eager says to other inputs is no concern of the export
        return list(names)


def _are_settled(
    names: Sequence[str], module: torch.nn.Module, given: Inputs, others: Sequence[Inputs], *, has_axes: bool
) -> bool:
    if has_axes and not others:
        return False
    undone = RunsUndone(module)
    with undone.run():
        first = _called(module, given)
        held = _held(names, module)
        if not _same(first, _called(module, given)) or not _same(held, _held(names, module)):
            return False
    for values in other_values(*given, 2):
        with undone.run():
            _called(module, values)
            if not _same(held, _held(names, module)) or not _same(first, _called(module, given)):
                return False
    for inputs in others:
        with undone.run():
            _called(module, inputs)
            if not _same(first, _called(module, given)):
                return False
    return True


def _held(names: Sequence[str], module: torch.nn.Module) -> object:
    return [_content(_attribute(module, name)) for name in names]


def _called(module: torch.nn.Module, inputs: Inputs) -> object:
    args, kwargs = copy.deepcopy(inputs)
    seed_all()
    return _content(pytree.tree_leaves(module(*args, **kwargs)))


def _attribute(module: torch.nn.Module, name: str) -> object:
    path, _, last = name.rpartition(".")
    return getattr(module.get_submodule(path), last)


def _content(value: object, depth: int = _DEPTH) -> object:
    """What a value holds at this moment."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if depth and isinstance(value, (list, tuple)):
        return [_content(one, depth - 1) for one in value]
    if depth and isinstance(value, Mapping):
        return {key: _content(one, depth - 1) for key, one in value.items()}
    is_plain = value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.device))
    return value if is_plain else _UNKNOWN


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one is not _UNKNOWN and type(one) is type(other) and one == other
