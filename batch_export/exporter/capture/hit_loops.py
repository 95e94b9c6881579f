"""Python's loops over what is not zero (`for expert in counts.nonzero():`), or over a list of it, captured as loops
over every place.

Nothing arrives. Leaves: a context in which such a loop runs once for each element that may not be zero, and what its
body writes to tensors is kept where the element is not zero. How often eager goes round is data; over which places it
may go is not. What a body does besides (names that go on from round to round, lists that grow, an end before the last
place) goes by the data still: then torch's own error for the loop stands.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from batch_export.exporter.capture import loop_bodies
from batch_export.exporter.capture.written_arguments import written_arguments

_MOST_PLACES = 256
"""The body is captured once for each place."""
_FINDS = frozenset({torch.nonzero, Tensor.nonzero, torch.argwhere, Tensor.argwhere})
_CONDITIONS = frozenset({torch.where})
_FLATTENS = frozenset(
    (
        *(torch.flatten, Tensor.flatten, torch.squeeze, Tensor.squeeze, Tensor.view, Tensor.reshape),
        *(Tensor.cpu, Tensor.detach),
    )
)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of a tensor of places: of which tensor's elements, and whether each is a row of indices."""

    of: Tensor
    as_rows: bool


_HERE = __file__.rpartition(os.sep)[0] + os.sep
_LISTED: tuple[Any, ...] = (Tensor, FunctionalTensor, FakeTensor)
"""The kinds of tensors of which a capture's functions make lists."""
Place = tuple[CodeType, int, int]
"""A place of a loop: the function's code, where in it the loop begins, and which of the elements."""


@dataclass(slots=True)
class _Seen:
    """What was met while a capture ran.

    Attributes:
        impossible: places that no loop goes to.
        found: tensors of places.
        ended: errors of loops that ended before their last place.
        left: the place at which a loop ended last, and the frame that it was in.
    """

    impossible: Collection[Place]
    found: Any = field(default_factory=WeakTensorKeyDictionary)
    ended: list[Exception] = field(default_factory=list)
    left: tuple[Place, FrameType] | None = None


_OPEN: ContextVar[_Seen | None] = ContextVar("_OPEN", default=None)
"""What the innermost capture met."""


@contextlib.contextmanager
def hit_loops(impossible: set[Place]) -> Iterator[None]:
    """Within, a loop over what is not zero decides nothing, where its body allows that.

    Args:
        impossible: places that are left out. Gets the place at which a loop that has gone to others fails of an index
            or a key, of which eager's own would fail: no data that the model takes lead there.

    NOTE: this replaces `Tensor.__iter__` and `tolist` while a model is captured.
    """
    seen = _Seen(frozenset(impossible))
    tensors: Any = Tensor
    own = tensors.__iter__
    lists = [(kind, kind.tolist) for kind in _LISTED if "tolist" in vars(kind)]

    def iterated(self: Tensor) -> Iterator[Tensor]:
        found = seen.found.get(self) if seen.found else None
        frame = sys._getframe(1)
        carried = None if found is None else loop_bodies.carried_names(frame)
        if found is None or carried is None:
            return own(self)  # type: ignore[no-any-return]
        return _each(_Loop(self, found, frame, carried, own, frame.f_lasti), seen)

    def listing(own_list: Callable[[Tensor], list[Any]]) -> Callable[[Tensor], Any]:
        def listed(self: Tensor) -> Any:
            found = seen.found.get(self) if seen.found else None
            if found is None or not loop_bodies.is_gone_over(_caller(sys._getframe(1))):
                return own_list(self)
            return _Numbers(self, found, lambda places: iter(own_list(places)), seen)

        return listed

    tensors.__iter__ = iterated
    for kind, own_list in lists:
        kind.tolist = listing(own_list)
    before = _OPEN.set(seen)
    try:
        with _Finding(seen):
            yield
    except (IndexError, KeyError) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if seen.left is not None and seen.left[0][-1] > 0 and any(seen.left[1] is frame for frame in frames):
            impossible.add(seen.left[0])
        raise
    finally:
        _OPEN.reset(before)
        tensors.__iter__ = own
        for kind, own_list in lists:
            kind.tolist = own_list
    if seen.ended:
        raise seen.ended[0]


def are_places(tensor: Tensor) -> bool:
    """Whether a tensor is the places of what is not zero, of which `hit_loops` makes lists while it is open."""
    seen = _OPEN.get()
    return seen is not None and bool(seen.found) and tensor in seen.found


