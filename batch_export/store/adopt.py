"""An entry from elsewhere on its way into the store: what it names is fetched, verified and put there.

Bytes arrive, an entry for this store leaves, or nothing. No path is ever taken from what came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from batch_export.digest import Digest, digest_file
from batch_export.errors import StoreError
from batch_export.store.content import ContentStore
from batch_export.store.entry import Entry, decode_entry

Fetch = Callable[[Digest, Path], bool]
"""`fetch(digest, path)` writes the content to `path`, and says whether there was any."""


def adopt(data: bytes, key: Digest, content: ContentStore, fetch: Fetch, scratch: Path) -> Entry | None:
    """Brings what an entry from elsewhere names into the content store, and returns the entry for this store.

    Args:
        data: the entry's file.
        key: the key that it was found under.
        content: where its files go.
        fetch: brings files.
        scratch: an empty folder in the same store.

    Returns:
        None when a file is not to be had.

    Raises:
        StoreError: the entry or a file is not what its name says.
    """
    entry = decode_entry(data)
    if entry is None or entry.result.key != key or entry.genuine_key != key:
        raise StoreError(f"the entry {key[:12]} is damaged, or belongs to another action")
    for digest in entry.result.artifacts.values():
        if content.size(digest) is None:
            if not _verified(digest, fetch, scratch / digest):
                return None
            content.put_file(scratch / digest)
    model = entry.result.model
    if model is not None and content.model_size(model) is None:
        external: dict[str, Path | Digest] = {}
        for name, digest in model.external:
            if content.size(digest) is not None:
                external[name] = digest
            elif _verified(digest, fetch, scratch / f"{len(external)}-{digest}"):
                external[name] = scratch / f"{len(external)}-{digest}"
            else:
                return None
        if not _verified(model.onnx, fetch, scratch / f"{model.onnx}.onnx"):
            return None
        content.put_model(scratch / f"{model.onnx}.onnx", external)
    return replace(entry, sizes=sizes_of(entry, content), run="")


def _verified(digest: Digest, fetch: Fetch, path: Path) -> bool:
    if not fetch(digest, path):
        return False
    if digest_file(path) != digest:
        path.unlink()
        raise StoreError(f"the file {digest[:12]} was received with content that does not match its digest")
    return True


def sizes_of(entry: Entry, content: ContentStore) -> dict[str, int]:
    """Returns the sizes of all that an entry names, as `Entry.sizes` holds them."""
    sizes: dict[str, int] = {}
    for digest in entry.result.artifacts.values():
        size = content.size(digest)
        if size is None:
            raise StoreError(f"the file {digest[:12]} that {entry.result.mnemonic} names is not stored")
        sizes[digest] = size
    if entry.result.model is not None:
        sizes |= content.model_size(entry.result.model) or {}
    return sizes
