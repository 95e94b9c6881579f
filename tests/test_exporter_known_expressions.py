"""Expressions of sizes are not walked through at every access."""

from __future__ import annotations

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from batch_export.exporter.capture.known_expressions import known_expressions


def _sizes() -> tuple[torch.SymInt, torch.SymInt, ShapeEnv]:
    environment = ShapeEnv()
    mode = torch._subclasses.FakeTensorMode(shape_env=environment)
    fake = mode.from_tensor(torch.randn(3, 5), static_shapes=False)
    return fake.shape[0], fake.shape[1], environment  # type: ignore[return-value]


class _Walked(sympy.Symbol):
    asked = 0

    @property
    def is_number(self) -> bool:
        _Walked.asked += 1
        return False


def test_a_known_expression_is_not_walked_through() -> None:
    rows, _, environment = _sizes()
    node = SymNode(_Walked("n"), environment, int, 3)
    with known_expressions():
        for _ in range(5):
            assert str(node.expr) == "n"
        assert _Walked.asked == 0
        assert isinstance(vars(SymNode)["expr"], property)
    assert str(rows.node.expr).startswith("s")


def test_replacements_are_seen() -> None:
    rows, columns, environment = _sizes()
    with known_expressions():
        both = rows + columns
        first = both.node.expr
        assert len(first.free_symbols) == 2
        torch._check(rows == columns - 2)
        assert len(both.node.expr.free_symbols) == 1
        assert both.node.expr == environment.replace(first)
        assert (rows * 0 + 7).node.expr == 7


def test_torch_is_as_it_was() -> None:
    before = vars(SymNode)["expr"]
    with known_expressions():
        assert vars(SymNode)["expr"] is not before
    assert vars(SymNode)["expr"] is before
