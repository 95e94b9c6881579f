"""`x.__class__` in a model's code: what it is in eager, and not the class of what stands for a tensor or a size.

Arrives: a function's code. Leaves: code of the same length in which what stands before `.__class__` goes through a
constant that answers (`kind_answers.py`); objects cannot be told to answer themselves, as `type` is a name to replace.
Code is made once, and what it was made from can be asked for.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

from batch_export.exporter.capture.kind_answers import class_of
from batch_export.exporter.capture.loop_code import BODY

_NAME = "__class__"


class _Reader:
    """What `constant @ one` gives, in one instruction, is what `one.__class__` is."""

    def __matmul__(self, one: Any) -> Any:
        return class_of(one)


_READER = _Reader()


def _product(left: Any, right: Any) -> Any:
    return left @ right


_READ, _EXTENDED, _CACHE = dis.opmap["LOAD_ATTR"], dis.opmap["EXTENDED_ARG"], dis.opmap["CACHE"]
_CONSTANT, _SWAP, _NOP = dis.opmap["LOAD_CONST"], dis.opmap["SWAP"], dis.opmap["NOP"]
_AT = next(one.offset for one in dis.get_instructions(_product) if one.opname == "BINARY_OP")
_TEMPLATE = _product.__code__.co_code[_AT:]
_PRODUCT = _TEMPLATE[: 2 + 2 * next(at for at in range(99) if _TEMPLATE[2 + 2 * at] != _CACHE)]
"""The instruction with the room that Python keeps behind it."""
_IS_SHIFTED = "LOAD_METHOD" not in dis.opmap
"""Whether one bit of what LOAD_ATTR takes says that a method is looked up: what is called at once stays as it is."""

_MADE: dict[int, tuple[CodeType, CodeType]] = {}
"""By a code's identity: that code, which has to live on, and the new one."""
_WRITTEN: dict[int, CodeType] = {}
"""By the identity of a new code: the one that it was made from."""


def as_written(code: CodeType) -> CodeType:
    """The code that some code was made from, or the code itself."""
    return _WRITTEN.get(id(code), code)


def with_reads(code: CodeType) -> CodeType:
    """The same code with answers in place of `.__class__`; the code itself where there is none."""
    if id(code) not in _MADE:
        made = _made(code)
        _MADE[id(code)] = code, made
        if made is not code:
            _WRITTEN[id(made)] = code
    return _MADE[id(code)][1]


def _made(code: CodeType) -> CodeType:
    if code.co_name.startswith(BODY):  # dynamo reads it, and knows the answers
        return code
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    if not inner and _NAME not in code.co_names:
        return code
    constants = tuple(with_reads(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    if _NAME in code.co_names:
        words = bytearray(code.co_code)
        _redirect(words, code.co_names.index(_NAME), len(constants))
        if words != code.co_code:
            constants, depth = (*constants, _READER), code.co_stacksize + 1
            return code.replace(co_code=bytes(words), co_consts=constants, co_stacksize=depth)
    is_same = all(map(lambda one, other: one is other, constants, code.co_consts))
    return code if is_same else code.replace(co_consts=constants)


def _redirect(words: bytearray, name: int, place: int) -> None:
    """Changes the instructions that read an attribute of this name.

    Args:
        words: a code's instructions.
        name: the place of the name.
        place: that of the constant.
    """
    taken = name * 2 if _IS_SHIFTED else name
    given = [*([_EXTENDED, place >> 8] if place > 255 else []), _CONSTANT, place & 255, _SWAP, 2, *_PRODUCT]
    longer = 0
    for at in range(0, len(words), 2):
        if words[at] == _EXTENDED:
            longer = (longer | words[at + 1]) << 8
            continue
        before, longer = longer, 0
        if words[at] != _READ or before | words[at + 1] != taken:
            continue
        end = at + 2
        while end < len(words) and words[end] == _CACHE:
            end += 2
        if len(given) > end - at:
            continue
        words[at:end] = bytes([*given, *[_NOP, 0] * ((end - at - len(given)) // 2)])
        while at and before:
            at, before = at - 2, before >> 8
            words[at], words[at + 1] = _NOP, 0
