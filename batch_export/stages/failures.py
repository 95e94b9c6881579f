"""From an exception to a failure: what went wrong as a plain value. The class of the exception decides, never its text.

Exceptions of any stage arrive, `record.Failure` leaves. Nothing is raised or printed here.
"""

from __future__ import annotations

import errno
import re
import socket
import traceback
from typing import cast, get_args

from batch_export.action import Mnemonic
from batch_export.errors import LibraryMissingError, ModelError, OnnxExporterError, RunError, StoreError
from batch_export.record import Failure, Stage
from batch_export.runtime.worker.failures import WorkerEndedError
from batch_export.steps import FAILURE_STAGE
from batch_export.words import joined, telling_lines, without_colours

_ENVIRONMENT_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS}
    | {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
)
_STAGES: frozenset[str] = frozenset(get_args(Stage))
_MESSAGE_CHARACTERS = 400
_LEAST_CHARACTERS = 150
_LINE_CHARACTERS = 160
_ANNOUNCED_CHARACTERS = 60
"""What is left at least of lines that announce another."""
_PARENTHESIS_CHARACTERS = 80
"""By how much a message may grow for the end of a parenthesis."""
_LINE_OF_THE_MODEL = re.compile(r"\(at [^()]+:\d+\)")
_DETAILS_CHARACTERS = 20_000
_READ_CHARACTERS = 100_000


def failure_from(error: BaseException, mnemonic: Mnemonic) -> Failure:
    """Returns the failure that an exception of a step stands for.

    Args:
        error: what was raised; `SystemExit` and the like included.
        mnemonic: the step.
    """
    details = formatted(error)
    core = error if isinstance(error, OnnxExporterError) else None
    return Failure(
        stage=_stage(error, mnemonic),
        error_class=type(error).__name__,
        message=short_line(_text(error)),
        details=_plain(without_colours(details[-_DETAILS_CHARACTERS:])),
        source=core.source if core else None,
        node=core.node if core else None,
        operator=core.operator if core else None,
    )


def formatted(error: BaseException) -> str:
    """Returns the traceback with the causes, as Python prints it; of a message that is huge only the beginning.

    Python's own formatting makes a string of every line of a message, thirty times the message's size.
    """
    if all(len(_text(one)) <= _READ_CHARACTERS for one in _chain(error)):
        return "".join(traceback.format_exception(error))
    parts = []
    for one in reversed(_chain(error)):
        parts += traceback.format_tb(one.__traceback__)
        parts.append(f"{type(one).__qualname__}: {_text(one)[:_MESSAGE_CHARACTERS]}...\n")
    return "".join(parts)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it came from, newest first."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or one.__context__
    return found


def _stage(error: BaseException, mnemonic: Mnemonic) -> Stage:
    if isinstance(error, OnnxExporterError):
        return cast("Stage", error.stage) if error.stage in _STAGES else FAILURE_STAGE[mnemonic]
    if isinstance(error, ModelError):
        return "environment" if any(map(_is_of_the_moment, _chain(error))) else "model"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, WorkerEndedError):
        return "crash"
    if isinstance(error, StoreError | RunError | LibraryMissingError) or _is_of_the_moment(error):
        return "environment"
    return FAILURE_STAGE[mnemonic]


def _is_of_the_moment(error: BaseException) -> bool:
    """Whether it says something of this machine now, such as a full disk, or of another one that is not reached."""
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        return True
    return isinstance(error, OSError) and error.errno in _ENVIRONMENT_ERRNOS


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide the error itself
        text = ""
    if isinstance(error, SystemExit):
        return f"the model's code called sys.exit({error.code!r}); let it return, or raise an exception that says why"
    if isinstance(error, KeyboardInterrupt):
        return "the model's code raised KeyboardInterrupt, which nobody at the keyboard did"
    return text or f"{type(error).__name__} without a message; the details have the traceback"


def short_line(text: str) -> str:
    """Returns what an error says (`telling_lines`) in 400 characters or so.

    The model's line and what to do next are never cut, the last line that tells is cut after those that announce it,
    and no cut is made inside parentheses.
    """
    lines = [_plain(line) for line in telling_lines(text) or ["(no message)"]]
    whole = joined(lines)
    if len(whole) <= _MESSAGE_CHARACTERS:
        return whole
    last = lines[-1]
    announced = whole.removesuffix(last).rstrip()
    room = max(_MESSAGE_CHARACTERS - len(last) - 1, _ANNOUNCED_CHARACTERS)
    announced = f"{_cut(announced, room)} " if announced else ""
    return announced + _shortened(last, _MESSAGE_CHARACTERS)


def _shortened(line: str, most: int) -> str:
    if len(line) <= most:
        return line
    before, word, step = line.rpartition("Next step: ")
    step = f" {word}{step}" if word and len(step) <= _MESSAGE_CHARACTERS else ""
    *_, place = ["", *_LINE_OF_THE_MODEL.findall(before or line)]
    place = f" {place}" if len(place) <= _LINE_CHARACTERS else ""
    cut = _cut(line, max(most - len(place) - len(step), _LEAST_CHARACTERS))
    if place.strip() in cut:
        place, cut = "", _cut(line, max(most - len(step), _LEAST_CHARACTERS))
    return f"{cut}{place}{step}"


def _cut(text: str, room: int) -> str:
    """The text in that many characters, a few more or less where a parenthesis would be left open."""
    if len(text) <= room:
        return text
    kept = text[: room - len("...")]
    opened: list[int] = []
    for place, one in enumerate(kept):
        if one == "(":
            opened.append(place)
        elif one == ")" and opened:
            opened.pop()
    if opened:
        closed = _closing(text, len(kept), len(opened))
        if closed <= len(kept) + _PARENTHESIS_CHARACTERS:
            kept = text[:closed]
        elif opened[0] > len(kept) // 2:
            kept = text[: opened[0]]
    return f"{kept.rstrip()}..." if len(kept) < len(text) else kept


def _closing(text: str, start: int, depth: int) -> int:
    """The place after the one that closes all of `depth` open ones; beyond the text where none does."""
    for place in range(start, min(len(text), start + _PARENTHESIS_CHARACTERS)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return len(text) + _PARENTHESIS_CHARACTERS


def _plain(text: str) -> str:
    """Returns the text with what UTF-8 cannot hold (lone surrogates) replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
