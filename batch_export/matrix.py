"""From a matrix of specs to its cells, in order, each with the reason why it will not run, if there is one.

Pure: what is installed is passed in, nothing is imported, read or run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import translate

from batch_export.axes import supports
from batch_export.errors import UsageError
from batch_export.record import Cell
from batch_export.spec import Exclusion, ExporterSpec, MatrixSpec, ModelSpec, ProviderSpec


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


@dataclass(frozen=True, slots=True)
class Installed:
    """What this environment has.

    Attributes:
        execution_providers: ONNX Runtime's available providers.
        library: tells whether a library can be imported, by its import name.
    """

    execution_providers: Collection[str]
    library: Callable[[str], bool]


def expand(matrix: MatrixSpec, installed: Installed) -> tuple[PlannedCell, ...]:
    """Returns every cell: models outermost, then dynamic settings, exporters, opsets and providers.

    Raises:
        UsageError: a provider is not installed although `require_providers` asks for all, or every cell is excluded.
    """
    absent = {provider.name: _absence(provider, installed) for provider in matrix.providers}
    if matrix.require_providers and (missing := [reason for reason in absent.values() if reason]):
        raise UsageError(f"{missing[0]}, and matrix.require_providers=true. Next step: install it, or leave it out")
    excluded = [_compiled(exclusion) for exclusion in matrix.exclude]
    planned: list[PlannedCell] = []
    for model in matrix.models:
        lacking = next((name for name in model.requires if not installed.library(name)), None)
        no_library = f"the model needs the package {lacking}, which is not installed" if lacking else ""
        for dynamic in matrix.dynamic:
            unsupported = supports(model, dynamic) or ""
            for exporter in matrix.exporters:
                for opset in matrix.opsets:
                    for provider in matrix.providers:
                        cell = Cell(model.name, dynamic, opset, provider.name, exporter.name)
                        skip = (
                            _exclusion_reason(cell, excluded)
                            or unsupported
                            or no_library
                            or absent[provider.name]
                            or _opset_reason(provider, opset)
                        )
                        planned.append(PlannedCell(cell, model, provider, exporter, skip))
    if planned and excluded and all(_exclusion_reason(item.cell, excluded) for item in planned):
        raise UsageError("The matrix is empty: matrix.exclude leaves no cell. Next step: make its patterns narrower")
    return tuple(planned)


def _absence(provider: ProviderSpec, installed: Installed) -> str:
    if provider.kind == "reference":
        return "" if installed.library("onnx") else f"provider {provider.name} needs the package onnx, not installed"
    if provider.execution_provider in installed.execution_providers:
        return ""
    return f"provider {provider.name} is not installed: this onnxruntime has no {provider.execution_provider}"


def _opset_reason(provider: ProviderSpec, opset: int) -> str:
    low, high = provider.opsets
    if low <= opset <= high:
        return ""
    return f"provider {provider.name} loads opsets {low} to {high}, not {opset}"


_CompiledExclusion = tuple[tuple[re.Pattern[str], ...], str]


def _compiled(exclusion: Exclusion) -> _CompiledExclusion:
    globs = (exclusion.model, exclusion.dynamic, exclusion.opset, exclusion.provider, exclusion.exporter)
    return tuple(re.compile(translate(glob)) for glob in globs), exclusion.reason


def _exclusion_reason(cell: Cell, excluded: list[_CompiledExclusion]) -> str:
    if not excluded:
        return ""
    words = (cell.model, cell.dynamic, str(cell.opset), cell.provider, cell.exporter)
    for patterns, reason in excluded:
        if all(pattern.match(word) for pattern, word in zip(patterns, words, strict=True)):
            return f"excluded: {reason}"
    return ""
