"""The store: files by content, action results by key. Bytes and plain values in, the same out; it runs nothing."""

from __future__ import annotations

from batch_export.store.collection import Collected
from batch_export.store.entry import Entry, read_entry
from batch_export.store.layout import require_own_format
from batch_export.store.store import Found, Store, StoreInfo, digests_memo, imports_memo, open_store

__all__ = [
    "Collected",
    "Entry",
    "Found",
    "Store",
    "StoreInfo",
    "digests_memo",
    "imports_memo",
    "open_store",
    "read_entry",
    "require_own_format",
]
