"""Exported programs called by name: their inputs go where they were when the program was captured.

Arrives: an exported program, and inputs by position and by name. Leaves: the same inputs in the program's places, or a
module that takes them by name. The program is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def by_position(
    program: torch.export.ExportedProgram | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Inputs given by name now, and by position when the program was captured, by position."""
    names = _positional_names(program)
    if not any(name in kwargs for name in names):
        return args, kwargs
    placed = list(args)
    for name in names[len(args) :]:
        if name not in kwargs:
            break
        placed.append(kwargs[name])
    taken = names[len(args) : len(placed)]
    return tuple(placed), {name: value for name, value in kwargs.items() if name not in taken}


def _positional_names(program: torch.export.ExportedProgram | None) -> list[str]:
    """Names of the parameters that were given by position at capture."""
    if program is None or not program.module_call_graph or program.module_call_graph[0].signature is None:
        return []
    signature = program.module_call_graph[0].signature
    count = signature.in_spec.child(0).num_children if signature.in_spec.num_children else 0
    return list(signature.forward_arg_names or [])[:count]


def as_module(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """The program as a module that takes each input by position or by name; its guards are not asked.

    `train` and `eval` set its flag: what it computes was decided when it was captured.
    """
    module = program.module(check_guards=False)
    module._forward_pre_hooks.clear()  # they refuse by name what was given by position, and the other way round
    module._forward_pre_hooks_with_kwargs.clear()
    for name in ("train", "eval"):  # torch puts functions in their places that refuse
        vars(module).pop(name, None)
    return module
