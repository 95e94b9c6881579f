"""The stored ONNX file that a record speaks of, for whoever runs it later than the run that made it.

A record and a store arrive, a path leaves, once the content of the file and of its external data is what their digests
say. The record may be somebody else's.
"""

from __future__ import annotations

from pathlib import Path

from batch_export.record import Record
from batch_export.store import Store, read_entry
from batch_export.store.entry import is_digest


def stored_model(record: Record, store: Store) -> Path:
    """Returns a record's ONNX file.

    Raises:
        LookupError: there is none, or the store no longer has it.
        ArtifactError: it is damaged, or a part of it is; that has been moved to the quarantine.
    """
    if record.onnx is None:
        raise LookupError("it has no file")
    key = next((action.key for action in record.actions if action.mnemonic == "Translate"), "")
    entry = read_entry(store.entry_path(key)) if key.isalnum() else None
    model = entry.result.model if entry is not None else None
    if model is not None and model.onnx == record.onnx.sha256:
        return store.open_model(model)
    sha256 = record.onnx.sha256
    found = next(store.content.models.glob(f"*/{sha256}.onnx"), None) if is_digest(sha256) else None
    if found is None:
        raise LookupError(f"the file {sha256[:12]} is no longer in the store")
    return store.content.checked(found, sha256)
