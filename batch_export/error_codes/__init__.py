"""Codes of errors: what each one means, an example that fails with it, and the fix. A code never changes its meaning.

A code or the name of a class arrives, its explanation leaves. Nothing of ours is imported but the tables.
"""

from __future__ import annotations

from functools import cache

from batch_export.error_codes.configuration import CONFIGURATION
from batch_export.error_codes.endings import ENDINGS
from batch_export.error_codes.explanation import Explanation
from batch_export.error_codes.exporting import EXPORTING
from batch_export.error_codes.files import FILES
from batch_export.error_codes.numbers import NUMBERS

EXPLANATIONS: tuple[Explanation, ...] = (*CONFIGURATION, *EXPORTING, *FILES, *NUMBERS, *ENDINGS)
"""Every explanation, by rising code."""

_SIGNAL = "SIG"


def explanation_of(word: str) -> Explanation | None:
    """Returns what a code (`BE201`, in any case) or a class (`CaptureError`, `SIGSEGV`) means; None if nobody knows."""
    by_word = _by_word()
    if word in by_word:
        return by_word[word]
    if word.startswith(_SIGNAL) and word[len(_SIGNAL) :].isalnum():
        return by_word["SIGNAL"]
    return by_word.get(word.upper())


def code_of(error: type[BaseException] | str) -> str:
    """Returns the code of an exception's class, its nearest base's if it has none of its own; empty without one."""
    names = [error] if isinstance(error, str) else [base.__name__ for base in error.__mro__]
    found = next(filter(None, map(explanation_of, names)), None)
    return found.code if found else ""


def words() -> tuple[str, ...]:
    """Returns everything that can be explained: codes and names of classes."""
    return tuple(_by_word())


@cache
def _by_word() -> dict[str, Explanation]:
    return {word: one for one in EXPLANATIONS for word in (one.code, one.name, *one.also)}
