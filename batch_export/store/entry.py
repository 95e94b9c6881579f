"""One file of the action cache: a result with its key's named parts, and a checksum of all that.

Entries arrive and bytes leave, or the other way round. What is read is data from outside: digests and names that could
not be ours are refused here, so that no path is ever made of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from batch_export.action import KEY_FORMAT, ActionResult
from batch_export.digest import Digest, digest_bytes, digest_value
from batch_export.steps import MNEMONICS

STORE_FORMAT = 2
"""Raised when the folder's layout or an entry's shape changes incompatibly. 1 (2026-11): first; entries written since
2026-11-21 end with a line that holds their checksum. 2 (2026-11-22): entries also say which packages and variables the
action saw; those of 1 do not, so nobody could tell whether they still hold, and a store of 1 is refused."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHECKSUM_LINE = 65


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the action cache.

    Attributes:
        entries: the action's key, part by part, so that a miss can be explained.
        sizes: bytes of everything that the result names: blobs by digest, models' files by path in the store.
        run: the run that executed the action; a result that took several tries is served within that run only.
    """

    result: ActionResult
    entries: tuple[tuple[str, str], ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    format: int = STORE_FORMAT
    run: str = ""

    @property
    def genuine_key(self) -> Digest:
        """The key that the entry's own parts give."""
        return digest_value([KEY_FORMAT, self.result.mnemonic, self.entries])

    def digests(self) -> set[Digest]:
        """Returns the digests of all that the result names."""
        named = set(self.result.artifacts.values())
        if self.result.model is not None:
            named |= {self.result.model.onnx, *(digest for _, digest in self.result.model.external)}
        return named


_decoder = msgspec.json.Decoder(Entry)


def is_digest(text: str) -> bool:
    """Returns whether the text has the form of a digest."""
    return _DIGEST.fullmatch(text) is not None


def is_plain_name(name: str) -> bool:
    """Returns whether the name can be an external data file's: a file name without a folder, and no ONNX file's."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\\", "\0"} and not name.endswith(".onnx")


def encode_entry(entry: Entry) -> bytes:
    """Returns the entry's file: one line of JSON and one with its sha256."""
    body = msgspec.json.encode(entry)
    return body + b"\n" + digest_bytes(body).encode() + b"\n"


def decode_entry(data: bytes) -> Entry | None:
    """Reads the bytes of `encode_entry`; None when they are damaged, of another format, or name what cannot be ours."""
    body, newline, checksum = data.rstrip(b"\n").rpartition(b"\n")
    if not newline:
        body = data  # written before entries had a checksum
    elif len(checksum) != _CHECKSUM_LINE - 1 or digest_bytes(body).encode() != checksum:
        return None
    try:
        entry = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    if entry.format != STORE_FORMAT or entry.result.mnemonic not in MNEMONICS:
        return None
    if not all(map(is_digest, (entry.result.key, *entry.digests()))):
        return None
    model = entry.result.model
    if model is not None and not all(is_plain_name(name) for name, _ in model.external):
        return None
    return entry


def read_entry(path: Path) -> Entry | None:
    """Reads one file of the action cache; None when it is missing, damaged, of another format or no file (a pipe)."""
    try:
        return decode_entry(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None
