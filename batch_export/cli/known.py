"""Which verbs there are: every module of this package whose docstring begins with its own usage, `verb ARGUMENTS`: ...

The modules' files are read, not imported; help (`manual.py`), completion, `list verbs` and the command line itself go
by what leaves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LAST_FAILED = ("--last-failed", "--lf")
"""The flag of a sweep that no verb takes."""

BRIEF = ("-q", "--quiet")
"""The flag of a sweep, and of some verbs, that leaves out what is as expected."""

COMPLETION = ("-sc", "--shell-completion")
"""Hydra's flag of a shell that asks for words."""

_FIRST_LINE = re.compile(r'"""`(?P<usage>(?P<name>[\w-]+)[^`]*)`: (?P<summary>.*?)(?:""")?\n')


def is_last_failed(word: str) -> bool:
    """Whether a word of a command line is that flag, with or without a run."""
    return word.partition("=")[0] in LAST_FAILED


def asks_for_words(arguments: Sequence[str]) -> bool:
    """Whether a shell asks for words (it also asks for the function that asks)."""
    return arguments[:1] in [[flag] for flag in COMPLETION] and any(word.startswith("query=") for word in arguments[1:])


@dataclass(frozen=True, slots=True)
class Verb:
    """A word that may stand before everything else on the command line.

    Attributes:
        usage: the word with its arguments, e.g. `bisect CELL [--run RUN]`.
        summary: what it does, in a line.
    """

    name: str
    usage: str
    summary: str


@cache
def verbs() -> dict[str, Verb]:
    """Returns the verbs by name, in alphabetical order."""
    found: dict[str, Verb] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        with path.open(encoding="utf-8") as stream:
            line = _FIRST_LINE.fullmatch(stream.readline())
        if line is not None and module_of(line["name"]) == path.stem:
            found[line["name"]] = Verb(line["name"], line["usage"], line["summary"].rstrip("."))
    return found


def module_of(verb: str) -> str:
    """Returns the name of a verb's module."""
    return verb.replace("-", "_")
