"""Loops over pieces of one length of which the last may be shorter, and lists that go on growing behind a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture import one_run

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
EXAMPLE, SHAPES = (torch.randn(2, 5, 4),), ({0: "b", 1: "t"},)
OTHERS = [(torch.randn(*sizes, 4),) for sizes in ((1, 3), (3, 7), (2, 6), (2, 8), (1, 12), (3, 1))]


def _pieces(x: Tensor) -> Any:
    """Of a number, of a name, up to the end by `min`, from `split` of expressions."""
    n, k, parts, more, other = x.shape[1], 2, [], [], x.transpose(1, 2)
    for i in range(0, x.shape[1], 3):
        piece = x[:, i : i + 3]
        parts.append(piece - piece.mean(1, keepdim=True))
    for i in range(0, n, k):
        j = min(i + k, n)
        more.append(x[:, i:j].softmax(1))
    split = torch.cat([one.flip(1) for one in (x * 2).split(3, 1)], 1)
    turned = torch.cat([one.cumsum(-1) for one in torch.split(other + 1, 4, dim=-1)], dim=-1)
    return torch.cat(parts, 1), torch.cat(more, dim=1), split, turned


def _attention(x: Tensor) -> Any:
    """Of queries in pieces, and written in pieces."""
    found, made = [], torch.zeros_like(x)
    for i in range(0, x.shape[1], 3):
        found.append((x[:, i : i + 3] @ x.transpose(1, 2)).softmax(-1) @ x)
        made[:, i : i + 3] = x[:, i : i + 3].cumsum(1)
    return torch.cat(found, 1), made


def _states(x: Tensor) -> Any:
    """What goes on from piece to piece, as sums that are scaled anew; the number of pieces."""
    highest, total, mixed, count = torch.full((x.shape[0], 1), -1e9), torch.zeros(x.shape[0], 1), x[:, 0] * 0, 0
    for i in range(0, x.shape[1], 3):
        piece = x[:, i : i + 3]
        scores = piece.sum(-1)
        now = torch.maximum(highest, scores.amax(1, keepdim=True))
        weights, scale = (scores - now).exp(), (highest - now).exp()
        total = total * scale + weights.sum(1, keepdim=True)
        mixed = mixed * scale + (weights.unsqueeze(-1) * piece).sum(1)
        highest = now
        count += 1
    return mixed / total, total / count


def _grown(x: Tensor) -> Any:
    """A tensor that grows by pieces, and a list in a dict."""
    made, named = None, {"parts": []}
    for i in range(0, x.shape[1], 2):
        piece = x[:, i : i + 2].relu()
        made = piece if made is None else torch.cat([made, piece], 1)
        named["parts"].append(piece * 2)
    return made, torch.cat(named["parts"], 1)


def _one_a_piece(x: Tensor) -> Any:
    """One row of each piece, as many as there are pieces."""
    rows, sums = [], []
    for piece in torch.split(x, 2, dim=1):
        rows.append(piece.cumsum(1).sum(1))
    for begin in range(0, x.shape[1], 3):
        sums.append(x[:, begin : begin + 3].sum(1))
    return torch.stack(rows, 1), torch.stack(sums, 1)


def _behind(x: Tensor) -> Any:
    """Lists that get more elements behind their loop."""
    rows, pieces = [], []
    for t in range(x.shape[1]):
        rows.append(x[:, t] * 2)
    rows.append(x[:, 0] - 1)
    rows.append(x[:, -1])
    for t in range(x.shape[1]):
        pieces.append(x[:, t : t + 1])
    pieces.append(x[:, :2] if x.shape[1] > 1 else x[:, :1])
    return torch.stack(rows, 1), len(rows) * x.sum()


@pytest.mark.parametrize("loops", first(2, [_attention, _one_a_piece, _pieces, _states, _grown, _behind]))
def test_a_last_piece_may_be_shorter(loops: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(loops), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


def _changed_later(x: Tensor) -> Any:
    rows, state = [], x[:, 0] * 2
    for t in range(x.shape[1]):
        rows.append(x[:, t] * 2)
    rows.append(state)
    state += 1
    return torch.stack(rows, 1)


def _of_its_own_lengths(x: Tensor) -> Any:
    return torch.cat([piece.mean(1, keepdim=True) for piece in x.split([2, x.shape[1] - 2], 1)], 1)


def _overlapping(x: Tensor) -> Any:
    return torch.cat([x[:, i : i + 3] for i in range(0, x.shape[1], 2)], 1)


@pytest.mark.parametrize("loop", [_changed_later, _overlapping])
def test_what_is_no_such_piece_counts_with_the_example(loop: Callable[[Tensor], Any]) -> None:
    with pytest.raises(DynamicShapeError, match=r"test_exporter_loop_tails\.py:\d+"):
        export(Called(loop), EXAMPLE, dynamic_shapes=SHAPES)
    export_and_compare(Called(loop), EXAMPLE)


def test_pieces_of_given_lengths_are_those() -> None:
    others = [one for one in OTHERS if one[0].shape[1] > 2]
    export_and_compare(Called(_of_its_own_lengths), EXAMPLE, *others, dynamic_shapes=SHAPES)


def _summed(x: Tensor) -> Any:
    state = torch.zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        state = torch.tanh(state + x[:, t])
    return state


def test_a_loop_of_another_model_fixes_no_axis() -> None:
    """What dynamo keeps of one loop asked the next one for its sizes."""
    assert "fresh_operators" in vars(one_run)
    for _ in range(2):
        export(Called(_summed), EXAMPLE, dynamic_shapes=({1: "t"},)).release()
        export_and_compare(Called(_summed), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


class _Sized(torch.nn.Module):
    """The length of pieces is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 3

    def forward(self, x: Tensor) -> Any:
        made = torch.zeros_like(x)
        for i in range(0, x.shape[1], self.size):
            j = min(i + self.size, x.shape[1])
            made[:, i:j] = x[:, i:j].softmax(1)
        return torch.cat([one - one.mean(1, keepdim=True) for one in x.split(self.size, 1)], 1), made


def test_a_length_may_be_an_attribute() -> None:
    export_and_compare(_Sized(), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


class _Counting(torch.nn.Module):
    """What is split counts its calls; the loop may be one over pieces, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        return torch.cat([one.flip(1) for one in self._scaled(x).split(3, 1)], 1)

    def _scaled(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x * self.calls


@pytest.mark.parametrize("shapes", [SHAPES, None], ids=["free", "static"])
def test_what_is_split_is_computed_once(shapes: Any) -> None:
    program = export(_Counting(), EXAMPLE, dynamic_shapes=shapes, mutations="drop")
    torch.testing.assert_close(program(*EXAMPLE)[0], _Counting()(*EXAMPLE))
