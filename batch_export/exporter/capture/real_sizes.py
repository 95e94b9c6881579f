"""Inputs whose sizes are such as decisions by sizes say that they are on a way through a model.

Arrives: the examples of a capture, by a context round it, and the decisions of a way that the sizes of its inputs do
not fit. Leaves: inputs of other sizes, which the model takes. On the way of `q.shape[1] == k.shape[1]` a model adds
what is of one size only there, so that it can be captured from nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.relational import Relational

from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture import size_conditions
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.fake_runs import refusal
from batch_export.exporter.capture.forced_decisions import Decision
from batch_export.exporter.capture.guards import symbol_table
from batch_export.exporter.capture.other_inputs import Inputs

_STEPS = 4
"""Sizes that are changed one after the other until all decisions are as they should be."""
_MOST = 1000
"""How many sizes are looked at."""
_BESIDE = (1, -1, 0, 2)
"""How far from a size another one is that is larger, smaller or equal, in a question beside."""
_FURTHER, _PERIOD = 3, 64
"""How far from a size it is no more, and up to which number of a question it goes on by one."""

Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class RealSizes:
    """Where inputs of other sizes come from.

    Attributes:
        examples: the given one, and others.
        asked: the axes.
    """

    examples: Examples
    asked: shapes.DynamicShapes

    def inputs(self, decisions: Sequence[Decision]) -> Inputs | None:
        """Inputs of sizes at which decisions of one capture are real; None where none were found."""
        environment = decisions[-1].asked.node.shape_env
        axes = symbol_table(environment, self.asked.axes, self.asked.aliases).axes
        texts = {symbol: axes[str(symbol)].text for symbol in environment.backed_var_to_val if str(symbol) in axes}
        given = {text: int(environment.backed_var_to_val[symbol]) for symbol, text in texts.items()}
        asked = [one for one in decisions if one.condition is not None and one.condition.free_symbols <= texts.keys()]
        for sizes in _fitting(asked, texts, given, _STEPS, {}):
            made = self.examples.at(sizes)
            if made is not None and not refusal(self.examples.module, *made):
                return made
        return None


def _fitting(
    decisions: Sequence[Decision],
    texts: Mapping[Any, str],
    sizes: Sizes,
    steps: int,
    seen: dict[tuple[int, ...], int],
) -> Iterator[Sizes]:
    """Sizes at which decisions are real, made of others in a few steps.

    Args:
        decisions: with conditions.
        texts: symbols -> axes as messages call them.
        sizes: of these axes.
        steps: how many more there may be.
        seen: sizes that were looked at, with the steps that were left then.
    """
    key = tuple(sizes.values())
    if seen.get(key, -1) >= steps or len(seen) == _MOST:
        return
    seen[key] = steps
    values = {symbol: sympy.Integer(sizes[text]) for symbol, text in texts.items()}
    wrong = [
        one for one in decisions if one.condition is not None and bool(one.condition.xreplace(values)) != one.taken
    ]
    if not wrong:
        yield sizes
        return
    for symbol, size in _changes(wrong[0], values) if steps else ():
        if size >= 0 and size != sizes[texts[symbol]]:
            yield from _fitting(decisions, texts, {**sizes, texts[symbol]: size}, steps - 1, seen)


def _changes(decision: Decision, values: Mapping[Any, Any]) -> Iterator[tuple[Any, int]]:
    """Symbols with sizes that may make a decision real."""
    pairs = size_conditions.equalities(decision.condition, holds=decision.taken)
    unequal = [pair for pair in pairs if pair[0].xreplace(values) != pair[1].xreplace(values)]
    sides = [one for pair in unequal for one in (pair, pair[::-1])]
    known = [(symbol, other.xreplace(values)) for symbol, other in sides if symbol.is_Symbol]
    yield from ((symbol, int(value)) for symbol, value in known if value.is_Integer)
    if known or decision.condition is None:
        return
    for relation in sorted(decision.condition.atoms(Relational), key=str):
        for one, other in (relation.args, relation.args[::-1]):
            value = other.xreplace(values)
            if one.is_Symbol and value.is_Integer:
                yield from ((one, int(value) + step) for step in _BESIDE)
    symbols = sorted(decision.condition.free_symbols, key=str)
    periods = [int(abs(one)) for one in decision.condition.atoms(sympy.Integer) if abs(one) <= _PERIOD]
    steps = range(1, max([_FURTHER, *periods]) + 1)  # up to the next multiple
    yield from ((symbol, int(values[symbol]) + step) for symbol in symbols for step in steps)
    yield from ((symbol, 1) for symbol in symbols)  # which stands beside any other


_REAL: ContextVar[RealSizes | None] = ContextVar("_REAL", default=None)


@contextlib.contextmanager
def real_sizes(examples: Examples, asked: shapes.DynamicShapes) -> Iterator[None]:
    """Within, each way of decisions by sizes that are equal or not is captured from sizes that are so.

    Args:
        examples: where inputs of other sizes come from.
        asked: the axes.
    """
    earlier = _REAL.set(RealSizes(examples, asked))
    try:
        yield
    finally:
        _REAL.reset(earlier)


def current() -> RealSizes | None:
    """What the capture around says; None where it says nothing of this."""
    return _REAL.get()
