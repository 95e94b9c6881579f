"""Whether runs were asked for the same, so that their cells may stand in one run: all that decides a verdict is.

Specs of stored runs arrive, names of what differs leave. What says where a run ran and how fast may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from batch_export.axes import SEED
from batch_export.spec import MatrixSpec, ModelSpec, RunSpec

_ONE_BY_ONE = ("matrix", "runner")
_OF_MACHINES = ("store_path", "store", "output_path", "overrides", "baseline")
"""Fields of a run that say where it ran, or what it is compared with."""
_OF_SHARDS = ("models", "chosen", "env")
"""Fields of a matrix of which shards have their part, or that are compared in other ways."""
_LIMITS = ("timeout_s", "memory_gb", "threads", "retries", "allow_flaky")
"""Settings of the runner by which a cell passes or fails; the others say where cells run and how many at once."""


def difference(one: RunSpec, other: RunSpec) -> str:
    """Returns what decides verdicts and is another in two runs, such as `'verify.seeds'`; empty where nothing is.

    What an older version did not write down is taken for the same, see `unknown`.
    """
    for name, first, second in _compared(one, other):
        if first != second:
            return f"'{name}'"
    return ""


def unknown(spec: RunSpec) -> bool:
    """Whether a run does not say, as those of older versions, which requirements `matrix.env` gave its models."""
    return _environment(spec.matrix) is None


def _compared(one: RunSpec, other: RunSpec) -> Iterator[tuple[str, Any, Any]]:
    for item in fields(RunSpec):
        if item.name not in (*_ONE_BY_ONE, *_OF_MACHINES):
            yield item.name, getattr(one, item.name), getattr(other, item.name)
    for item in fields(MatrixSpec):
        if item.name not in _OF_SHARDS:
            yield item.name, getattr(one.matrix, item.name), getattr(other.matrix, item.name)
    environments = _environment(one.matrix), _environment(other.matrix)
    if None not in environments:
        yield "matrix.env", *environments
    for name in _LIMITS:
        yield f"runner.{name}", getattr(one.runner, name), getattr(other.runner, name)
    if one.matrix.models and other.matrix.models:
        first, second = _verification(one.matrix.models), _verification(other.matrix.models)
        yield from ((f"verify.{key}", first[key], second[key]) for key in first)


def _verification(models: Sequence[ModelSpec]) -> dict[str, set[Any]]:
    """What a run verifies its models with, by the key of the configuration; it is the same for all of them."""
    return {
        "seeds": {sum(word.startswith(SEED) for word in model.variants) for model in models},
        "special": {frozenset(word for word in model.variants if not word.startswith(SEED)) for model in models},
        "oracle": {model.oracle for model in models},
    }


def _environment(matrix: MatrixSpec) -> tuple[str, ...] | None:
    """The requirements that `matrix.env` gave all models; none where a model has none. None: nobody knows."""
    if matrix.env is None and any(not model.env for model in matrix.models):
        return ()
    return matrix.env
