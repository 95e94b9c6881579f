"""Which names of a function a running loop of it carries from round to round, by the function's bytecode.

Arrives: the frame in which a loop begins. Leaves: names that the body stores and that are read again, in a later round
or behind the loop, before they are stored anew. Nothing is run or changed.
"""

from __future__ import annotations

import ast
import dis
import re
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType

_BEGINS, _NEXT = "GET_ITER", "FOR_ITER"
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_ELSEWHERE = re.compile(r"(STORE|DELETE)_(ATTR|GLOBAL|NAME)|(LIST_APPEND|SET_ADD|MAP_ADD|YIELD_VALUE)$")
"""What a body does to other places than its function's names and what these hold."""
_FURTHER = re.compile(r"DELETE_ATTR|(STORE|DELETE)_(GLOBAL|NAME)|(LIST_APPEND|SET_ADD|MAP_ADD|YIELD_VALUE)$")
"""The same but for attributes that it gives values."""
_OUTER = re.compile(r"(STORE|DELETE)_DEREF")
"""The same where a name is one of a function around it; else a function within, or a comprehension, reads it."""
_LOCAL = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|DEREF|CLOSURE)")


def carried_names(frame: FrameType) -> frozenset[str] | None:
    """The names that the loop at whose beginning a frame is carries on.

    None where its body reaches further than its function's names, and where the frame is at no beginning of a `for`
    over the object itself (but of an `enumerate` or a list of it).
    """
    instructions = list(dis.get_instructions(frame.f_code))
    begins = next((index for index, one in enumerate(instructions) if one.offset == frame.f_lasti), None)
    if begins is None or instructions[begins].opname != _BEGINS or frame.f_code.co_name.startswith("<"):
        return None
    return _carried(instructions, begins, frame.f_code.co_freevars, _ELSEWHERE)


def is_gone_over(frame: FrameType) -> bool:
    """Whether what the call that a frame is at gives is nothing but gone over by a `for`."""
    instructions = list(dis.get_instructions(frame.f_code))
    behind = sum(one.offset <= frame.f_lasti for one in instructions)  # the call has room of its own behind it
    begins = behind < len(instructions) and instructions[behind].opname == _BEGINS
    return begins and _for(instructions, behind) is not None


def carried_from(code: CodeType, loop: ast.For | ast.While) -> frozenset[str] | None:
    """The same of the one loop of a function that begins at the lines of a statement; None where there are others.

    Its body may give attributes values.
    """
    instructions = list(dis.get_instructions(code))
    over = loop.iter if isinstance(loop, ast.For) else loop
    first, last = over.lineno, over.end_lineno or over.lineno
    lines = ((index, one.positions.lineno or 0) for index, one in enumerate(instructions) if one.positions is not None)
    within = [index for index, line in lines if first <= line <= last]
    if isinstance(loop, ast.While):
        body = [instructions[index] for index in within]
        return _of_body(instructions, within[0], body, code.co_freevars, _FURTHER) if within else None
    found = [index for index in within if instructions[index].opname == _BEGINS]
    return _carried(instructions, found[0], code.co_freevars, _FURTHER) if len(found) == 1 else None


def _carried(
    instructions: list[dis.Instruction], begins: int, outer: Sequence[str], elsewhere: re.Pattern[str]
) -> frozenset[str] | None:
    start = _for(instructions, begins)
    if start is None:
        return None
    body = [one for one in instructions[start + 1 :] if one.offset < instructions[start].argval]
    return _of_body(instructions, start, body, outer, elsewhere)


def _of_body(
    instructions: list[dis.Instruction],
    start: int,
    body: Sequence[dis.Instruction],
    outer: Sequence[str],
    elsewhere: re.Pattern[str],
) -> frozenset[str] | None:
    if any(elsewhere.match(one.opname) or (_OUTER.match(one.opname) and one.argval in outer) for one in body):
        return None
    stored = {name for one in body for action, name in _names(one) if action != "LOAD"}
    return frozenset(stored & _read_later(instructions, start))


def _for(instructions: list[dis.Instruction], begins: int) -> int | None:
    """Where the loop asks for its next element, which is right behind its beginning."""
    after = (index for index in range(begins + 1, min(begins + 4, len(instructions))))
    return next((index for index in after if instructions[index].opname == _NEXT), None)


def _read_later(instructions: list[dis.Instruction], start: int) -> set[str]:
    """The names that are read at or behind an instruction before they are stored, whichever way is taken."""
    at = {one.offset: index for index, one in enumerate(instructions)}
    live: list[set[str]] = [set() for _ in instructions]
    is_changing = True
    while is_changing:
        is_changing = False
        for index in reversed(range(len(instructions))):
            after: set[str] = set().union(*(live[one] for one in _next(instructions, index, at)))
            for action, name in reversed(list(_names(instructions[index]))):
                after = after | {name} if action == "LOAD" else after - {name}
            if after != live[index]:
                live[index], is_changing = after, True
    return live[start]


def _next(instructions: list[dis.Instruction], index: int, at: dict[int, int]) -> Iterator[int]:
    one = instructions[index]
    if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
        yield at[one.argval]
        if one.opname.startswith("JUMP_") and "IF" not in one.opname:
            return
    if one.opname not in _ENDS and index + 1 < len(instructions):
        yield index + 1


def _names(one: dis.Instruction) -> Iterator[tuple[str, str]]:
    """What an instruction does to names of its function; some of Python's do two things."""
    actions = _LOCAL.findall(one.opname)
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    yield from zip(actions, names, strict=False)
