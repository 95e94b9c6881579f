"""Nested inputs of a call held against those of the capture: each value goes where its name, key or field was.

Arrives: how a model was called at its export, and the inputs of another call. Leaves: one leaf for each of that call's,
in its order. Dicts go by key, whatever their order, and dataclasses by field; what is missing or too much is refused
with its place. Other containers that are registered with torch go by the children that they flatten to.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

_DICTS = (dict, OrderedDict, defaultdict)


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a model was called when it was exported.

    Attributes:
        form: the tree of `(args, kwargs)`.
        positional: names of what was given by position.
        fixed: the leaves that are no inputs, by their places, with the values that the model has for them.
    """

    form: pytree.TreeSpec
    positional: tuple[str, ...]
    fixed: Mapping[int, object]

    def leaves(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
        """The leaves of a call in the order of the export's.

        What was fixed at the export may be left out, and what was left out then may be None.

        Raises:
            ValueError: for an input, a key or a field that is missing, or that the model does not have.
        """
        positional, named = self.form.children()
        names = [*self.positional, *named.context]
        forms = dict(zip(names, [*positional.children(), *named.children()], strict=True))
        given = _by_name(names, _unpacked(positional, args, kwargs), kwargs)
        found: list[object] = []
        missing: list[str] = []
        for name, one in forms.items():
            places = range(len(found), len(found) + one.num_leaves)
            if name in given:
                found += _Walk(name).leaves(one, given[name])
            else:
                missing += [] if all(place in self.fixed for place in places) else [name]
                found += [self.fixed.get(place) for place in places]
        if missing:
            raise ValueError(f"{_listed(missing)} missing: the inputs of the model are {', '.join(names)}")
        return found


def form_of_program(program: torch.export.ExportedProgram) -> CallForm | None:
    """How a program was captured; None where it tells nothing of its call."""
    form = program.call_spec.in_spec
    specs = [one for one in program.graph_signature.input_specs if one.kind == InputKind.USER_INPUT]
    if form is None or form.num_leaves != len(specs) or form.type is not tuple or form.num_children != 2:
        return None
    if form.child(1).type is not dict:
        return None
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    told = list(signature.forward_arg_names or []) if signature is not None else []
    fixed = {place: one.arg.value for place, one in enumerate(specs) if isinstance(one.arg, ConstantArgument)}
    return CallForm(form, _first(told, form.child(0).num_children), fixed)


def form_of_call(parameters: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> CallForm:
    """The form of a call itself, whose tensors are inputs.

    Args:
        parameters: names of the parameters that may be given by position.
        args, kwargs: the inputs of the call.
    """
    leaves, form = pytree.tree_flatten((tuple(args), dict(kwargs)))
    fixed = {place: leaf for place, leaf in enumerate(leaves) if not isinstance(leaf, torch.Tensor)}
    return CallForm(form, _first(parameters, len(args)), fixed)


def _first(names: Sequence[str], count: int) -> tuple[str, ...]:
    """As many names; a number for what has none."""
    return tuple(names[place] if place < len(names) else f"#{place}" for place in range(count))


def _unpacked(positional: pytree.TreeSpec, args: Sequence[object], kwargs: Mapping[str, object]) -> Sequence[object]:
    """The inputs by position where a call gives all of them as one tuple, as torch's interpreters do."""
    is_whole = len(args) == 1 and not kwargs and isinstance(args[0], (list, tuple)) and positional.num_children > 0
    if is_whole and positional.child(0).is_leaf() and len(args[0]) == positional.num_children:  # type: ignore[arg-type]
        return args[0]  # type: ignore[return-value]  # a list or a tuple
    return args


def _by_name(names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """The inputs of a call by name: positional ones take the names that no keyword has, in order.

    Raises:
        ValueError: for more inputs, or others, than there are names, unless they are None.
    """
    free = [name for place, name in enumerate(names) if place < len(args) or name not in kwargs]
    twice = [name for name in free[: len(args)] if name in kwargs]
    if twice:
        raise ValueError(f"{', '.join(twice)} given by position and by name")
    if any(more is not None for more in args[len(free) :]):
        raise ValueError(f"{len(args)} inputs were given by position, and the model has {', '.join(names) or 'none'}")
    if unknown := [name for name, value in kwargs.items() if name not in names and value is not None]:
        raise ValueError(
            f"the model has no input {', '.join(unknown)}: its inputs are {', '.join(names) or 'none'}. Next step: "
            "give inputs the names or places that they had in the export, where each has to be given"
        )
    return {**dict(zip(free, args, strict=False)), **{name: one for name, one in kwargs.items() if name in names}}


class _Walk:
    """Flattens one input as the capture's form says."""

    def __init__(self, where: str) -> None:
        self._where = where

    def leaves(self, form: pytree.TreeSpec, value: object) -> list[object]:
        """The leaves of a value in the form's order."""
        if form.is_leaf():
            self._require(pytree.tree_is_leaf(value), "one value", value)
            return [value]
        children = self._children(form, value)
        return [
            leaf
            for (step, child), below in zip(children, form.children(), strict=True)
            for leaf in _Walk(self._where + step).leaves(below, child)
        ]

    def _children(self, form: pytree.TreeSpec, value: Any) -> list[tuple[str, object]]:
        """The children that the form has, each with the step to it."""
        kind = form.type
        if kind in _DICTS:
            self._require(isinstance(value, Mapping), "a dict", value)
            keys = form.context[1] if kind is defaultdict else form.context
            return [(f"[{key!r}]", value[key]) for key in self._all_of(keys, list(value), "keys")]
        if not pytree.tree_is_leaf(value):
            children, context = pytree.SUPPORTED_NODES[pytree._get_node_type(value)].flatten_fn(value)
            is_sequence = kind is namedtuple or issubclass(kind, (list, tuple))  # torch has one kind for named tuples
            if isinstance(value, (list, tuple)) and is_sequence:
                return self._by_place(children, form.num_children)
            if type(value) is kind:
                return self._of_container(form, children, context)
        self._require(False, f"of type {kind.__name__}", value)
        return []

    def _of_container(
        self, form: pytree.TreeSpec, children: Sequence[object], context: object
    ) -> list[tuple[str, object]]:
        """Children of a registered container: by name, where both name them; its other contents are not asked."""
        names, own = _names(form.type, form.context), _names(form.type, context)
        if names is None or own is None or (len(names), len(own)) != (form.num_children, len(children)):
            return self._by_place(children, form.num_children)
        by_name = dict(zip(own, children, strict=True))
        return [(f".{name}", by_name[name]) for name in self._all_of(names, own, "fields")]

    def _by_place(self, children: Sequence[object], count: int) -> list[tuple[str, object]]:
        if len(children) != count:
            raise ValueError(f"{self._where} has {count} entries in the model, and {len(children)} were given")
        return [(f"[{place}]", child) for place, child in enumerate(children)]

    def _all_of(self, wanted: Sequence[Any], given: Sequence[Any], what: str) -> Sequence[Any]:
        missing = [str(one) for one in wanted if one not in given]
        unknown = [str(one) for one in given if one not in wanted]
        if missing or unknown:
            told = [f"{_listed(missing)} missing"] * bool(missing) + [f"{_listed(unknown)} not among them"] * bool(
                unknown
            )
            has = f"the {what} {', '.join(map(str, wanted))}" if wanted else f"no {what}"
            raise ValueError(f"{self._where} has {has} in the model, and of what was given {' and '.join(told)}")
        return wanted

    def _require(self, holds: bool, wanted: str, value: object) -> None:
        if not holds:
            now = "None" if value is None else f"a {type(value).__name__}"
            raise ValueError(f"{self._where} is {wanted} in the model, and {now} was given")


def _names(kind: type, context: Any) -> list[str] | None:
    """The names of a container's children, where its context says them: those of a dataclass, or of a mapping."""
    if dataclasses.is_dataclass(kind) and isinstance(context, (list, tuple)) and len(context) == 2:
        context = context[0] if isinstance(context[0], (list, tuple)) else context
    elif isinstance(context, Mapping):
        context = context.get("names")
    is_named = isinstance(context, (list, tuple)) and all(isinstance(name, str) for name in context)
    return list(context) if is_named and len(set(context)) == len(context) else None


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