class _Finding(TorchFunctionMode):
    """Notes which tensors are places of what is not zero."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of its own."""
        del types
        given = dict(kwargs or {})
        result = func(*args, **given)
        if func in _FINDS or (func in _CONDITIONS and len(args) + len(given) == 1):
            self._note(args[0] if args else given.get("input", given.get("condition")), result)
        elif func in _FLATTENS and args and isinstance(args[0], Tensor) and self._seen.found:
            known = self._seen.found.get(args[0])
            if known is not None and result.dim() == 1 and known.of.dim() == 1:
                self._seen.found[result] = _Found(known.of, as_rows=False)
        return result

    def _note(self, of: Any, result: Any) -> None:
        if not isinstance(of, Tensor) or not of.dim() > 0 or not _is_countable(of):
            return
        if isinstance(result, Tensor):
            self._seen.found[result] = _Found(of, as_rows=True)
        elif of.dim() == 1:
            self._seen.found[result[0]] = _Found(of, as_rows=False)


def _caller(frame: FrameType) -> FrameType:
    """Who asked for a list: others replace `tolist` as well."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame


def _is_countable(of: Tensor) -> bool:
    return all(type(size) is int for size in of.shape) and of.numel() <= _MOST_PLACES


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that begins: over which places, in which function, and which names it carries from round to round."""

    places: Tensor
    found: _Found
    frame: FrameType
    carried: Collection[str]
    own: Callable[[Tensor], Iterator[Any]]
    begins: int
    as_numbers: bool = False

    def place(self, index: Sequence[int], count: int) -> Any:
        """What the loop's name stands for at a place, the so manyth of all."""
        place = [*index] if self.found.as_rows else count
        return place if self.as_numbers else torch.tensor(place)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A list of places, which a loop is about to go over."""

    places: Tensor
    found: _Found
    own: Callable[[Tensor], Iterator[Any]]
    seen: _Seen

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        carried = loop_bodies.carried_names(frame)
        if carried is None:
            return self.own(self.places)
        loop = _Loop(self.places, self.found, frame, carried, self.own, frame.f_lasti, as_numbers=True)
        return _each(loop, self.seen)


def _each(loop: _Loop, seen: _Seen) -> Iterator[Any]:
    """Every place in turn; between two of them what the body wrote is taken back where the element is zero."""
    hits = loop.found.of.reshape(-1) != 0
    for place, index in enumerate(itertools.product(*map(range, loop.found.of.shape))):
        at = (loop.frame.f_code, loop.begins, place)
        if at in seen.impossible:
            continue
        names, containers = _names(loop.frame, loop.carried), _containers(loop.frame)
        body = _OnlyIf(hits[place])
        try:
            with body:
                yield loop.place(index, place)
        except GeneratorExit:
            try:
                loop.own(loop.places)
            except Exception as error:
                lines = TracebackType(error.__traceback__, loop.frame, loop.frame.f_lasti, loop.frame.f_lineno)
                seen.ended.append(error.with_traceback(lines))
            seen.left = at, loop.frame
            raise
        now = _names(loop.frame, loop.carried)
        stays = names.keys() == now.keys() and all(now[name] is value for name, value in names.items())
        if body.is_lost or not stays or any(_contents(one) != held for one, held in containers):
            yield from loop.own(loop.places)  # raises torch's error for the loop
            return


class _OnlyIf(TorchFunctionMode):
    """Keeps what is written to tensors where a truth value of the data holds.

    Attributes:
        is_lost: whether something was written of which that cannot be done.
    """

    def __init__(self, condition: Tensor) -> None:
        super().__init__()
        self.is_lost = False
        self._condition = condition

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of its own."""
        del types
        given = dict(kwargs or {})
        written = written_arguments(func, args, given)
        self.is_lost = self.is_lost or written is None
        before = [(one, one.clone()) for one in written or ()]
        result = func(*args, **given)
        for one, earlier in before:
            one.copy_(torch.where(self._condition, one, earlier))
        return result


def _names(frame: FrameType, names: Collection[str]) -> dict[str, object]:
    """What names of a function stand for; one that stands for nothing yet is not there."""
    return {name: value for name, value in frame.f_locals.items() if name in names}


def _containers(frame: FrameType) -> list[tuple[object, object]]:
    """The lists, dicts and sets that a function's names and the modules among them hold, with what is in them."""
    held = list(frame.f_locals.values())
    held += [value for one in held if isinstance(one, torch.nn.Module) for value in vars(one).values()]
    return [(one, _contents(one)) for one in held if isinstance(one, (list, dict, set))]


def _contents(container: Any) -> object:
    values = container.items() if isinstance(container, dict) else container
    return [tuple(map(id, one)) if isinstance(container, dict) else id(one) for one in values]
