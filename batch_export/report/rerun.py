"""What of a run's command line another command about its cells needs: config folders and settings, not the matrix.

A spec and the command line of a run arrive, words leave. Nothing is read or run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from batch_export.record import AXES, NUMERIC
from batch_export.runner.config_folders import folder_flags
from batch_export.spec import RunSpec

_OWN = ("matrix.", "runner.shard", "hydra", "baseline")
_MATRIX = {axis: f"matrix.{axis if axis == 'dynamic' else axis + 's'}" for axis in AXES}
_SEARCH_PATH = "hydra.searchpath"


def settings(spec: RunSpec) -> list[str]:
    """Returns the run's overrides without its matrix and shard, its baseline and what is Hydra's own."""
    return [word for word in spec.overrides if word.lstrip("+").startswith(_SEARCH_PATH) or not word.startswith(_OWN)]


def only_cell(command: str, cell: str) -> str:
    """Returns a run's command line for one of its cells alone, as the history names it; no baseline and no flags."""
    typed = [word for word in shlex.split(command) if "=" in word and not word.startswith("-")]
    words = [word for word in typed if not word.lstrip("+").startswith(_OWN)]
    values = zip(AXES, cell.split("/"), strict=True)
    chosen = [f"{_MATRIX[axis]}=[{text.removeprefix(axis) if axis in NUMERIC else text}]" for axis, text in values]
    return shlex.join(["python", "-m", "batch_export", *folder_flags(command), *words, *chosen])


def without_given(words: Iterable[str], given: Sequence[str]) -> list[str]:
    """Returns the words whose key is not among those given; a config group cannot be chosen twice."""
    keys = {_key(word) for word in given}
    return [word for word in words if _key(word) not in keys]


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]
