"""Where a run came from: the folder it was started in, where its models and config folders are found.

A run's folder arrives; the process goes where the run was started, or words for a command line leave.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.report import run_folder as files
from batch_export.report.rerun import settings, without_given
from batch_export.runner.config_folders import config_folders
from batch_export.runner.surroundings import circumstances


def enter(folder: Path, instead: Sequence[Path] = ()) -> None:
    """Goes where the run was started: models and their data may be found relative to that folder.

    Modules that lie in the run's config folders are importable from then on, as they were in the run.

    Args:
        folder: the run's.
        instead: config folders in place of those of the run that are gone.

    Raises:
        UsageError: that folder is gone, or the folder holds no run.
    """
    started_in = circumstances(folder).folder
    places = [*instead, *(path for path in _config_folders(folder) if path.is_dir())]
    sys.path += [str(path) for path in places if next(path.glob("*.py"), None) and str(path) not in sys.path]
    if not started_in or started_in == os.getcwd():
        return
    try:
        os.chdir(started_in)
        sys.path.insert(0, started_in)
    except OSError as error:
        raise UsageError(
            f"the run was started in {started_in}, which cannot be entered ({error.strerror}). "
            "Next step: run the sweep anew; what it has in common with the old one comes from the store"
        ) from error


def words_of(folder: Path, given: list[str], instead: Sequence[str] = ()) -> list[str]:
    """Returns the config folders and settings that a run was started with; what is given anew takes their place.

    Args:
        folder: the run's.
        given: overrides that were typed.
        instead: config folders that were typed; they stand for those of the run that are gone.

    Raises:
        UsageError: the folder holds no run, or a config folder of the run is gone and none is given.
    """
    stored = files.read_run(folder)
    folders = [path for path in _config_folders(folder) if not (instead and _is_gone(path))]
    missing = next(filter(_is_gone, folders), None)
    if missing is not None:
        raise UsageError(f"{_gone_sentence(folder, missing)}. Next step: name where it is now with --config-dir DIR")
    words = [word for path in folders for word in ("--config-dir", str(path))]
    return [*words, *without_given(settings(stored.spec), given)]


def gone_folders(folder: Path) -> list[str]:
    """Returns a sentence for each config folder of a run that is not there any more."""
    return [_gone_sentence(folder, path) for path in _config_folders(folder) if _is_gone(path)]


def _is_gone(path: Path) -> bool:
    """Whether a config folder is not there; what names a place by its scheme (`pkg://`) is not looked for."""
    return "://" not in str(path) and ":/" not in str(path) and not path.is_dir()


def _gone_sentence(folder: Path, path: Path) -> str:
    """Says that a config folder of a run is gone."""
    return f"the run {folder} was started with the config folder {path}, which is not there any more"


def _config_folders(folder: Path) -> list[Path]:
    started_in = Path(circumstances(folder).folder or os.getcwd())
    return config_folders(files.read_run(folder).command, started_in)
