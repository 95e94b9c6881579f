"""A run whose error is 0.001 at every size; a provider called `long_facts` tells as much as a real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batch_export.contract import Contract
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.stages.output import StageOutput


def execute(
    model_path: Path,
    reference_path: Path,
    case_indices: list[int],
    requested: Contract,
    provider: ProviderSpec,
    threads: int,
    oracles: Sequence[tuple[int, Path]] = (),
) -> StageOutput:
    assert model_path.is_file()
    assert reference_path.is_file()
    output: dict[str, Any] = {
        "name": "out",
        "expected_dtype": "float32",
        "actual_dtype": "float32",
        "expected_shape": [1],
        "actual_shape": [1],
        "hull": [[1.0, 0.001]],
        "max_abs": 0.001,
        "max_rel": 0.001,
        "unequal": 1,
        "count": 1,
    }
    outputs = [output]
    if provider.name == "long_facts":  # as many as a real model's
        hull = [[index / 16, index / 16_000_000] for index in range(1, 17)]
        long = {**output, "hull": hull, "rounding_hull": hull, "oracle_hull": hull, "has_oracle": True, "max_abs": 1e-6}
        outputs = [long, long]
    runs = [{"sizes": {"case": index}, "outputs": outputs} for index in case_indices]
    return StageOutput({"runs": runs, "placement": {"Fake": 1}, "load_s": 0.0})
