"""What sentences for people are made of: the lines of an error that tell, a text in one line, the nearest word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

_READ_CHARACTERS = 100_000
_CUTOFF = 0.5
_MOST_ANNOUNCEMENTS = 3
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_TRACEBACK = "Traceback (most recent call last):"
_CLASS = re.compile(r"<class '(?:[\w.<>]+\.)?(\w+)'>")
"""A class as Python prints it, as some errors show the class of what they came from."""
_ADVICE = re.compile(
    r"(?:^|(?<=[.!?] ))(?:next steps?|suggest(?:ions?|ed fix(?:es)?)|hints?|to fix this)\s*:\s*$", re.IGNORECASE
)
_BELOW = re.compile(r"(?:[-*\u2022]|\d+[.)])\s|(?:explanation|reason|cause|caused by|details?)\s*:\s*\w", re.IGNORECASE)
"""How an item of a list begins, or an explanation of the line above."""
_HEADING = "\0"
"""Stands at the end of a line that was a heading."""


def first_line(text: str) -> str:
    """Returns the first line that is not blank, without the blanks round it; empty when there is none.

    Of a text of millions of lines only the beginning is read: a string for each line would cost memory, which is
    limited where this is asked.
    """
    return next((line.strip() for line in text[:_READ_CHARACTERS].splitlines() if line.strip()), "")


def without_colours(text: str) -> str:
    """Returns the text without what colours it, or moves the cursor, on a terminal."""
    return _ANSI.sub("", text)


def telling_lines(text: str) -> list[str]:
    """Returns the lines of an error that say what is wrong, of which the last says it most exactly.

    These are the first line and what it only announces: `Found the following conflicts:` says nothing without the next
    one. A line announces when it ends with a colon, is a heading, or a list or an explanation stands below it. Left out
    are advice (`Next steps:` with its list), lines without a word, and of tracebacks all but the error.
    """
    lines = [line for line in without_colours(text[:_READ_CHARACTERS]).splitlines() if any(map(str.isalnum, line))]
    said: list[str] = []
    for line in _without_advice(_without_frames(lines)):
        if said and not said[-1].endswith(":") and not line.endswith(_HEADING) and not _BELOW.match(line):
            break
        said.append(line.removesuffix(_HEADING))
        if len(said) > _MOST_ANNOUNCEMENTS or _BELOW.match(line):
            break
    return said or [line.strip() for line in lines[:1]]


def telling_line(text: str) -> str:
    """Returns `telling_lines` as one line."""
    return joined(telling_lines(text))


def joined(lines: Sequence[str]) -> str:
    """Returns lines as sentences: a full stop comes after one that ends with a word."""
    return " ".join([*(f"{line}." if line[-1:].isalnum() else line for line in lines[:-1]), *lines[-1:]])


def _without_frames(lines: Iterable[str]) -> Iterator[str]:
    """The lines without indentation, and without those between the beginning of a traceback and its error."""
    depth: int | None = None
    for line in lines:
        indented = len(line) - len(line.lstrip())
        if line.strip() == _TRACEBACK:
            depth = indented
        elif depth is None or indented <= depth:
            depth = None
            yield _CLASS.sub(r"\1", line.strip())


def _without_advice(lines: Iterable[str]) -> Iterator[str]:
    """The lines without those that announce advice, and without the advice; a heading ends it."""
    advised = False
    for line in lines:
        advised = advised and not line.startswith("#")
        if advised:
            continue
        found = _ADVICE.search(line)
        advised = found is not None
        left = line[: found.start()].rstrip() if found else line
        if left.strip("# "):
            yield f"{left.strip('# ').removesuffix(':')}:{_HEADING}" if left.startswith("#") else left


def error_line(error: BaseException) -> str:
    """Returns what an error says in a line (see `telling_lines`), or else its class."""
    return telling_line(str(error)) or f"{type(error).__name__} without a message"


def class_and_line(error: BaseException) -> str:
    """Returns an error's class and the first line of what it says: `ValueError: too many values`."""
    line = telling_line(str(error))
    return f"{type(error).__name__}: {line}" if line else f"{type(error).__name__} without a message"


def one_line(text: str) -> str:
    """Returns the first line that is not blank when control characters are; colours go, each other becomes a blank."""
    lines = without_colours(text).splitlines()
    cleaned = ("".join(one if one.isprintable() else " " for one in line).strip() for line in lines)
    return next(filter(None, cleaned), "")


def nearest(word: str, known: Iterable[str], count: int = 3, *, least: float = _CUTOFF) -> list[str]:
    """Returns the known words that look most like `word`, best first; may be empty.

    Args:
        word: what was typed.
        known: what it may mean.
        count: at most this many.
        least: how alike they are at least, from 0 to 1.
    """
    return difflib.get_close_matches(word, list(known), n=count, cutoff=least)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the known word that is most like `word`, or an empty string when none is."""
    close = nearest(word, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
