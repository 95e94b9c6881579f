"""From a configuration to the cells that this environment can run. A composed configuration arrives; the spec of
the run and its cells leave. Libraries are only looked for, torch is never imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from functools import cache
from importlib.machinery import PathFinder

from batch_export.config.compose import Composed
from batch_export.config.run import run_spec
from batch_export.errors import UsageError
from batch_export.plan.matrix import Installed, PlannedCell, expand
from batch_export.runtime.failures import ProviderUnavailableError
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.spec import RunSpec, environment_of
from batch_export.sweeps.store_place import require_place_of_its_own


def installed(
    providers: Iterable[ProviderSpec],
    environments: Iterable[tuple[str, ...]] = (),
    *,
    start: bool = False,
    elsewhere: bool = False,
) -> Installed:
    """What this environment has of what these providers need.

    Args:
        providers: those of a run.
        environments: of models and exporters, by their requirements.
        start: whether environments are made, and the runtimes in them started once, to see whether they come up;
            otherwise libraries are only looked for.
        elsewhere: whether children work on other machines, where no environment of a model or exporter is made.

    Raises:
        OptionsRejectedError: a runtime does not take its options.
    """
    asked: dict[str, set[str]] = {}
    refused: dict[str, str] = {}
    providers = list(providers)
    for provider in providers:
        if not runtime(provider.kind).apart(provider):
            asked.setdefault(provider.kind, set()).add(provider.execution_provider)
    names = {kind: runtime(kind).names(some) for kind, some in asked.items()}
    for provider in providers:
        kind = runtime(provider.kind)
        if not kind.apart(provider):
            may_lack = names[provider.kind] - kind.always_has  # a device, or a library of the maker's
            if not start or provider.execution_provider not in may_lack:
                continue
        if reason := _refusal(provider, kind, start=start):
            refused[provider.name] = reason
    unmade = {
        requirements: reason
        for requirements in environments
        if requirements and (reason := _unmade(requirements, start=start, elsewhere=elsewhere))
    }
    return Installed(names, _has_library, refused, unmade, _brings)


def _unmade(requirements: tuple[str, ...], *, start: bool, elsewhere: bool) -> str:
    """Why the environment of a model or an exporter cannot be used."""
    if elsewhere:
        return f"the environment ({', '.join(requirements)}) is made on this machine only: run it with runner=local"
    from batch_export.environments.making import EnvironmentUnavailableError, environment_for, wanted_for  # lazy: rare

    try:
        wanted_for(requirements, layered=True)
        if start:
            environment_for(requirements, layered=True, tell=lambda sentence: print(sentence, file=sys.stderr))
    except (EnvironmentUnavailableError, UsageError) as error:
        return str(error)
    return ""


def _brings(requirements: tuple[str, ...], library: str) -> bool:
    """Whether an environment has a library of its own; of one that is not made yet it is taken for granted."""
    from batch_export.environments import shelf  # lazy: rare
    from batch_export.environments.making import wanted_for

    there = shelf.found(wanted_for(requirements, layered=True))
    return there is None or PathFinder.find_spec(library.partition(".")[0], [str(there.packages)]) is not None


def _refusal(provider: ProviderSpec, kind: Runtime, *, start: bool) -> str:
    """Why a runtime that runs in a process of its own cannot be used."""
    if not provider.env and not kind.installed:
        return f"provider {provider.name} needs the package {kind.library}, not installed"
    if not start:
        return ""
    from batch_export.environments.making import EnvironmentUnavailableError, environment_for  # lazy: rarely needed
    from batch_export.runtime.worker.session import probed

    try:
        if provider.env:
            environment_for(provider.env, kind.language, tell=lambda sentence: print(sentence, file=sys.stderr))
        probed(provider, kind)
    except EnvironmentUnavailableError as error:
        return f"provider {provider.name}: {error}"
    except ProviderUnavailableError as error:
        return str(error)
    return ""


@cache
def _has_library(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def planned_cells(composed: Composed, *, start: bool = False) -> tuple[RunSpec, tuple[PlannedCell, ...]]:
    """The run that a configuration describes, and its cells as this environment can run them; `start` as `installed`
    has it.

    Raises:
        UsageError: the configuration cannot be meant, or the store lies around what it is of.
    """
    spec = run_spec(composed.config, composed.groups, output_path=composed.run_folder, overrides=composed.overrides)
    require_place_of_its_own(spec, composed.groups.own_folders())
    return spec, cells_of(spec, start=start)


def cells_of(spec: RunSpec, *, start: bool = False) -> tuple[PlannedCell, ...]:
    """The cells of a run as this environment can run them; `start` as `installed` has it."""
    matrix = spec.matrix
    asked = {
        environment_of(model, exporter) for model in matrix.models for exporter in matrix.exporters if not model.skip
    }
    elsewhere = spec.runner.engine == "dask"
    return expand(matrix, installed(matrix.providers, sorted(asked), start=start, elsewhere=elsewhere))
