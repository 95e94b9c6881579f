"""Digests: the sha256 of bytes, files and plain values. Content in, 64 hexadecimal characters out."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

Digest = str
"""64 lower-case hexadecimal characters: the sha256 of an artifact's bytes."""

_CHUNK_BYTES = 1 << 20


def digest_bytes(data: bytes | memoryview) -> Digest:
    """Returns the digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> Digest:
    """Returns the digest of the file's bytes, read in pieces of 1 MiB."""
    sha = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()


def content_name(digest: Digest) -> str:
    """Returns the name of a file that is called by its content."""
    return f"{digest}.bin"


def canonical_json(value: Any) -> bytes:
    """Encodes a plain value or a frozen dataclass as JSON whose bytes depend on the content only (keys sorted)."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:  # a name or a variable that is no text in UTF-8: a half of a pair for each odd byte
        return msgspec.json.encode(_as_bytes(msgspec.to_builtins(value)), order="deterministic")


def _as_bytes(value: Any) -> Any:
    """Plain data with `{"bytes": ...}` in the place of texts that cannot be written as UTF-8."""
    if isinstance(value, dict):
        return [[_as_bytes(key), _as_bytes(one)] for key, one in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [_as_bytes(one) for one in value]
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"bytes": value.encode(errors="surrogatepass")}
    return value


def digest_value(value: Any) -> Digest:
    """Returns the digest of a plain value's canonical JSON."""
    return digest_bytes(canonical_json(value))
