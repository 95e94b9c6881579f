"""Attributes of modules to which rounds of a loop give other values (`self.mem = self.mem * beta + x`): they go on.

Arrives: a round as a function, and what it reads besides. Leaves: which attributes those are, and a round that takes
them from the round before it and gives them to the next one. Whatever else a round changes in modules, lists and the
like is said.
"""

from __future__ import annotations

import contextlib
import dis
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.begun_numbers import NUMBERS, copied, trying, writes_so_far
from batch_export.exporter.capture.loop_pieces import SizeByDataError
from batch_export.exporter.capture.own_attributes import modules_of

Body = Callable[..., tuple[Any, Sequence[Tensor]]]
_HELD = (list, dict, set, deque)
_PARTS = ("_parameters", "_modules", "_forward_hooks", "_forward_pre_hooks")
_MISSING: Final = object()
"""In place of an attribute that is not there."""
_BEFORE = frozenset(("__init__", "__setstate__", "reset_parameters", "train", "flatten_parameters"))
"""Methods that no round calls."""


class _Held:
    """What modules, and lists, dicts and sets, hold at one moment."""

    def __init__(self, others: Sequence[Any]) -> None:
        roots = [one for one in others if isinstance(one, torch.nn.Module)]
        modules = {id(one): one for root in roots for _, one in modules_of(root)}
        self._modules = list(modules.values())
        self._attributes = [_attributes(one) for one in self._modules]
        self._parts = [[dict(vars(one)[part]) for part in _PARTS] for one in self._modules]
        inner = [value for each in self._attributes for value in each.values()]
        self._contents = [(one, _content(one)) for one in (*inner, *others) if isinstance(one, _HELD)]

    def changed(self) -> list[tuple[torch.nn.Module, str]]:
        """The attributes that are other objects by now."""
        found = []
        for module, before in zip(self._modules, self._attributes, strict=True):
            now = _attributes(module)
            names = [name for name in {**before, **now} if before.get(name, _MISSING) is not now.get(name, _MISSING)]
            found += [(module, name) for name in names]
        return found

    def check(self) -> None:
        """Raises where something else is another one."""
        parts = [[dict(vars(one)[part]) for part in _PARTS] for one in self._modules]
        if any(map(_differ, self._parts, parts)):
            raise SizeByDataError("a round changes the weights, the parts or the hooks of a module")
        for one, before in self._contents:
            if _differ(before, _content(one)):
                kind = type(one).__name__
                raise SizeByDataError(f"a round changes a {kind} that is there before the loop")

    def put_back(self) -> None:
        """Gives modules their attributes again."""
        for module, before in zip(self._modules, self._attributes, strict=True):
            for name in [name for _, name in self.changed() if _ is module]:
                _set(module, name, before.get(name, _MISSING))


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """A module's own attributes, and its buffers."""
    own = {name: one for name, one in vars(module).items() if name not in _OF_EVERY_MODULE}
    return {**own, **module._buffers}


_OF_EVERY_MODULE = frozenset((*vars(torch.nn.Module()), "_flat_weights"))
"""And what recurrent layers of torch list anew when they run."""


def _content(one: Any) -> Any:
    """What a list or the like holds."""
    return list(one.items()) if isinstance(one, dict) else list(one)


def _differ(these: Any, those: Any) -> bool:
    """Whether two contents are of different objects."""
    some, others = pytree.tree_leaves(these), pytree.tree_leaves(those)
    return len(some) != len(others) or any(one is not other for one, other in zip(some, others, strict=True))


def _set(module: torch.nn.Module, name: str, value: Any) -> None:
    if value is not _MISSING:
        setattr(module, name, value)
    elif name in vars(module) or name in module._buffers:
        delattr(module, name)


