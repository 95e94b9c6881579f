"""Specs of dynamic shapes walked beside the inputs: what torch is told of each axis, and what is remembered of it.

Arrives: example inputs and a spec of the same structure, in any form that `dynamic_shapes.canonical` accepts below its
top. Leaves: torch's form of the spec, and, per tensor, the axes that were asked for. Errors name input and axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import Dim
from torch.export.dynamic_shapes import _DerivedDim, _DimHint
from torch.utils import _pytree as pytree

from batch_export.calling.axis_words import AxisExpression, is_word
from batch_export.errors import DynamicShapeError


@dataclass(frozen=True, slots=True)
class Wanted:
    """One axis of one tensor: what torch is told, and what is remembered of it."""

    torch_form: object
    is_dynamic: bool = False
    name: str = ""
    required: bool = False
    lowest: int = 0
    highest: int | None = None
    derived: bool = False


def _wanted(given: object, words: Mapping[str, str]) -> Wanted | None:
    """One entry of a spec; None if it is of no accepted kind.

    Names and named Dims become `Dim.DYNAMIC`: torch then rejects an axis that the model fixes, and everything else that
    it finds out about the axis is judged by `guards.py`, in one way for all forms.
    """
    if isinstance(given, bool):
        return None
    if given is None or isinstance(given, int):
        return Wanted(given)
    if isinstance(given, AxisExpression):
        return Wanted(Dim.DYNAMIC, True, str(given), True, derived=not is_word(given))
    if isinstance(given, str):
        return Wanted(Dim.DYNAMIC, True, words.get(given, given), True) if given else Wanted(None)
    if isinstance(given, _DimHint):
        if given.type == Dim.STATIC.type:
            return Wanted(given)
        low, high = getattr(given, "min", None), getattr(given, "max", None)
        return Wanted(given, True, "", given.type == Dim.DYNAMIC.type, low or 0, high)
    if isinstance(given, Dim):
        low, high = (_limit(given.min), _limit(given.max))
        form = Dim.DYNAMIC if low is None and high is None else Dim.DYNAMIC(min=low, max=high)
        return Wanted(form, True, str(given.__name__), True, low or 0, high, isinstance(given, _DerivedDim))
    return None


def _limit(bound: object) -> int | None:
    """A declared bound that says more than torch's own: 1 and up, and not infinity."""
    return int(bound) if isinstance(bound, int) and 0 < bound < 2**62 else None


def _misfit(given: object, wanted: Wanted, size: int) -> str:
    """Why an axis of the example cannot be what was asked for; empty where it can, as any size below 2 can."""
    if isinstance(given, int) and given != size:
        return f"is {size} in the example"
    if size < 2 or not isinstance(given, (Dim, _DimHint)):
        return ""
    if size < wanted.lowest or (wanted.highest is not None and size > wanted.highest):
        upwards = f"from {wanted.lowest}" + (f" to {wanted.highest}" if wanted.highest is not None else "")
        return f"is {size} in the example, and was declared {upwards}"
    if isinstance(given, _DerivedDim):
        first = int(given.fn(0))
        step = int(given.fn(1)) - first
        if (size - first) % step if step else size != first:
            return f"is {size} in the example, which {given.__name__} never is"
    return ""


def _is_axis_map(spec: object) -> bool:
    return isinstance(spec, Mapping) and all(isinstance(key, int) for key in spec)


