"""runner/folder_variables.py: which variables chose the folder that a library read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from batch_export.runner.folder_variables import chose_a_folder
from batch_export.sources.pythons_variables import unusual

ENVIRONMENT = {
    "HUB_HOME": "/cache/hub",
    "HOME": "/home/me",
    "LEVEL": "3",
    "TMPDIR": "/cache",
    "HERE": "/home/me/work/data",
}
READ = {*ENVIRONMENT, "OTHER_CACHE_DIR", "LOGS"}


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([], set()),
        (["/cache/hub/w.bin"], {"HUB_HOME", "OTHER_CACHE_DIR"}),
        (["/cache/hub2/w.bin"], {"OTHER_CACHE_DIR"}),
        (["/home/me/.cache/w.bin"], {"HOME", "OTHER_CACHE_DIR"}),
        (["/home/me/work/mine.py"], set()),
        (["/home/me/work/data/w.bin"], {"HERE", "OTHER_CACHE_DIR"}),
    ],
)
def test_those_count_that_name_a_folder_of_what_was_used(used: list[str], expected: set[str]) -> None:
    assert chose_a_folder(READ, ENVIRONMENT, used, [Path("/home/me/work")]) == expected


def test_variables_by_which_python_or_torch_works_otherwise_are_everyones() -> None:
    assert unusual({"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "", "HOSTNAME": "here"}) == []
    given = {"PYTHONHASHSEED": "3", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "ATEN_CPU_CAPABILITY": "default"}
    assert unusual(given) == list(given)
