"""Where files go that are not what their digest says: out of the way, kept for whoever wants to know why.

A path with the expected and the found digest arrives; the file moves to `quarantine/`, with a line in `log.jsonl`.
Nothing is ever read back from there.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from batch_export.digest import Digest, digest_file
from batch_export.store.files import storing

FOLDER = "quarantine"
LOG_NAME = "log.jsonl"
A_FOLDER = "folder"
"""What stands for the digest of a folder that lies where a file should."""
A_DEVICE = "device"
"""The same of what may never come to an end: a device, a pipe, a link to one."""


def content_of(path: Path) -> Digest:
    """Returns the digest of what lies there; `A_FOLDER` or `A_DEVICE`, which are no file's, of a folder or device."""
    if path.is_dir():
        return A_FOLDER
    return A_DEVICE if path.exists() and not path.is_file() else digest_file(path)


def make_room(root: Path, path: Path, expected: Digest) -> None:
    """Moves a folder aside that lies where a file of the store at `root` is about to be written."""
    if path.is_dir():
        quarantine(root, path, expected, A_FOLDER)


def quarantine(root: Path, path: Path, expected: Digest, found: Digest) -> Path:
    """Moves a corrupted file of the store at `root` aside and returns where it is now."""
    folder = root / FOLDER
    place = folder / f"{expected[:16]}-{found[:16]}-{time.time_ns()}"
    with storing(place):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            os.replace(path, place)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "was": path.relative_to(root).as_posix(),
            "expected": expected,
            "found": found,
            "file": place.name,
        }
        with (folder / LOG_NAME).open("ab", buffering=0) as log:
            log.write(msgspec.json.encode(line) + b"\n")
    return place


def quarantined(root: Path) -> list[Path]:
    """Returns the files in quarantine."""
    folder = root / FOLDER
    return sorted(path for path in folder.iterdir() if path.name != LOG_NAME) if folder.is_dir() else []
