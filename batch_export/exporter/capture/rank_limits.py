"""Sizes at which a result would have another number of axes, which one ONNX file cannot say.

Arrives: a captured program and the axes that were asked for. Leaves: a guard for each free size that a squeeze takes as
"not 1": at 1 eager drops that axis, and the file keeps it. torch's own guards set the size 1 apart without saying
whether that matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from batch_export.exporter.capture import every_size
from batch_export.exporter.capture.guard_symbols import AskedAxis
from batch_export.exporter.capture.guards import Guard, axes_of_symbols, environment_of
from batch_export.exporter.graph.metadata import source_location

aten = torch.ops.aten

_SQUEEZES = frozenset(
    getattr(getattr(aten, name), overload)
    for name in ("squeeze", "squeeze_", "squeeze_copy")
    for overload in ("default", "dim", "dims")
)
_IN_PLACE = frozenset((aten.squeeze_.default, aten.squeeze_.dim, aten.squeeze_.dims))
_TRIED = range(1, 65)
"""Sizes of one axis at which an expression of it may be 1, if it is not known which of them are different; of several
axes, the first few of each.
"""
_COMBINED = 40_000


def sizes_not_one(
    program: torch.export.ExportedProgram,
    asked: Sequence[AskedAxis],
    aliases: Mapping[str, str],
    names: Mapping[str, str],
) -> list[Guard]:
    """A guard for each such size, with the line of the squeeze where that is known.

    It restricts where the caller asked for the axis, or the size depends on the data, and it narrows an axis that was
    left to the exporter; where only an empty axis makes the size 1 (`n + 1`), it is a limit. A range that was declared
    without 1 is no restriction.
    """
    environment = environment_of(program)
    axes = axes_of_symbols(environment, asked, aliases) if environment is not None else {}
    found: list[Guard] = []
    for size, source in _kept_sizes(program).items():
        symbols = [str(symbol) for symbol in size.free_symbols]
        known = [axes[symbol] for symbol in symbols if symbol in axes]
        only_empty = environment is not None and not _may_be_one(size, axes, 1)
        if only_empty and not _may_be_one(size, axes, 0):
            continue
        restricts = environment is not None and (len(known) < len(symbols) or any(axis.required for axis in known))
        narrows = tuple((axis.where, axis.axis) for axis in known if axis in asked and not restricts and not only_empty)
        shown = size.xreplace({one: sympy.Symbol(names.get(str(one), str(one))) for one in size.free_symbols})
        in_words = tuple(axes[symbol].text if symbol in axes else symbol for symbol in symbols)
        found.append(Guard(f"{shown} != 1", in_words, source, restricts, is_limit=only_empty, narrows=narrows))
    return found


def _may_be_one(size: Any, axes: Mapping[str, AskedAxis], least: int) -> bool:
    """Whether a size is 1 where its axes are of some sizes from the least one on."""
    symbols = sorted(size.free_symbols, key=str)
    ranges, every = [], every_size.sizes([size])
    for symbol in symbols:
        axis = axes.get(str(symbol))
        lowest = max(least, axis.lowest) if axis is not None else least
        tried = [*(_TRIED if len(symbols) == 1 else _TRIED[:8]), *(every or ())]
        if every is None:
            tried += [
                int(abs(one)) * times + step for one in size.atoms(sympy.Integer) for times in (1, 2) for step in (0, 1)
            ]
        ranges.append([one for one in dict.fromkeys([lowest, *tried]) if one >= lowest])
    combinations = itertools.islice(itertools.product(*ranges), _COMBINED)
    return any(size.xreplace(dict(zip(symbols, values, strict=True))) == 1 for values in combinations)


def _kept_sizes(program: torch.export.ExportedProgram) -> dict[sympy.Basic, str]:
    """The expression of each size that a squeeze keeps -> `file:line` of the squeeze (empty where it is not known)."""
    found: dict[sympy.Basic, str] = {}
    for module in program.graph_module.modules():
        nodes = module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
        for node in nodes:
            if node.target in _SQUEEZES:
                for size in _kept(node, is_in_place=node.target in _IN_PLACE and module is program.graph_module):
                    found.setdefault(size, source_location(node) or "")
    return found


def _kept(node: torch.fx.Node, *, is_in_place: bool) -> Iterator[sympy.Basic]:
    """Free sizes of the axes that a squeeze was asked to drop, and that a file keeps.

    Args:
        node: the squeeze.
        is_in_place: whether it changes its argument on no way of two: torch drops the axes then that the example has
            as 1, and as 1 alone.
    """
    source = node.args[0]
    value = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return
    given: Any = node.args[1] if len(node.args) > 1 else range(value.dim())
    axes = [given] if isinstance(given, int) else list(given)
    left = node.meta.get("val")
    if not is_in_place and isinstance(left, torch.Tensor) and value.dim() - left.dim() == len(axes):
        return  # on a way on which they are 1 all of them are dropped
    for axis in axes:
        size: Any = value.shape[axis] if value.dim() else 1
        if isinstance(size, torch.SymInt) and not size.node.expr.is_number:
            yield size.node.expr
