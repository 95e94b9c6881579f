"""Axes left to the exporter that torch's guards narrow: whether the model takes more sizes than the program.

Arrives: a captured program with its guards, the model and its example inputs. Leaves: the guards that matter: beyond
them the model runs and the program does not, or gives something else. A guard beyond which both agree, or which is the
model's own limit, takes nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.assumptions import difference
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.other_inputs import all_sizes_against, sizes_beyond


def that_matter(
    captured: Captured, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Guard]:
    """The guards on axes left to the exporter that take sizes away which the model has."""
    narrowing = [guard for guard in captured.guards if guard.narrows]
    squeezes = [guard for guard in captured.not_one if guard.narrows]
    if not narrowing:
        return squeezes
    tensors = [*module.state_dict().values(), *pytree.tree_leaves((args, dict(kwargs)))]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return [*narrowing, *squeezes]  # nothing can be run
    return [*(one for one in narrowing if _matters(one, captured, module, args, kwargs)), *squeezes]


def that_restrict(
    captured: Captured, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Guard]:
    """The guards on axes asked for that take sizes away which the model has.

    A guard that is false at a few small sizes only, as where a computed size is told apart from 0 and 1, is tried at
    them: model and program agree there, or the model takes none of them.
    """
    tensors = [*module.state_dict().values(), *pytree.tree_leaves((args, dict(kwargs)))]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return captured.restrictions
    found = []
    for guard in captured.restrictions:
        tried = None if guard.expression is None else all_sizes_against(captured, guard.expression, args, kwargs)
        if tried is None or any(
            difference(captured.program, module, given, keywords, is_example=False) for given, keywords in tried
        ):
            found.append(guard)
    return found


def _matters(
    guard: Guard, captured: Captured, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    return any(
        difference(captured.program, module, given, keywords, is_example=False)
        for given, keywords in sizes_beyond(captured, guard.expression, args, kwargs)
    )