class Walk:
    """Walks inputs and specs side by side."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self.words: Mapping[str, str] = words
        self.names: list[dict[int, str]] = []
        self.wanted: list[dict[int, Wanted]] = []
        self.forms: list[dict[int, Any]] = []
        self.renamed: dict[str, list[str]] = {}
        self._sizes: dict[str, int] = {}

    def _own_name(self, label: str, size: int) -> str:
        """The name of an axis that was given as a word: another one, where that word is on another size already.

        A word is a label, and says of two axes that they are equal only where the example agrees. One element says
        nothing: it is lifted, or broadcasts.
        """
        if size <= 1:
            return label
        names: list[str] = [label, *self.renamed.get(label, ())]
        for name in names:
            if self._sizes.setdefault(name, size) == size:
                return name
        count, taken = len(names) + 1, {*self._sizes, *self.words.values()}
        while f"{label}_{count}" in taken:
            count += 1
        name = f"{label}_{count}"
        self._sizes[name] = size
        self.renamed.setdefault(label, []).append(name)
        return name

    def tensor(self, spec: Any, tensor: torch.Tensor, where: str) -> object:
        axes: dict[int, Any] = {}
        if spec is None or (isinstance(spec, str) and not spec):
            axes = {}
        elif _is_axis_map(spec):
            axes = dict(spec)
        elif isinstance(spec, (list, tuple)):
            if len(spec) != tensor.dim():
                raise DynamicShapeError(
                    f"dynamic_shapes gives {len(spec)} axes for the input {where}, which has {tensor.dim()}",
                    next_step="give one entry for each axis, or a dict from axis to name",
                )
            axes = dict(enumerate(spec))
        else:
            raise DynamicShapeError(
                f"dynamic_shapes has {spec!r} for the tensor input {where}",
                next_step="give a dict from axis to name, a list with one entry for each axis, or None",
            )
        names: dict[int, str] = {}
        converted: dict[int, Any] = {}
        remembered: dict[int, Wanted] = {}
        for position, given in axes.items():
            if not -tensor.dim() <= position < tensor.dim():
                raise DynamicShapeError(f"the input {where} has {tensor.dim()} axes, not an axis {position}")
            axis = position % tensor.dim()
            wanted = _wanted(given, self.words)
            if wanted is None:
                raise DynamicShapeError(
                    f"dynamic_shapes has {given!r} for axis {axis} of the input {where}",
                    next_step="give a name, a torch.export.Dim, Dim.DYNAMIC, Dim.AUTO, Dim.STATIC, an int or None",
                )
            size = int(tensor.shape[axis])
            problem = _misfit(given, wanted, size)
            if isinstance(given, Dim) and not wanted.derived and size > 1:
                known = self._sizes.setdefault(wanted.name, size)
                problem = problem or (f"is {size} in the example, and {known} elsewhere" if known != size else "")
            if problem:
                called = f" ({wanted.name})" if wanted.name else f" ({given})" if isinstance(given, int) else ""
                raise DynamicShapeError(
                    f"axis {axis}{called} of the input {where} {problem}",
                    next_step="give an example of the sizes in dynamic_shapes, or say there what the example has",
                )
            if isinstance(given, str) and not isinstance(given, AxisExpression) and wanted.name:
                wanted = replace(wanted, name=self._own_name(wanted.name, size))
            converted[axis] = wanted.torch_form
            if wanted.is_dynamic:
                names[axis], remembered[axis] = wanted.name, wanted
        self.names.append(names)
        self.wanted.append(remembered)
        self.forms.append(converted)
        return converted or None

    def walk(self, spec: object, value: object, where: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(spec, value, where)
        if isinstance(value, Mapping):
            if spec is not None and not isinstance(spec, Mapping):
                raise DynamicShapeError(f"dynamic_shapes has a {type(spec).__name__} where the input {where} is a dict")
            of_keys = _by_name(_of_present(spec, value, list(value), where), list(value), where)
            return {key: self.walk(of_keys[key], item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return self._sequence(spec, value, where)
        leaves, _ = pytree.tree_flatten(value)
        if len(leaves) != 1 or leaves[0] is not value:
            return self._registered_container(spec, value, where)
        if isinstance(value, int) and not isinstance(value, bool) and isinstance(spec, (str, Dim, _DimHint)):
            return spec if isinstance(spec, _DimHint) else Dim.DYNAMIC
        return None

    def _sequence(self, spec: object, value: list[object] | tuple[object, ...], where: str) -> object:
        """Lists, tuples and named tuples; for the latter the spec may have the fields' names."""
        fields: tuple[str, ...] | None = getattr(type(value), "_fields", None)
        if fields is not None and isinstance(spec, Mapping):
            spec = list(_by_name(spec, fields, where).values())
        specs = _by_position(spec, len(value), where, "a list")
        walked = [
            self.walk(one, item, f"{where}.{fields[index]}" if fields is not None else f"{where}[{index}]")
            for index, (one, item) in enumerate(zip(specs, value, strict=True))
        ]
        if fields is not None:
            return type(value)(*walked)
        return walked if isinstance(value, list) else tuple(walked)

    def _registered_container(self, spec: object, value: object, where: str) -> object:
        """Containers registered with pytree (dataclasses, caches): a spec for each child, by position or by name."""
        children = pytree.tree_flatten(value, is_leaf=lambda item: item is not value)[0]
        fields = _fields(value, len(children))
        if type(spec) is type(value) and fields:
            spec = [getattr(spec, field, None) for field in fields]
        elif type(spec) is type(value):
            spec = pytree.tree_flatten(spec, is_leaf=lambda item: item is not spec)[0]
        elif isinstance(spec, (list, tuple)) and len(spec) == len(listed := _listed(value)) != len(children):
            spec = dict(zip(listed, spec, strict=True))
        if fields and isinstance(spec, Mapping):
            spec = list(_by_name(_of_present(spec, value, fields, where), fields, where).values())
        specs = _by_position(spec, len(children), where, f"a {type(value).__name__}")
        return [
            self.walk(one, child, f"{where}.{fields[index]}" if fields else f"{where}[{index}]")
            for index, (one, child) in enumerate(zip(specs, children, strict=True))
        ]


