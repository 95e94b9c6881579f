"""`x.shape[1:].numel()` in a model's code: a product of sizes, for each of which torch.Size asks its number.

Arrives: a function's code. Leaves: code of the same length in which calls of such names behind a dot go to functions
that are given what stands before the dot; and for each name what gives a function of the sizes, or None where nothing
is of them, for which the call is made as it was.
"""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_CACHE, _GLOBAL, _EXTENDED = dis.opmap["CACHE"], dis.opmap["LOAD_GLOBAL"], dis.opmap["EXTENDED_ARG"]
_METHOD = dis.opmap.get("LOAD_METHOD")
"""Python 3.11 has an instruction of its own; later ones have one bit in that of attributes."""
_ATTRIBUTE, _SWAP, _NOP = dis.opmap["LOAD_ATTR"], dis.opmap["SWAP"], dis.opmap["NOP"]
WIDE = 128
"""Names beyond this place take an instruction of two words."""


def _numel(owner: Any, *args: Any) -> Any:
    is_free = isinstance(owner, torch.Size) and not args and any(isinstance(one, torch.SymInt) for one in owner)
    return math.prod(owner) if is_free else None


FREE: Mapping[str, Callable[..., Any]] = {"numel": _numel}
"""Name behind the dot -> what it gives of sizes."""

NAMES: Mapping[str, str] = {name: f"__{name}_of_sizes__" for name in FREE}
"""Name behind the dot -> that of the function here."""


def plainly(name: str) -> Callable[..., Any]:
    """The call as it was, as a function of what stands before the dot."""

    def called(owner: Any, *args: Any, **options: Any) -> Any:
        return getattr(owner, name)(*args, **options)

    return called


def told(name: str, made: list[object]) -> Callable[..., Any]:
    """What is called in place of such a name.

    Args:
        name: the one behind the dot.
        made: is given what Python would not have made.
    """
    free = FREE[name]

    def called(owner: Any, *args: Any, **options: Any) -> Any:
        result = free(owner, *args) if not options else None
        if result is None:
            return getattr(owner, name)(*args, **options)
        made.append(result)
        return result

    return called


def redirected(words: bytearray, names: list[str]) -> None:
    """Changes instructions, and adds the names that they take.

    What a method's call has on the stack is the function and what stands before the dot: the function comes from the
    file's names instead. An instruction that looks a method up is followed by room for more than that.

    Args:
        words: a code's instructions.
        names: its names.
    """
    wanted = {names.index(name): other for name, other in NAMES.items() if name in names}
    for at in range(0, len(words), 2) if wanted else ():
        place = _method(words, at)
        if place not in wanted:
            continue
        if wanted[place] not in names:
            names.append(wanted[place])
        new = names.index(wanted[place])
        room = _room(words, at)
        if new >= WIDE or room < _ROOM + 1:
            continue
        given = [_GLOBAL, new * 2, *[_CACHE, 0] * _ROOM, _SWAP, 2, *[_NOP, 0] * (room - _ROOM - 1)]
        words[at : at + len(given)] = bytes(given)


def _method(words: Sequence[int], at: int) -> int | None:
    """The place of the name of a method that is looked up; None for any other instruction."""
    if at > 0 and words[at - 2] == _EXTENDED:
        return None
    if _METHOD is not None:
        return words[at + 1] if words[at] == _METHOD else None
    place, is_method = divmod(words[at + 1], 2)
    return place if words[at] == _ATTRIBUTE and is_method else None


def _room(words: Sequence[int], at: int) -> int:
    """How many words behind an instruction Python keeps for itself."""
    end = at + 2
    while end < len(words) and words[end] == _CACHE:
        end += 2
    return (end - at) // 2 - 1


def _looked_up() -> object:
    return NAMES


_WORDS = _looked_up.__code__.co_code
_ROOM = next(_room(_WORDS, at) for at in range(0, len(_WORDS), 2) if _WORDS[at] == _GLOBAL)
"""How many such words follow where a name of the file is looked up."""
