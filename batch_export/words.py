"""What sentences for people are made of: the first line of an error, a text cut to one line, the nearest known word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_READ_CHARACTERS = 100_000
_CUTOFF = 0.5
_MOST_ANNOUNCEMENTS = 3


def first_line(text: str) -> str:
    """Returns the first line that is not blank, without the blanks round it; empty when there is none.

    Of a text of millions of lines only the beginning is read: a string for each line would cost memory, which is
    limited where this is asked.
    """
    return next((line.strip() for line in text[:_READ_CHARACTERS].splitlines() if line.strip()), "")


def telling_line(text: str) -> str:
    """Returns the first line, and where it only announces what follows, that as well.

    A line announces when it ends with a colon: `Found the following conflicts:` says nothing without the next one.
    """
    lines = (line.strip() for line in text[:_READ_CHARACTERS].splitlines())
    said: list[str] = []
    for line in filter(None, lines):
        said.append(line)
        if not line.endswith(":") or len(said) > _MOST_ANNOUNCEMENTS:
            break
    return " ".join(said)


def error_line(error: BaseException) -> str:
    """Returns the first line of what an error says (see `telling_line`), or else its class."""
    return telling_line(str(error)) or f"{type(error).__name__} without a message"


def class_and_line(error: BaseException) -> str:
    """Returns an error's class and the first line of what it says: `ValueError: too many values`."""
    line = telling_line(str(error))
    return f"{type(error).__name__}: {line}" if line else f"{type(error).__name__} without a message"


def one_line(text: str) -> str:
    """Returns the first line that is not blank when control characters are; each of them becomes a blank."""
    lines = text.splitlines()
    cleaned = ("".join(one if one.isprintable() else " " for one in line).strip() for line in lines)
    return next(filter(None, cleaned), "")


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Returns the known words that look most like `word`, best first; may be empty."""
    return difflib.get_close_matches(word, list(known), n=count, cutoff=_CUTOFF)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the known word that is most like `word`, or an empty string when none is."""
    close = nearest(word, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
