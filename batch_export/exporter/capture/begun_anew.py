"""Attempts that begin with the model as its caller gave it, and not as the attempt before left it.

Arrives: a strategy. Leaves: the same strategy, which puts a model back when it is done, after what forward changed of
it was noted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from batch_export.exporter.capture import attributes
from batch_export.exporter.capture.kept_state import capture_undone


@contextlib.contextmanager
def begun_anew(module: torch.nn.Module, args: object, kwargs: object) -> Iterator[None]:
    """One attempt: what it changes is noted, and put back."""
    with capture_undone(module, args, kwargs), attributes.noted():
        yield


def each_anew(strategy: Callable[..., Any]) -> Callable[..., Any]:
    """A strategy of one attempt, which puts back what it changes."""

    def run(module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], form: object) -> Any:
        with begun_anew(module, args, kwargs):
            return strategy(module, args, kwargs, form)

    return run
