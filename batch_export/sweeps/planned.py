"""From a configuration to the cells that this environment can run. A composed configuration arrives; the spec of
the run and its cells leave. Libraries are only looked for, torch is never imported.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from functools import cache

from batch_export.config.compose import Composed
from batch_export.config.run import run_spec
from batch_export.plan.matrix import Installed, PlannedCell, expand
from batch_export.runtime.kinds import RUNTIMES
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import RunSpec


def installed(providers: Iterable[ProviderSpec]) -> Installed:
    """What this environment has of what these providers need; libraries are only looked for."""
    asked: dict[str, set[str]] = {}
    for provider in providers:
        asked.setdefault(provider.kind, set()).add(provider.execution_provider)
    return Installed({kind: RUNTIMES[kind].names(some) for kind, some in asked.items()}, _has_library)


@cache
def _has_library(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def planned_cells(composed: Composed) -> tuple[RunSpec, tuple[PlannedCell, ...]]:
    """The run that a configuration describes, and its cells as this environment can run them."""
    spec = run_spec(composed.config, composed.groups, output_path=composed.run_folder, overrides=composed.overrides)
    return spec, expand(spec.matrix, installed(spec.matrix.providers))
