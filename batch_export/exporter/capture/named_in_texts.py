"""Whole numbers that stand in a model's names and texts: `self.w12`, `{"k12": ...}`, `"3x12"`.

Arrives: a model whose code makes text of sizes, and the sizes at which something may be tried. Leaves: further sizes,
at which such a text may be one of the model's own: a name that is looked up is there at one size alone. Nothing is run.
Not all are tried where a file has many: the names of the model come first, then the texts of its own methods and of the
functions that it holds, and what else these may come to is last.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType

import torch

from batch_export.exporter.capture.guard_points import Point
from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.kinds import reached
from batch_export.exporter.capture.own_attributes import modules_of

_NUMBER = re.compile(r"\d+")
_LARGEST = 4096
_LONGEST = 40
"""Texts up to this length are looked at; longer ones are messages and documentation."""
_MOST = 48
_ORDERS = 6


def numbers_in_texts(module: torch.nn.Module) -> list[tuple[int, ...]]:
    """Returns the numbers of each name and text of a model that has any, in their order."""
    found: dict[tuple[int, ...], None] = {}
    for text in itertools.chain(_names(module), _texts(module)):
        numbers = tuple(map(int, _NUMBER.findall(text))) if len(text) <= _LONGEST else ()
        if numbers and max(numbers) <= _LARGEST:
            found[numbers] = None
    return list(found)


def points(numbers: Sequence[tuple[int, ...]], axes: Sequence[str]) -> list[Point]:
    """Returns sizes of axes that are such numbers.

    Args:
        numbers: those of each text.
        axes: the axes that may have them.
    """
    found: list[Point] = []
    for some in numbers:
        orders = itertools.permutations(axes, len(some)) if len(some) <= len(axes) else ()
        found += [dict(zip(order, some, strict=True)) for order in itertools.islice(orders, _ORDERS)]
    return found[:_MOST]


def _names(module: torch.nn.Module) -> Iterator[str]:
    for _, one in modules_of(module):
        for held in (vars(one), one._parameters, one._buffers, one._modules, *vars(one).values()):
            yield from (key for key in held if isinstance(key, str)) if type(held) is dict else ()


def _texts(module: torch.nn.Module) -> Iterator[str]:
    for function in itertools.chain(_held(module), reached(module)):
        yield from _constants(function.__code__)


def _held(module: torch.nn.Module) -> Iterator[FunctionType]:
    """The methods of a model's own classes, and the functions that its modules hold."""
    for _, owner in modules_of(module):
        kinds = (kind for kind in type(owner).__mro__ if not kind.__module__.startswith("torch."))
        for one in itertools.chain(vars(owner).values(), *(vars(kind).values() for kind in kinds)):
            function = getattr(one, "__func__", one)
            if isinstance(function, FunctionType) and is_users(function.__code__.co_filename):
                yield function


def _constants(code: CodeType) -> Iterator[str]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _constants(one)
        elif isinstance(one, str):
            yield one
        elif isinstance(one, (tuple, frozenset)):
            yield from (each for each in one if isinstance(each, str))
