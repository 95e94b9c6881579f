"""Numbers with their nouns, as sentences for people have them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns `1 cell`, `2 cells`; for nouns that only take an s."""
    return f"{number:d} {noun}" if number == 1 else f"{number:d} {noun}s"
