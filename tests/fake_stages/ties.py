"""Ties that explain nothing; `do: {Ties: ...}` makes the step fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batch_export.contract import Contract
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.stages.output import StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(
    bench: Workbench,
    model_path: Path,
    reference_path: Path,
    cases: Sequence[int],
    requested: Contract,
    provider: ProviderSpec,
    threads: int,
) -> StageOutput:
    assert model_path.is_file()
    assert reference_path.is_file()
    act(bench.model.arguments, "Ties")
    return StageOutput({"runs": []})
