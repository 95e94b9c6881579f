"""Where a run came from: the folder it was started in, where its models and config folders are found.

A run's folder arrives; the process goes where the run was started, or words for a command line leave.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.report import run_folder as files
from batch_export.report.rerun import settings, without_given
from batch_export.runner.config_folders import config_folders
from batch_export.runner.surroundings import circumstances


def enter(folder: Path) -> None:
    """Goes where the run was started: models and their data may be found relative to that folder.

    Raises:
        UsageError: that folder is gone.
    """
    started_in = circumstances(folder).folder
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


def words_of(folder: Path, given: list[str]) -> list[str]:
    """Returns the config folders and settings that a run was started with; what is given anew takes their place.

    Raises:
        UsageError: the folder holds no run.
    """
    stored = files.read_run(folder)
    started_in = Path(circumstances(folder).folder or os.getcwd())
    folders = [word for path in config_folders(stored.command, started_in) for word in ("--config-dir", str(path))]
    return [*folders, *without_given(settings(stored.spec), given)]
