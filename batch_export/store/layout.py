"""What a store's folder looks like, so that no other folder is taken for one.

A folder arrives; nothing leaves, or an error with a sentence. Nothing is made or changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from batch_export.errors import StoreError, UsageError
from batch_export.store.entry import STORE_FORMAT

VERSION = "version"
IMPORTS, DIGESTS, DURATIONS = "imports.json", "digests", "durations.json"
FOLDERS = ("blobs", "models", "actions", "locks", "tmp")
_INSIDE = {"blobs": "[0-9a-f]{2}", "actions": "[0-9a-f]{2}", "models": "[0-9a-f]{64}"}
"""What is called how in the folders of a store."""
_OWN = frozenset((*FOLDERS, VERSION, IMPORTS, DIGESTS, DURATIONS, "quarantine"))
_OF_THE_DISK = frozenset({"lost+found"})


def require_own_format(path: Path) -> None:
    """Refuses what cannot be this program's store; nothing is made, and a folder that is not there yet is fine.

    Raises:
        StoreError: it is no folder, or another version of the program made it.
        UsageError: it is a folder with something else in it.
    """
    root = Path(os.path.abspath(path))
    if root.exists() and not root.is_dir():
        raise StoreError(f"the store {root} is no folder. Next step: name another one with `store.path=...`")
    version = root / VERSION
    if not version.is_file():
        foreign = _foreign(root)
        if foreign:
            raise UsageError(
                f"store.path: {root} is no store, and there is {foreign!r} in it, which would be nobody's in a store. "
                "Next step: name a new folder, such as `store.path=outputs/store`"
            )
        return
    found = version.read_text(encoding="utf-8", errors="replace").strip()
    if found != str(STORE_FORMAT):
        raise StoreError(
            f"the store at {root} has format {found!r}; this program reads and writes {STORE_FORMAT}. "
            "Next step: name another folder with `store.path=...`, or remove that one"
        )


def _foreign(root: Path) -> str:
    """Something in a folder that no store has; empty where there is nothing.

    A store may have lost its version, or only some of its folders yet: somebody removed it, or a writer was killed.
    """
    for name in _names(root):
        if name not in _OWN:
            return name
        form = _INSIDE.get(name)
        inside = "" if form is None else next((one for one in _names(root / name) if not re.fullmatch(form, one)), "")
        if inside:
            return f"{name}/{inside}"
    return ""


def _names(folder: Path) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # not there, or gone meanwhile; whoever writes into it says what is wrong
        return []
    return [name for name in names if not name.startswith(".") and name not in _OF_THE_DISK]