def _by_name(spec: Mapping[object, Any] | None, names: Sequence[object], where: str) -> dict[object, Any]:
    """A spec for each name, None for those that it leaves out."""
    unknown = set(spec or ()) - set(names)
    if unknown:
        raise DynamicShapeError(
            f"dynamic_shapes names {sorted(map(str, unknown))}, which the input {where} does not have",
            next_step=f"it has {sorted(map(str, names))}",
        )
    return {name: (spec or {}).get(name) for name in names}


def _of_present(
    spec: Mapping[object, Any] | None, value: object, names: Sequence[object], where: str
) -> Mapping[object, Any] | None:
    """A spec by name without the fields of a dataclass that are None in the example, which have no axes."""
    absent = {name for name in _listed(value) if name not in names and getattr(value, name, None) is None}
    for name in absent:
        if (spec or {}).get(name) is not None:
            raise DynamicShapeError(
                f"dynamic_shapes gives axes for {where}.{name}, which is None in the example",
                next_step="give None there, or an example that has the field",
            )
    return spec and {name: one for name, one in spec.items() if name not in absent}


def _listed(value: object) -> list[str]:
    """The names of a dataclass's fields, those that are None among them; none for anything else."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return []
    return [one.name for one in dataclasses.fields(value) if one.init]


def asks_for_nothing(spec: object) -> bool:
    """Whether a spec leaves all axes as they are: None, or containers of nothing else."""
    if isinstance(spec, Mapping):
        return all(map(asks_for_nothing, spec.values()))
    return all(map(asks_for_nothing, spec)) if isinstance(spec, (list, tuple)) else spec is None


def _by_position(spec: object, count: int, where: str, kind: str) -> Sequence[object]:
    if spec is None:
        return [None] * count
    if not isinstance(spec, (list, tuple)):
        raise DynamicShapeError(f"dynamic_shapes has a {type(spec).__name__} where the input {where} is {kind}")
    if len(spec) != count:
        raise DynamicShapeError(f"dynamic_shapes has {len(spec)} entries for the {count} of the input {where}")
    return spec


def _fields(value: object, count: int) -> tuple[str, ...]:
    """The names of a container's children, in order; empty where they have none."""
    try:
        paths = pytree.tree_flatten_with_path(value, is_leaf=lambda item: item is not value)[0]
    except ValueError:  # registered without the keys of its children
        return ()
    names = tuple(str(getattr(path[-1], "name", getattr(path[-1], "key", ""))) for path, _ in paths if path)
    return names if len(set(names) - {""}) == count else ()
