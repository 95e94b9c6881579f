"""The public `export`: the exporter core with the TorchScript exporter plugged in behind `dynamo=False` and `fallback`.

Arrives and leaves: see `exporter.api.export`. The core itself knows no other exporter; here the two meet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from batch_export.exporter import api
from batch_export.peers import torchscript

Parameters = ParamSpec("Parameters")
Program = TypeVar("Program")


def _with_torchscript(core: Callable[Parameters, Program]) -> Callable[Parameters, Program]:
    """Gives the core's `export` the TorchScript exporter, and keeps its parameters in sight of type checkers."""

    @functools.wraps(core)
    def export(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Program:
        kwargs.setdefault("torchscript", torchscript.export_once)
        return core(*args, **kwargs)

    return export


export = _with_torchscript(api.export)
