"""Whether the store has a folder of its own: what lies in it counts as nobody's, so no project may.

A run's spec and the config folders arrive; nothing leaves, or an error with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.sources.closure import find_module, local_roots
from batch_export.sources.places import resolve_target
from batch_export.spec import RunSpec


def require_place_of_its_own(spec: RunSpec, configs: Sequence[Path]) -> None:
    """Refuses a store around the current folder, a config folder, or the sources of a model or an exporter.

    Args:
        spec: of the run.
        configs: the user's folders with configs.

    Raises:
        UsageError: there is such a thing in it.
    """
    store = Path(spec.store_path).expanduser().resolve()
    for what, path in _of_the_project(spec, configs):
        if path.resolve().is_relative_to(store):
            raise UsageError(
                f"store.path: {what} {path} lies in the store {store}, where nothing counts as a model's. "
                "Next step: name a folder of the store's own, such as `store.path=outputs/store`"
            )


def _of_the_project(spec: RunSpec, configs: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    yield "the current folder", Path.cwd()
    for folder in configs:
        yield "the config folder", folder
    roots = local_roots()
    named = {model.target: f"the source of model {model.name}" for model in spec.matrix.models if model.target}
    named |= {exporter.target: f"the source of exporter {exporter.name}" for exporter in spec.matrix.exporters}
    for target, what in named.items():
        source = find_module(resolve_target(target)[0], roots)
        if source is not None:
            yield what, source
