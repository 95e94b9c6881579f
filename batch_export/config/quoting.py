"""Values of overrides with characters that Hydra takes only in quotes (`ü`, `#`, `&`): put into quotes.

A word of the command line arrives, the same word as Hydra reads it leaves. What has quotes of its own, or calls a
function, is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PIECES = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[\[\]{},]|[^\[\]{},'"]+""")
_MARKS = ("[", "]", "{", "}", ",")
_SPECIAL = re.compile(r"[^\w/\\+.$%*@?|:=()\s-]|[^\x00-\x7f]")
_ENTRY = re.compile(r"(\s*)((?:\w+:\s+)?)(.*?)(\s*)", re.DOTALL)
"""Of a list or a mapping: space, the key of a mapping, what is to be quoted, space."""


def with_quotes(word: str) -> str:
    """Returns an override whose values are quoted where Hydra asks for it: `a=[ü,b]` is `a=["ü",b]`."""
    key, equals, value = word.partition("=")
    if not equals or not _SPECIAL.search(value) or "${" in value:
        return word
    pieces = _PIECES.findall(value)
    if "".join(pieces) != value:
        return word  # a quote without its other end
    whole = [
        piece if piece in _MARKS or _has_quotes(pieces[max(index - 1, 0) : index + 2]) else _quoted(piece)
        for index, piece in enumerate(pieces)
    ]
    return f"{key}={''.join(whole)}"


def _has_quotes(pieces: Sequence[str]) -> bool:
    return any(piece.startswith(("'", '"')) for piece in pieces)


def _quoted(piece: str) -> str:
    found = _ENTRY.fullmatch(piece)
    if found is None or not _SPECIAL.search(found[3]) or "(" in piece:
        return piece
    escaped = re.sub(r"(\\+)$", r"\1\1", found[3])  # a backslash at the end would escape the quote
    return f'{found[1]}{found[2]}"{escaped}"{found[4]}'
