"""Loops over pieces that are counted, or found by a `while`, of which the last piece may be shorter."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture.counted_pieces import over_places

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
SHAPES = ({1: "n"},)
EXAMPLE, OTHERS = (torch.randn(2, 10),), [(torch.randn(2, n),) for n in (1, 3, 4, 5, 8, 13)]


def _named(x: Tensor) -> Any:
    """The count has a name, and the piece's ends have."""
    n, k = x.size(1), 4
    chunks = math.ceil(n / k)
    out = torch.zeros_like(x)
    for i in range(chunks):
        start = i * k
        end = min(start + k, n)
        out[:, start:end] = torch.softmax(x[:, start:end], -1)
    return out, torch.cat([x[:, i * 3 : (i + 1) * 3].flip(1) for i in range(-(-x.shape[1] // 3))], 1)


def _in_heads(x: Tensor) -> Any:
    """The count stands in the head, and the ends in the index."""
    n, parts, more = x.shape[1], [], []
    for i in range((n + 2) // 3):
        parts.append(x[:, i * 3 : (i + 1) * 3].cumsum(1) * (i + 1))
    for i in range(n // 4 + (1 if n % 4 else 0)):
        more.append(x[:, 4 * i : 4 * i + 4].flip(1))
    return torch.cat(parts, 1), torch.cat(more, 1)


def _going_on(x: Tensor) -> Any:
    """What goes on from piece to piece."""
    _, n = x.shape
    k = 4
    state, found = x.new_zeros(x.shape[0]), []
    for i in range((n - 1) // k + 1):
        piece = x[:, i * k : (i + 1) * k]
        state = state * 0.5 + piece.amax(1)
        found.append(piece + state[:, None])
    return torch.cat(found, 1), state


def _until(x: Tensor) -> Any:
    """A place that goes on, by a number or to the piece's end."""
    n, at, start, means, sums = x.shape[1], 0, 0, [], []
    while at < n:
        means.append(x[:, at : at + 4].mean(1))
        at += 4
    while start < n:
        end = min(start + 3, n)
        sums.append(x[:, start:end].cumsum(1))
        start = end
    return torch.stack(means, 1), torch.cat(sums, 1)


@pytest.mark.parametrize("function", first(1, [_named, _in_heads, _going_on, _until]))
def test_pieces_that_are_counted_or_found(function: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(function), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


def _written_behind(x: Tensor) -> Any:
    """The number of the last piece is read behind the loop, which goes by rounds."""
    total, i = x.new_zeros(x.shape[0]), 0
    for i in range((x.shape[1] + 3) // 4):
        total = total + x[:, i * 4 : (i + 1) * 4].amax(1)
    return total * i


def _of_a_fraction(x: Tensor) -> Any:
    """Pieces whose length is no whole number."""
    length, total = 2.5, x.new_zeros(x.shape[0])
    for i in range(math.ceil(x.shape[1] / length)):
        total = total + x[:, int(i * length) : int((i + 1) * length)].sum(1)
    return total


@pytest.mark.parametrize("function", first(1, [_written_behind, _of_a_fraction]))
def test_other_loops_do_what_they_did(function: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(function), EXAMPLE)
    with pytest.raises(DynamicShapeError, match=r"test_exporter_counted_pieces\.py:\d+"):
        export(Called(function), EXAMPLE, dynamic_shapes=SHAPES)


ALIKE = {
    "n, k = x.shape[1], 5\nfor i in range((n + k - 1) // k): y(x[:, i * k:(i + 1) * k])": "for i in range(0, n, k)",
    "n, k = len(x), 3\nfor i in range(-(-n // k)): y(x[i * k:k + i * k], i)": "x[i:i + k], i // k",
    "n = len(x)\nreturn [x[i * 4:(1 + i) * 4] for i in range(int(math.ceil(n / 4)))]": "for i in range(0, n, 4)",
    "n = len(x)\nfor i in range((n + 3) // 3): y(x[i * 3:(i + 1) * 3])": None,  # one piece more
    "n = len(x)\nn = n + 1\nfor i in range((n + 2) // 3): y(x[i * 3:(i + 1) * 3])": None,
    "for i in range((n + 2) // 3): y(x[i * 3:(i + 1) * 3])": None,  # nothing says that it is a whole number
    "n = len(x)\nfor i in range((n + 2) // 3): y(x[i * 2:(i + 1) * 2])": None,
}


@pytest.mark.parametrize("source", first(2, list(ALIKE)))
def test_what_is_written_anew(source: str) -> None:
    body = "".join(f"    {line}\n" for line in source.splitlines())
    (function,) = ast.parse(f"def f(x, y):\n{body}").body
    assert isinstance(function, ast.FunctionDef)
    before = ast.unparse(function)
    after = ast.unparse(over_places(function))
    wanted = ALIKE[source]
    assert after == before if wanted is None else wanted in after


def test_no_rows_are_one_piece_without_any() -> None:
    """As torch splits them."""

    def of_pieces(x: Tensor) -> Any:
        state = torch.zeros(3)
        for piece in x.split(2):
            state = state * 0.5 + piece.sum(0) + 1
        return state, torch.stack([piece.sum(0) for piece in torch.split(x, 2)])

    others = [(torch.randn(n, 3),) for n in (0, 1, 2, 4, 7)]
    export_and_compare(Called(of_pieces), (torch.randn(5, 3),), *others, dynamic_shapes=({0: "n"},))
