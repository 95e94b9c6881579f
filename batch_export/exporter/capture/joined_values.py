"""What the ways through a model give, as values that are chosen by the model's decisions.

Arrives: a tree of ways. Leaves: for each result one value that is right on all ways. What both ways of a decision do
alike behind it, with operands that may differ, is one call that reads chosen operands: `f(x) if c else f(y)` is
`f(x if c else y)`. Nothing is captured or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.numbered_values import Call, Value, draws, values_in, with_others
from batch_export.exporter.capture.path_tree import Choice, Constant, Gathered, Result, Tree

_OF_MEMORY = ("as_strided", "stride", "storage_offset")
"""Parts of the names of operators that go by how a tensor lies in memory, which a choice changes."""

Pair = tuple[int, int]


class Joined:
    """The results of all ways as one.

    Args:
        gathered: the values of the ways.
        tree: the ways.
        shares: whether what both ways do alike is done once, behind the choice.

    Attributes:
        results: of the model, what it writes first.
        effects: calls for nothing but their effect, on all ways.
        effects_of: what a choice goes by -> those that are made on one way only, for true and for false.

    Raises:
        OneWayOnlyError: there is a result that cannot be chosen.
    """

    def __init__(self, gathered: Gathered, tree: Tree, *, shares: bool) -> None:
        self._gathered, self._numbers, self._shares = gathered, gathered.numbers, shares
        self.effects_of: dict[int, tuple[list[int], list[int]]] = {}
        self._before: set[int] = set()
        self._joined: dict[tuple[int, int, int], int | None] = {}
        self.results, self.effects = self._of(tree)

    def _of(self, tree: Tree) -> tuple[list[Result], list[int]]:
        if not isinstance(tree, Choice):
            return list(self._gathered.results(tree)), self._gathered.effects(tree)
        asked = self._gathered.asked(tree)
        (true, true_effects), (false, false_effects) = self._of(tree.if_true), self._of(tree.if_false)
        orders = [set(self._gathered.orders[id(way)]) for way in tree.ways]
        self._before = set.intersection(*orders)
        self._joined.clear()
        effects = self._of_effects(asked, true_effects, false_effects)
        results = [self._result(tree, asked, one, other) for one, other in zip(true, false, strict=True)]
        return results, effects

    def _result(self, choice: Choice, asked: int, one: Result, other: Result) -> Result:
        if isinstance(one, int) and isinstance(other, int):
            found = self._value(asked, one, other)
            if found is not None:
                return found
        if isinstance(one, Constant) and isinstance(other, Constant) and _is_one(one, other):
            return one
        kinds = list(dict.fromkeys((self._kind(one), self._kind(other))))
        if len(kinds) > 1:
            raise OneWayOnlyError(f"{choice.decision.text} chooses between {' and '.join(kinds)}")
        if not isinstance(one, int) or not isinstance(other, int) or not self._is_tensor(one):
            raise OneWayOnlyError(f"{choice.decision.text} chooses between numbers, and only tensors can be chosen")
        return self._numbers.chosen(asked, one, other)

    def _of_effects(self, asked: int, true: list[int], false: list[int]) -> list[int]:
        effects = [one for one in true if one in false]
        alone: tuple[list[int], list[int]] = [], [one for one in false if one not in effects]
        for one in true:
            if one in effects:
                continue
            found = ((other, self._effect(asked, one, other)) for other in alone[1])
            other, joined = next(((other, new) for other, new in found if new is not None), (-1, None))
            if joined is None:
                alone[0].append(one)
            else:
                effects.append(joined)
                alone[1].remove(other)
        self.effects_of.setdefault(asked, alone)
        return effects

    def _effect(self, asked: int, one: int, other: int) -> int | None:
        pairs = self._pairs(one, other)
        if pairs is None or any(self._value(asked, *pair) is None for pair in pairs):
            return None
        return self._made(asked, one, other)

    def _value(self, asked: int, one: int, other: int) -> int | None:
        """One value of two; None where none can be."""
        stack = [(one, other)]
        while stack:
            pair = stack[-1]
            if (asked, *pair) in self._joined:
                stack.pop()
                continue
            pairs = [] if pair[0] == pair[1] else self._pairs(*pair)
            missing = [some for some in pairs or () if (asked, *some) not in self._joined]
            if missing:
                stack.extend(missing)
                continue
            self._joined[asked, *pair] = self._last(asked, pair, pairs)
            stack.pop()
        return self._joined[asked, one, other]

    def _last(self, asked: int, pair: Pair, pairs: list[Pair] | None) -> int | None:
        """As `_value`, where all operands are one already, or cannot be."""
        if pair[0] == pair[1]:
            return pair[0]
        if pairs is not None and all(self._joined[asked, *some] is not None for some in pairs):
            return self._made(asked, *pair)
        weights = [self._numbers.given.get(one, ("",))[0] in ("weight", "constant") for one in pair]
        if all(weights) or not all(map(self._is_tensor, pair)) or not self._are_alike(*pair):
            return None
        return self._numbers.chosen(asked, *pair)

    def _made(self, asked: int, one: int, other: int) -> int:
        """The call, or the choice, that both are, of joined operands."""
        joined = {pair: self._joined[asked, *pair] for pair in self._pairs(one, other) or ()}
        numbers = self._numbers
        if one in numbers.choices:
            some, others = numbers.choices[one], numbers.choices[other]
            found = [joined[pair] for pair in _of_choices(some, others)]
            return numbers.chosen(*(number for number in found if number is not None))
        call, second = numbers.calls[one], numbers.calls[other]
        places = iter(_zipped(call, second))
        args, kwargs = with_others((call.args, call.kwargs), lambda _: Value(joined[next(places)] or 0))
        return numbers.call(call, args, kwargs)

    def _pairs(self, one: int, other: int) -> list[Pair] | None:
        """The operands of two values that are computed alike, in pairs; None where they are not."""
        numbers = self._numbers
        if not self._shares or one in self._before or other in self._before:
            return None
        if one in numbers.choices and other in numbers.choices:
            found = _of_choices(numbers.choices[one], numbers.choices[other])
            return found if self._are_alike(one, other) else None
        if one not in numbers.calls or other not in numbers.calls:
            return None
        call, second = numbers.calls[one], numbers.calls[other]
        if call.target != second.target or draws(call.node) or any(part in str(call.target) for part in _OF_MEMORY):
            return None
        if _shape(call) != _shape(second) or not self._are_alike(one, other):
            return None
        return list(_zipped(call, second))

    def _are_alike(self, one: int, other: int) -> bool:
        return _alike(self._numbers.known(one), self._numbers.known(other))

    def _is_tensor(self, number: int) -> bool:
        return isinstance(self._numbers.known(number), torch.Tensor)

    def _kind(self, result: Result) -> str:
        if isinstance(result, Constant):
            return f"{result.value!r}"
        value = self._numbers.known(result)
        if isinstance(value, torch.Tensor):
            return f"a tensor of {str(value.dtype).removeprefix('torch.')} with {value.dim()} axes"
        return "a number of the data"


def _is_one(one: Constant, other: Constant) -> bool:
    return type(one.value) is type(other.value) and bool(one.value == other.value)


def _zipped(one: Call, other: Call) -> Iterator[Pair]:
    """The values in the arguments of two calls, place by place."""
    return zip(values_in((one.args, one.kwargs)), values_in((other.args, other.kwargs)), strict=True)


def _of_choices(one: Any, other: Any) -> list[Pair]:
    return [(one.asked, other.asked), (one.if_true, other.if_true), (one.if_false, other.if_false)]


def _shape(call: Call) -> str:
    """The arguments of a call but for the values."""
    return repr(with_others((call.args, sorted(call.kwargs.items())), lambda _: Value(0)))


def _alike(one: Any, other: Any) -> bool:
    """Whether two values have the same kind, and tensors the same sizes."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and _described(one) == _described(other)
    if isinstance(one, (list, tuple)):
        if not isinstance(other, (list, tuple)) or len(one) != len(other):
            return False
        return all(map(_alike, one, other))
    return type(one) is type(other)


def _described(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.dtype, tensor.layout, tensor.device, str(tuple(tensor.shape)))
