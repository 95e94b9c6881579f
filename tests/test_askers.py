"""Whoever asks about a path without opening it: a model runs again when the answer is another one, and only then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from askers import ASKERS
from sweeping import STAGES, by_name, cells, model, sweep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' kernel tells")

BUILT = {**STAGES, "Reference": "fake_stages.built"}


def sweep_of_all(folder: Path) -> dict[str, tuple[str, str]]:
    """Model -> the reference's origin, and the key of the run, which has the reference's digest in it."""
    planned = [replace(model(name), target="askers.build", arguments={"asker": name}) for name in ASKERS]
    result = by_name(sweep(folder, cells(planned, opsets=(18,)), stages=BUILT))
    assert {record.verdict for record in result.values()} == {"pass"}, [one.message for one in result.values()]
    return {
        name.partition("/")[0]: (
            record.actions[0].origin,
            next(action.key for action in record.actions if action.mnemonic == "Run"),
        )
        for name, record in result.items()
    }


Sweeps = tuple[dict[str, tuple[str, str]], ...]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeps]:
    """First, unchanged, with other answers, and that in a fresh store."""
    folder = tmp_path_factory.mktemp("askers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("asked").mkdir()
        _write(1, patch)
        first, unchanged = sweep_of_all(folder / "runs"), sweep_of_all(folder / "runs")
        _write(2, patch)
        yield first, unchanged, sweep_of_all(folder / "runs"), sweep_of_all(folder / "fresh")


def _write(number: int, patch: pytest.MonkeyPatch) -> None:
    for name in ("environb", "variable_by_a_pool"):
        patch.setenv(f"ASKED_{name}", "")  # put back at the end
    for name, asker in ASKERS.items():
        asker.write(Path("asked") / name, number)


@pytest.mark.parametrize("name", ASKERS)
def test_another_answer_is_noticed_whoever_asked(sweeps: Sweeps, name: str) -> None:
    (first, key), (unchanged, _), (changed, changed_key), (_, fresh_key) = (one[name] for one in sweeps)
    counts = ASKERS[name].counts
    assert (first, unchanged, changed) == ("ran", "cached", "ran" if counts else "cached")
    if counts:
        assert key != changed_key == fresh_key
