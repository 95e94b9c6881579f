"""The short form of the fault suite; `nox -s faults` (or `-m faults`) injects every fault there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.scene import Fault
from faults.table import all_faults

FAULTS = [
    pytest.param(fault, id=f"{fault.family}: {fault.name}", marks=() if fault.quick else (pytest.mark.faults,))
    for fault in all_faults()
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_hits_its_culprit_only(fault: Fault, tmp_path: Path) -> None:
    outcome = fault.inject(tmp_path)
    assert outcome.blamed
    assert outcome.kept


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    names = [(fault.family, fault.name) for fault in all_faults()]
    assert len(set(names)) == len(names) >= 30
    assert sum(fault.quick for fault in all_faults()) >= 30
