"""Conditions on sizes under which a program was captured, in another capture of the same inputs.

Arrives: a captured program, and torch's environment of sizes of the other capture. Leaves: the environment, with the
program's conditions and the lines of the model that they come from.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from batch_export.exporter.capture.guards import PRIVATE, environment_of
from batch_export.exporter.capture.size_conditions import named, sizes_there
from batch_export.exporter.capture.way_sizes import WaySizes


def hold_sizes(program: torch.export.ExportedProgram, environment: ShapeEnv, way: WaySizes | None = None) -> None:
    """Holds an environment to what held when a program was captured.

    Args:
        program: that was captured.
        environment: of the other capture.
        way: where the program is one way of several, what is known on it. What is equal there may not be elsewhere.

    Raises:
        RuntimeError: where a size is unknown there, or a condition is false.
    """
    own = environment_of(program)
    if own is None:
        return
    there = {name: symbol for symbol, name in _sources(environment)}
    here = {symbol: there[name] for symbol, name in _sources(own) if name in there}
    for guard in own.guards:
        condition: Any = guard.expr
        if free_unbacked_symbols(condition):
            continue
        if not condition.free_symbols <= here.keys():
            raise RuntimeError(f"the condition `{condition}` is on a size that the inputs do not have")
        if way is not None and named(condition, own) in way.guards:
            _note(
                environment,
                sympy.Or(sympy.Not(way.path.xreplace(sizes_there(environment))), condition.xreplace(here)),
                guard,
            )
            continue
        with patch.object(ShapeEnv, "_get_sloc", lambda *_, guard=guard: guard.sloc):
            if environment.evaluate_expr(condition.xreplace(here)) is not sympy.true:
                raise RuntimeError(f"the condition `{condition}` does not hold")


def _note(environment: Any, condition: Any, guard: Any) -> None:
    """Notes a condition that holds at the sizes of the inputs among those of an environment, and asks for nothing."""
    if condition is sympy.true:
        return
    if condition.xreplace(environment.backed_var_to_val) != sympy.true:
        raise RuntimeError(f"the condition `{condition}` does not hold")
    vars(environment).setdefault(PRIVATE, []).append(type(guard)(condition, guard.sloc, guard.size_oblivious))


def _sources(environment: Any) -> list[tuple[sympy.Symbol, str]]:
    """The symbols of an environment, each with a name of where torch read it."""
    table = environment.var_to_sources
    named = [(symbol, source.name) for symbol, sources in table.items() for source in sources]
    return [(symbol, str(name() if callable(name) else name)) for symbol, name in named]