@dataclass(frozen=True, slots=True)
class ModuleStates:
    """Attributes of modules that go on from round to round; there may be none.

    Attributes:
        where: the modules, and the attributes' names.
        others: what a round reads besides.
        begun: what the first round begins with; None where there is no such attribute.
        are_there: which of them are there before the first round.
    """

    where: tuple[tuple[torch.nn.Module, str], ...]
    others: Sequence[Any]
    begun: tuple[Any, ...]
    are_there: tuple[bool, ...] = ()

    @classmethod
    def of(cls, body: Body, carried: Sequence[Any], rows: Sequence[Tensor], others: Sequence[Any]) -> ModuleStates:
        """Those that a round changes when it is run, which it is only if it may change some.

        Args:
            body: the round; whatever it raises is left to be raised when it is captured.
            carried: what the first round begins with.
            rows: tensors like what it reads at the step's place.
            others: whatever else it reads.

        Raises:
            SizeByDataError: it changes something else, too.
        """
        if any(hasattr(type(one), "__next__") for one in others):
            raise SizeByDataError("a round takes elements of an iterator")
        if not _may_change(body, others):
            return cls((), others, ())
        before, found = _Held(others), dict[tuple[int, str], torch.nn.Module]()
        step = torch.zeros((), dtype=torch.int64)
        try:
            with contextlib.suppress(Exception), trying():
                again, _ = body(copied(carried), tuple(rows), step, True)
                body(copied(again), tuple(rows), step, False)
            found = {(id(module), name): module for module, name in before.changed()}
            before.check()
        finally:
            before.put_back()
        where = tuple((module, name) for (_, name), module in found.items())
        begun = tuple(_attributes(module).get(name) for module, name in where)
        for (module, name), one in zip(where, begun, strict=True):
            if not all(map(_goes_on, pytree.tree_leaves(one))):
                raise SizeByDataError(f"a round changes `{name}` of {type(module).__name__}, which is no tensor")
        return cls(where, others, begun, tuple(name in _attributes(module) for module, name in where))

    def on(self, body: Body) -> Body:
        """A round that takes these attributes behind whatever else goes on, and gives them there."""
        count = len(self.where)

        @functools.wraps(body)
        def with_states(carried: Sequence[Any], slices: Any, step: Any, is_first: bool) -> Any:
            before = _Held(self.others)
            given = [
                value.clone() if type(begun) in NUMBERS and isinstance(value, Tensor) else value  # `+=` gives another
                for begun, value in zip(self.begun, list(carried)[len(carried) - count :], strict=True)
            ]
            tensors = [
                (one, writes_so_far(one))
                for begun, value in zip(self.begun, given, strict=True)
                for one in pytree.tree_leaves(value)
                if isinstance(one, Tensor) and type(begun) not in NUMBERS
            ]
            try:
                self.put(given)
                now, made = body(tuple(carried)[: len(carried) - count], slices, step, is_first)
                before.check()
                if not {(id(one), name) for one, name in before.changed()} <= {
                    (id(one), name) for one, name in self.where
                }:
                    raise SizeByDataError("rounds change other attributes of modules than the first one")
                if any(writes_so_far(one) != times for one, times in tensors):
                    raise SizeByDataError("a round writes to a tensor that is an attribute of a module")
                states = [_attributes(module).get(name) for module, name in self.where]
            finally:
                before.put_back()
            return (*now, *states), made

        return with_states

    def put(self, values: Sequence[Any]) -> None:
        """Gives modules what a round leaves."""
        for (module, name), value, is_there in zip(self.where, values, self.are_there, strict=True):
            _set(module, name, value if is_there or value is not None else _MISSING)


def _goes_on(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, Tensor) or type(leaf) in NUMBERS


def _may_change(body: Body, others: Sequence[Any]) -> bool:
    """Whether a round, or a method of what it reads, gives attributes values."""
    roots = [one for one in others if isinstance(one, torch.nn.Module)]
    kinds = {type(one) for root in roots for _, one in modules_of(root)}
    return bool(roots) and (_stores(body.__code__) or any(_has_stores(kind) for kind in kinds))


def _has_stores(kind: type) -> bool:
    if kind not in _STORING:
        _STORING[kind] = _is_storing(kind)
    return _STORING[kind]


_STORING: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _is_storing(kind: type) -> bool:
    known = torch.nn.Module.__mro__
    own = [one for one in kind.__mro__ if one not in known and not one.__module__.startswith("torch.")]
    return any(_stores(method.__code__) for one in own for method in _methods(one))


def _methods(kind: type) -> Iterator[FunctionType]:
    return (one for name, one in vars(kind).items() if isinstance(one, FunctionType) and name not in _BEFORE)


def _stores(code: CodeType) -> bool:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return _STORE in code.co_code[::2] or any(map(_stores, inner))


_STORE = dis.opmap["STORE_ATTR"]
