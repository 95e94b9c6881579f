"""Texts that leave the house: home folders become `~`. Text in, text out; nothing is looked up twice."""

from __future__ import annotations

import re
from pathlib import Path

_HOMES = re.compile(r"(?<![\w.~-])(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s:'\"]+")


def shorten(text: str, home: str | None = None) -> str:
    """Replaces the reader's home folder, and what looks like anybody's, by `~`."""
    own = str(Path.home()) if home is None else home
    if len(own) > 1:
        text = re.sub(re.escape(own) + r"(?=[/\\]|\b)", "~", text)
    return _HOMES.sub("~", text)
