"""`int(...)` and `float(...)` of sizes and of data in a model's code: numbers that stay functions of these.

Arrives: a module, before torch captures it. Leaves: a context within which calls of Python's two conversions in the
model's functions give symbolic numbers for symbolic ones, and for tensors what `item()` gives. Python itself would ask
a size for the example's, and data for what they say, before torch hears of it. Only calls are changed: what a function
does with the types `int` and `float` besides (`isinstance`, `dtype=int`) stays as it is.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

import torch

from batch_export.exporter.capture.kinds import reached

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_WIDE = 128
"""Names beyond this place take an instruction of two words."""


_CALLED: Mapping[str, tuple[str, Callable[..., Any], Callable[[Any], Any]]] = {
    "int": ("__int_of_a_size__", builtins.int, torch.sym_int),
    "float": ("__float_of_a_size__", builtins.float, torch.sym_float),
}
"""Python's name -> its name here, what it is for plain numbers, and for symbolic ones."""


def _conversion(plain: Callable[..., Any], symbolic: Callable[[Any], Any], made: list[object]) -> Callable[..., Any]:
    def converted(*args: Any, **options: Any) -> Any:
        number = _number(args[0]) if len(args) == 1 and not options else None
        if number is None:
            return plain(*args, **options)
        made.append(symbolic(number))
        return made[-1]

    return converted


def _number(given: object) -> Any:
    """The symbolic number that something is or has; None where it is none."""
    if isinstance(given, torch.Tensor) and given.numel() == 1 and not given.is_complex():
        given = given.item()
    return given if isinstance(given, _SYMBOLIC) else None


@contextlib.contextmanager
def whole_numbers(module: torch.nn.Module) -> Iterator[list[object]]:
    """While open, calls of `int` and `float` in a model's functions keep sizes free; gives what came of such calls."""
    made: list[object] = []
    told = {name: _conversion(plain, symbolic, made) for name, plain, symbolic in _CALLED.values()}
    before = [(one, one.__code__, one.__globals__) for one in reached(module)]
    changed = [(one, code, names) for one, code, names in before if _with_calls(code, names) is not code]
    for one, code, names in changed:
        one.__code__ = _with_calls(code, names)
        names.update(told)
    try:
        yield made
    finally:
        for one, code, names in changed:
            one.__code__ = code
            for name in told:
                names.pop(name, None)


_MADE: dict[tuple[int, frozenset[str]], tuple[CodeType, CodeType]] = {}
"""By a code's identity and the names that its file has for itself: that code, which has to live on, and the new one."""


def _with_calls(code: CodeType, own: Mapping[str, object]) -> CodeType:
    """The same code with these calls in place of Python's; the code itself where there are none."""
    key = id(code), frozenset(name for name in _CALLED if name in own)
    if key not in _MADE:
        _MADE[key] = code, _made(code, own)
    return _MADE[key][1]


def _made(code: CodeType, own: Mapping[str, object]) -> CodeType:
    wanted = {name: other for name, (other, *_) in _CALLED.items() if name in code.co_names and name not in own}
    places = {code.co_names.index(name): other for name, other in wanted.items()}
    names, words = list(code.co_names), bytearray(code.co_code)
    for one in dis.get_instructions(code) if places else ():
        place = one.arg // 2 if one.opname == "LOAD_GLOBAL" and one.arg is not None else -1
        if place not in places or not (one.arg or 0) % 2:  # odd where the name is called at once
            continue
        if places[place] not in names:
            names.append(places[place])
        new = names.index(places[place])
        if place < _WIDE and new < _WIDE:
            words[one.offset + 1] = new * 2 + 1
    constants = tuple(_with_calls(one, own) if isinstance(one, CodeType) else one for one in code.co_consts)
    is_same = bytes(words) == code.co_code and all(map(lambda one, other: one is other, constants, code.co_consts))
    return code if is_same else code.replace(co_names=tuple(names), co_code=bytes(words), co_consts=constants)
