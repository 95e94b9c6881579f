r"""Names of files as texts that can be stored and printed, whatever bytes they consist of.

A system's names are bytes. Python has a half of a surrogate pair for each byte that is no UTF-8, which neither JSON nor
a terminal takes. `w\xff.bin` leaves as `bytes//w\xff.bin`: no path has two separators in a row. Other names leave as
they are.
"""

from __future__ import annotations

import os
import re

OF_BYTES = "bytes//"
"""How the text of such a name begins."""
_ESCAPED = re.compile(rb"\\(?:\\|x([0-9a-f]{2}))")


def text_of(name: str) -> str:
    """Returns what stands for a name."""
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        data = name.replace("\\", "\\\\").encode(errors="surrogateescape" if _is_of_bytes(name) else "replace")
        return OF_BYTES + data.decode(errors="backslashreplace")
    return name


def name_of(text: str) -> str:
    """Returns the name that a text stands for."""
    if not text.startswith(OF_BYTES):
        return text
    data = _ESCAPED.sub(lambda found: _byte(found[1]), text.removeprefix(OF_BYTES).encode())
    return os.fsdecode(data)


def _is_of_bytes(name: str) -> bool:
    """Whether each odd character stands for a byte; of other names there can be no file."""
    try:
        name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _byte(digits: bytes | None) -> bytes:
    return b"\\" if digits is None else bytes([int(digits, 16)])
