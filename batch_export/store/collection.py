"""Garbage collection: what to let go of so that a store fits a size. A store and a size arrive, a report leaves.

Least recently used results go first (a lookup counts as a use), then every file that no remaining result names. Never
runs beside a sweep: it needs the store's lock for itself.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from batch_export.digest import Digest
from batch_export.errors import StoreError
from batch_export.store.content import POINTER_SUFFIX
from batch_export.store.entry import Entry
from batch_export.store.locks import locked
from batch_export.store.quarantine import FOLDER
from batch_export.store.store import Store

STALE_AFTER_S = 3600.0
"""Temporary files older than this were left behind by a process that was killed."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed and what it kept."""

    removed_actions: int
    kept_actions: int
    removed_bytes: int
    kept_bytes: int


def collect(
    store: Store,
    max_bytes: int | None = None,
    *,
    older_than_s: float | None = None,
    stale_after_s: float = STALE_AFTER_S,
) -> Collected:
    """Removes results that were not used for long, the least recently used first, and what only they named.

    What lies in quarantine is removed.

    Args:
        store: the store.
        max_bytes: until its content fits this many bytes.
        older_than_s: all that were last used longer ago.
        stale_after_s: age at which temporary files are taken for left behind.

    Raises:
        StoreError: a run is using the store.
    """
    with locked(store.root / "locks" / "store", wait=False) as held:
        if not held:
            raise StoreError(
                f"the store at {store.root} is in use by a run, so nothing was removed. Next step: wait for it to end"
            )
        kept, removed = _choose(store, max_bytes, older_than_s)
        for path in removed:
            path.unlink(missing_ok=True)
        before = _bytes(store)
        _sweep_unreadable(store, kept)
        _sweep_content(store, [entry for _, entry in kept])
        _sweep_scratch(store, stale_after_s)
        shutil.rmtree(store.root / FOLDER, ignore_errors=True)
        for path in (store.root / "locks").iterdir():
            if path.name != "store":  # ours; the others are taken by runs only, and there is none
                path.unlink(missing_ok=True)
        after = _bytes(store)
    return Collected(len(removed), len(kept), before - after, after)


def _choose(
    store: Store, max_bytes: int | None, older_than_s: float | None
) -> tuple[list[tuple[Path, Entry]], list[Path]]:
    newest_first = sorted(store.entries(), key=lambda item: item[0].stat().st_mtime_ns, reverse=True)
    oldest = float("-inf") if older_than_s is None else time.time() - older_than_s
    kept: list[tuple[Path, Entry]] = []
    counted: dict[str, int] = {}
    total = 0
    for index, (path, entry) in enumerate(newest_first):
        total += path.stat().st_size
        for name, size in _files(entry).items():
            if name not in counted:
                counted[name] = size
                total += size
        if (max_bytes is not None and total > max_bytes) or path.stat().st_mtime < oldest:
            return kept, [path for path, _ in newest_first[index:]]
        kept.append((path, entry))
    return kept, []


def _files(entry: Entry) -> dict[str, int]:
    """Returns the sizes of an entry's files by content, so that shared weights count once."""
    external = {} if entry.result.model is None else dict(entry.result.model.external)
    return {external.get(name.rsplit("/", 1)[-1], name): size for name, size in entry.sizes.items()}


def _sweep_unreadable(store: Store, kept: list[tuple[Path, Entry]]) -> None:
    paths = {path for path, _ in kept}
    for path in store.actions.glob("*/*"):
        if path not in paths:
            _remove(path)


def _sweep_content(store: Store, kept: list[Entry]) -> None:
    content = store.content
    blobs: set[Digest] = {digest for entry in kept for digest in entry.result.artifacts.values()}
    models = {entry.result.model for entry in kept if entry.result.model is not None}
    files = {content.model_path(model) for model in models}
    files |= {content.model_folder(model.external) / name for model in models for name, _ in model.external}
    files |= {path for path in map(content.find, blobs) if path is not None}
    for path in content.blobs.glob("*/*"):
        digest = path.name.removesuffix(POINTER_SUFFIX)
        if digest not in blobs or (path.suffix != POINTER_SUFFIX and path not in files):
            _remove(path)
    for folder in content.models.iterdir():
        for path in folder.iterdir():
            if path not in files:
                _remove(path)
        with contextlib.suppress(OSError):  # not empty: something in it is still named
            folder.rmdir()


def _sweep_scratch(store: Store, stale_after_s: float) -> None:
    oldest = time.time() - stale_after_s
    for path in (store.root / "tmp").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > oldest:
                continue
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _bytes(store: Store) -> int:
    folders = (store.actions, store.content.blobs, store.content.models)
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
