"""From a matrix of specs to its cells, in order, each with the reason why it will not run, if there is one.

Pure: what is installed is passed in, nothing is imported, read or run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from batch_export.axes import supports
from batch_export.errors import UsageError
from batch_export.record import Cell
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime
from batch_export.spec import Exclusion, ExporterSpec, MatrixSpec, ModelSpec, environment_of


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell of the matrix with the specs that it points at.

    Attributes:
        skip: why the cell will not run; empty when it will.
    """

    cell: Cell
    model: ModelSpec
    provider: ProviderSpec
    exporter: ExporterSpec
    skip: str = ""

    @property
    def environment(self) -> tuple[str, ...]:
        """Requirements of the environment that its steps run in; empty: this process' own."""
        return environment_of(self.model, self.exporter)


@dataclass(frozen=True, slots=True)
class Installed:
    """What this environment has.

    Attributes:
        execution_providers: by kind of runtime, those that it can place nodes on here.
        library: says whether a library can be imported, by its import name.
        refused: why providers that were started in a process of their own cannot be used here, by their names.
        unmade: why environments of models and exporters cannot be used here, by their requirements.
        layered: says whether an environment, by its requirements, brings a library of its own.
    """

    execution_providers: Mapping[str, Collection[str]]
    library: Callable[[str], bool]
    refused: Mapping[str, str] = field(default_factory=dict)
    unmade: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    layered: Callable[[tuple[str, ...], str], bool] = lambda _environment, _library: False


def expand(matrix: MatrixSpec, installed: Installed) -> tuple[PlannedCell, ...]:
    """Returns every cell: models outermost, then dynamic settings, exporters, opsets and providers.

    Raises:
        UsageError: a provider is not installed although `require_providers` asks for all, or every cell is excluded
            (a shard's may be: other shards have others).
    """
    absent = {provider.name: _absence(provider, installed) for provider in matrix.providers}
    if matrix.require_providers and (missing := [reason for reason in absent.values() if reason]):
        raise UsageError(f"{missing[0]}, and matrix.require_providers=true. Next step: install it, or leave it out")
    excluded = matrix.exclude
    planned: list[PlannedCell] = []
    for model in matrix.models:
        here = {exporter.name: _environment_reason(model, exporter, installed) for exporter in matrix.exporters}
        for dynamic in matrix.dynamic:
            unsupported = supports(model, dynamic) or ""
            for exporter in matrix.exporters:
                for opset in matrix.opsets:
                    for provider in matrix.providers:
                        cell = Cell(model.name, dynamic, opset, provider.name, exporter.name)
                        skip = (
                            _exclusion_reason(cell, excluded)
                            or model.skip
                            or unsupported
                            or here[exporter.name]
                            or absent[provider.name]
                            or _opset_reason(f"exporter {exporter.name} takes", exporter.opsets, opset)
                            or _opset_reason(f"provider {provider.name} loads", provider.opsets, opset)
                            or _functions_reason(exporter, provider)
                        )
                        planned.append(PlannedCell(cell, model, provider, exporter, skip))
    if planned and excluded and all(_exclusion_reason(item.cell, excluded) for item in planned) and _is_whole(matrix):
        raise UsageError("The matrix is empty: matrix.exclude leaves no cell. Next step: make its patterns narrower")
    return tuple(planned)


def _absence(provider: ProviderSpec, installed: Installed) -> str:
    kind = runtime(provider.kind)
    if kind.apart(provider):
        return installed.refused.get(provider.name, "")
    if not kind.places:
        here = installed.library(kind.library)
        return "" if here else f"provider {provider.name} needs the package {kind.library}, not installed"
    if provider.execution_provider in installed.execution_providers.get(kind.name, ()):
        return installed.refused.get(provider.name, "")
    return f"provider {provider.name} is not installed: this {kind.library} has no {provider.execution_provider}"


def _environment_reason(model: ModelSpec, exporter: ExporterSpec, installed: Installed) -> str:
    environment = environment_of(model, exporter)
    if environment and (reason := installed.unmade.get(environment)):
        return reason
    for who, needed in (("the model", model.requires), (f"exporter {exporter.name}", exporter.requires)):
        for name in needed:
            if not installed.library(name) and not (environment and installed.layered(environment, name)):
                return f"{who} needs the package {name}, which is not installed"
    return ""


def _opset_reason(who: str, range_: tuple[int, int], opset: int) -> str:
    low, high = range_
    return "" if low <= opset <= high else f"{who} opsets {low} to {high}, not {opset}"


def _functions_reason(exporter: ExporterSpec, provider: ProviderSpec) -> str:
    kind = runtime(provider.kind)
    if kind.functions or not exporter.arguments.get("modules_as_functions"):
        return ""
    return f"exporter {exporter.name} writes functions (modules_as_functions), and {kind.called} cannot inline them"


def _is_whole(matrix: MatrixSpec) -> bool:
    """Whether no other shard has cells that may be left when this one's are all excluded."""
    return len(matrix.words["model"]) == len(matrix.models)


def _exclusion_reason(cell: Cell, excluded: Sequence[Exclusion]) -> str:
    return next((f"excluded: {exclusion.reason}" for exclusion in excluded if exclusion.matches(cell)), "")
