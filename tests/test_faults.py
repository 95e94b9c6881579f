"""The short form of the fault suite; `nox -s faults` (or `-m faults`) injects every fault there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.scene import Fault
from faults.table import all_faults

OF_EACH_FAMILY = 1
"""So many of the quick ones are in every run of the session `tests`."""


def _marked() -> Iterator[Any]:
    counts = Counter[str]()
    for fault in all_faults():
        counts[fault.family] += fault.quick
        is_always = fault.quick and counts[fault.family] <= OF_EACH_FAMILY
        marks = () if is_always else (pytest.mark.faults,)
        yield pytest.param(fault, id=f"{fault.family}: {fault.name}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("fault", _marked())
def test_a_fault_hits_its_culprit_only(fault: Fault, tmp_path: Path) -> None:
    outcome = fault.inject(tmp_path)
    assert outcome.blamed
    assert outcome.kept


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    names = [(fault.family, fault.name) for fault in all_faults()]
    assert len(set(names)) == len(names) >= 30
    assert sum(fault.quick for fault in all_faults()) >= 30
