"""The user's config folders that a run was started with, as its command line names them.

A command line or a run's folder arrives, flags or folders leave. Nothing in them is read.
"""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

import msgspec

_FOLDER_FLAGS = ("--config-dir", "-cd")
_PLAN = "run.json"


class _Plan(msgspec.Struct):
    command: str = ""


def folders_of_run(run_folder: Path) -> list[Path]:
    """Returns the config folders of a run that starts here and now; none where its plan is not written."""
    try:
        command = msgspec.json.decode((run_folder / _PLAN).read_bytes(), type=_Plan).command
        return config_folders(command, Path.cwd())
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):  # a quotation without its end is a ValueError
        return []


def folder_flags(command: str) -> list[str]:
    """Returns the flags of a command line that name config folders, as they were typed."""
    words = shlex.split(command)
    return [
        word for before, word in pairwise(["", *words]) if word.startswith(_FOLDER_FLAGS) or before in _FOLDER_FLAGS
    ]


def config_folders(command: str, started_in: Path) -> list[Path]:
    """Returns the config folders that a command line names, those it names relatively from where it was typed."""
    flags = folder_flags(command)
    values = [word.partition("=")[2] if "=" in word else word for word in flags if word not in _FOLDER_FLAGS]
    return [started_in / Path(value).expanduser() for value in values if value]
