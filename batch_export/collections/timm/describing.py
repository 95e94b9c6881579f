"""A registered model of timm as a configuration: few narrow blocks, and images that eager takes.

Runs in a child.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from batch_export.collections.small_models.calling import UndescribedError, first_taken, refuse_large, written
from batch_export.collections.small_models.importing import UnimportableError, imported
from batch_export.collections.small_models.leaves import Attempt, Leaf
from batch_export.collections.small_models.reasons import Reasons
from batch_export.collections.timm.building import build, made
from batch_export.collections.timm.shrinking import DEGREES, IMAGE, changes

TARGET = "batch_export.collections.timm.building.build"
_CHANNELS = 3


def describe_named(name: str) -> dict[str, Any]:
    """Returns the configuration of a model by its registered name.

    Raises:
        UndescribedError: no degree of shrinking gives a model that eager runs, or timm cannot be imported.
    """
    try:
        imported("timm")
    except UnimportableError as error:
        raise UndescribedError(str(error)) from error
    reasons = Reasons()
    for degree in DEGREES:
        with reasons.noting(degree):
            return _described(name, degree)
    raise reasons.error()


def _described(name: str, degree: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def noted(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        found.update(changes(arguments, degree))
        return found

    with torch.device("meta"):
        refuse_large(made(name, noted))
    torch.manual_seed(0)
    model = build(name, found)
    parameters = dict(inspect.signature(model.forward).parameters)
    first = next(iter(parameters))

    def guesses(also: Sequence[str]) -> Iterator[Attempt]:
        for channels, height, width in _images(model):
            yield Attempt(
                {first: Leaf("float32", ("batch", channels, "height", "width"))},
                {"batch": 2, "height": height, "width": width},
            )

    taken = first_taken(lambda attempt: (model, {}), guesses, parameters)
    return {
        "_target_": TARGET,
        "model": name,
        "changes": found,
        "requires": ["timm"],
        "tags": ["timm", degree],
        **written(taken),
    }


def _images(model: nn.Module) -> list[tuple[int, int, int]]:
    """Channels, heights and widths to try: a small image, then those that the model's own settings name."""
    settings = getattr(model, "default_cfg", None) or {}
    named = [settings.get(key) for key in ("min_input_size", "input_size")]
    sizes = [tuple(size) for size in named if isinstance(size, list | tuple) and len(size) == _CHANNELS]
    channels = int(sizes[-1][0]) if sizes else _CHANNELS
    return list(dict.fromkeys([(channels, IMAGE, IMAGE), *((int(c), int(h), int(w)) for c, h, w in sizes)]))


def prepare() -> None:
    """Imports what all models need, so that processes forked later have it."""
    torch.set_num_threads(1)
    with contextlib.suppress(UndescribedError):
        describe_named("resnet18")
