"""The hunter's loops: the same program for a seed, files that are right, and a planted fault that is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hunt import loops

from batch_export.exporter.capture import assumptions, loop_reach


def test_a_seed_is_a_program() -> None:
    assert loops.Drawn(7).source() == loops.Drawn(7).source() != loops.Drawn(8).source()


def test_files_of_loops_are_right_or_refused(tmp_path: Path) -> None:
    counts = Counter(loops.tried(seed, tmp_path)[0] for seed in range(21, 25))
    assert not counts["wrong"]
    assert counts["pass"]
    assert not list(tmp_path.glob("*.py"))


@pytest.mark.ops
def test_a_planted_fault_is_found_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = loop_reach.Reach.rows

    def turned(self: Any, *args: Any) -> torch.Tensor:
        return own(self, *args).flip(0)

    monkeypatch.setattr(loop_reach.Reach, "rows", turned)
    monkeypatch.setattr(assumptions, "check_rounds", lambda *_: None)  # else the export itself refuses it
    assert loops.main(["--seed", "20", "--count", "4", "--out", str(tmp_path)]) == 1
    assert list(tmp_path.glob("loop_*.py"))
