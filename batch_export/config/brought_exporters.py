"""Exporters of installed packages: an entry point of the group `batch_export.exporters` stands for a config.

    [project.entry-points."batch_export.exporters"]
    their_exporter = "their_package.onnx:export"

is what `conf/exporter/their_exporter.yaml` with `_target_: their_package.onnx.export` would be; a config of that name
hides it, or takes it up by `defaults: [their_exporter]`. The package is imported in the children only.
"""

from __future__ import annotations

import importlib.metadata
from functools import cache

from batch_export.errors import UsageError

GROUP = "batch_export.exporters"
CONFIG_GROUP = "exporter"


def names() -> list[str]:
    """Returns the names of the exporters that installed packages bring, sorted."""
    return sorted({point.name for point in _points()})


def config(name: str) -> dict[str, str] | None:
    """Returns what a config of an exporter that a package brings would say; None where no package brings it.

    Raises:
        UsageError: two packages bring it, or its entry point names no callable of a module.
    """
    points = [point for point in _points() if point.name == name]
    owners = sorted(point.dist.name if point.dist is not None else point.value for point in points)
    if len(points) > 1:
        raise UsageError(
            f"The exporter {name!r} is brought by {' and by '.join(owners)}. Next step: uninstall all but one, or "
            f"write exporter/{name}.yaml with the _target_ that is meant"
        )
    if not points:
        return None
    if not points[0].module or not points[0].attr:
        raise UsageError(
            f"The entry point {name!r} ({GROUP}) of the package {owners[0]} is {points[0].value!r}; it must name a "
            "callable, as their_package.module:export does"
        )
    return {"_target_": f"{points[0].module}.{points[0].attr}"}


@cache
def _points() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=GROUP))
