"""Quotients of sizes cancel without a search for their shortest form."""

from __future__ import annotations

import itertools

import pytest
import sympy
from torch.utils._sympy import functions

from batch_export.exporter.capture.cancelled_quotients import cancelled, cancelled_quotients

N, H, W = sympy.symbols("n h w", integer=True, nonnegative=True)
ROWS = functions.FloorDiv(H + 31, 32)
COLUMNS = functions.FloorDiv(W + 31, 32)
SUM = 64 * N * ROWS * COLUMNS + 64 * N * ROWS + 128 * N


@pytest.mark.parametrize(
    ("quotient", "made"),
    [
        (SUM / (16 * N), 4 * ROWS * COLUMNS + 4 * ROWS + 8),
        (64 * N * (ROWS + 1) * (COLUMNS + 1) / (64 * N), (ROWS + 1) * (COLUMNS + 1)),
        (3 * N, 3 * N),
        (sympy.Integer(7), sympy.Integer(7)),
    ],
)
def test_what_cancels_term_by_term_is_cancelled(quotient: sympy.Expr, made: sympy.Expr) -> None:
    assert cancelled(quotient) == made


def test_what_does_not_cancel_is_left_to_sympy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cancelled((N * N + 2 * N) / (N + 2)) is None
    assert cancelled(SUM / 3) is None
    monkeypatch.setattr(sympy, "simplify", lambda *_: "the shortest form")
    with cancelled_quotients():
        assert functions.sympy.simplify((N * N + 2 * N) / (N + 2)) == N
        assert functions.sympy.simplify((N + 1) / (W + 2)) == "the shortest form"


def test_divisions_are_those_of_python_and_ask_for_no_shortest_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sympy, "simplify", lambda *_: pytest.fail("it was asked for the shortest form"))
    with cancelled_quotients():
        made = functions.FloorDiv(SUM * (W + 5), 48 * N * (W + 5))
    for n, height, width in itertools.product((1, 2, 3), (1, 32, 65), (0, 7, 64)):
        at = {N: n, H: height, W: width}
        assert made.subs(at) == int((SUM * (W + 5)).subs(at)) // (48 * n * (width + 5))


def test_torch_is_as_it_was() -> None:
    with cancelled_quotients():
        assert functions.sympy is not sympy
    assert functions.sympy is sympy
