"""Expressions of sizes that are worked through once give what they give otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy import interp
from torch.utils._sympy.functions import FloorDiv, Max, Mod
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from batch_export.exporter import export
from batch_export.exporter.capture.remembered_expressions import remembered_expressions


def _asked() -> list[object]:
    n, m = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")
    half = FloorDiv(n + 1, 2)
    deep = (half + 3) * (FloorDiv(half, 2) + m) * Max(1, half) + Mod(half, 3)
    ranges = {n: ValueRanges(2, 40), m: ValueRanges(1, 7)}
    found: list[object] = [symbolic_shapes._fast_expand(deep), deep.atoms(FloorDiv), deep.atoms(), deep.atoms(Max, Mod)]
    found += [bound_sympy(deep, ranges), bound_sympy(deep, {**ranges, n: ValueRanges(3, 5)}), bound_sympy(half, ranges)]
    return found


def test_answers_are_the_same() -> None:
    expected = _asked()
    with remembered_expressions():
        first = _asked()
        deep = FloorDiv(sympy.Symbol("k", integer=True), 2) + 1
        deep.atoms(FloorDiv).clear()
        assert deep.atoms(FloorDiv)
        again = _asked()

    assert first == expected
    assert again == expected


def test_each_part_is_bounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    n = sympy.Symbol("n", integer=True, positive=True)
    deep: sympy.Expr = FloorDiv(n, 2)
    for _ in range(5):
        deep = FloorDiv(deep, 3) + Mod(deep, 3)
    own, asked = interp._run_sympy_handler, list[object]()

    def handled(analysis: Any, args: Any, expression: Any, **options: Any) -> Any:
        asked.append(expression)
        return own(analysis, args, expression, **options)

    monkeypatch.setattr(interp, "_run_sympy_handler", handled)
    with remembered_expressions():
        bound_sympy(deep, {n: ValueRanges(4, 9)})

    assert len(asked) == len(set(asked)) > 10


def test_nothing_is_left_behind() -> None:
    before = (symbolic_shapes._fast_expand, sympy.Basic.atoms)
    export(torch.nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))

    assert (symbolic_shapes._fast_expand, sympy.Basic.atoms) == before
