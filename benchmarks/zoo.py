"""Models of `conf/model` for the benchmarks: names or globs in, specs out. Nothing is built here."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.plugins import Plugins

from batch_export.config.groups import ConfigGroups
from batch_export.config.model import model_spec
from batch_export.sources.places import conf_dir
from batch_export.spec import ModelSpec


def models(patterns: Sequence[str]) -> list[ModelSpec]:
    """Returns the specs of the models that names, globs and tags choose.

    Raises:
        UsageError: a pattern chooses nothing.
    """
    Plugins.instance()  # Hydra's readers of configs; its application would start them
    groups = ConfigGroups([("main", f"file://{conf_dir()}")])
    return [model_spec(name, groups.load("model", name)) for name in groups.select("model", patterns)]
