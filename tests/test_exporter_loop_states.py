"""Loops over a free size as people write recurrences: states in tuples, lists and dicts, or begun as None, the first
round apart, the last output read again, several tensors side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

SHAPES = ({0: "b", 1: "t"},)
Made = tuple[torch.Tensor, ...]


def _others(*sizes: tuple[int, int]) -> list[tuple[torch.Tensor]]:
    return [(torch.randn(*size, 4),) for size in sizes]


class _Decorated(torch.nn.Module):
    """A loop within a function that is decorated."""

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            h = 0.5 * h + x[:, t]
        return h


class _Layers(torch.nn.Module):
    """States of cells: in a tuple, in a list whose elements change, in one that is made anew, begun as None."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.ModuleList([torch.nn.LSTMCell(4, 4), torch.nn.LSTMCell(4, 4)])
        self.one = torch.nn.GRUCell(4, 4)

    def forward(self, x: torch.Tensor) -> Made:
        zeros = x.new_zeros(x.shape[0], 4)
        state, made = (zeros, zeros), []
        for t in range(x.shape[1]):
            state = self.cells[0](x[:, t], state)
            made.append(state[0])
        states = [(zeros, zeros) for _ in self.cells]
        inputs, others = x.unbind(1), []
        for t in range(len(inputs)):
            one, kept = inputs[t], []
            for cell, own in zip(self.cells, states, strict=True):
                h, c = cell(one, own)
                kept.append((h, c))
                one = h
            states = kept
            others += [one]
        hidden = [zeros, zeros]
        for t in range(x.shape[1]):
            one = x[:, t]
            for place in range(2):
                hidden[place] = self.one(one, hidden[place])
                one = hidden[place]
        begun, known = None, {"h": zeros}
        for row in x.transpose(0, 1):
            begun = self.one(row, begun)
            known["h"] = known["h"] * 0.5 + begun
        return torch.stack(made, 1), state[1], torch.stack(others, 1), states[0][1], *hidden, begun, known["h"]


def _firsts(x: torch.Tensor) -> Made:
    """The first round does something else, by the step or by what it begins with."""
    n = x.shape[1]
    h = total = backwards = x[:, 0] * 0
    best: Any = None
    for t in range(n):
        if t > 0:
            h = 0.5 * h
        h = h + x[:, t]
    for t, row in enumerate(x.unbind(1)):
        total = row if t == 0 else total * 0.9 + row
    for row in x.unbind(1):
        best = row if best is None else torch.maximum(best, row)
    for t in reversed(range(n)):
        backwards = x[:, t] if t == n - 1 else backwards * 0.5 + x[:, t]
    return h, total, best, backwards


def _again(x: torch.Tensor) -> Made:
    """What the last round read, wrote or gave is read again."""
    differences, smooth, decayed, longest = [x[:, 0]], torch.zeros_like(x), [x[:, 0]], [x[:, 0]]
    smooth[:, 0] = x[:, 0]
    for t in range(1, x.shape[1]):
        differences.append(x[:, t] - x[:, t - 1])
    for t in range(1, x.shape[1]):
        smooth[:, t] = 0.9 * smooth[:, t - 1] + 0.1 * x[:, t]
    for t in range(1, x.shape[1]):
        decayed.append(0.9 * decayed[-1] + 0.1 * x[:, t])
    for t in range(1, x.shape[1]):
        longest.append(torch.maximum(longest[t - 1] * 0.9, x[:, t]))
    return torch.stack(differences, 1), smooth, torch.stack(decayed, 1), torch.stack(longest, 1)


def _beside(x: torch.Tensor) -> Made:
    """Places beside the step's, also backwards, and counted from the end."""
    batch, length, width = x.shape
    states, advantage, last = torch.zeros(batch, length + 1, width), torch.zeros_like(x), torch.zeros(batch, width)
    for t in range(length):
        states[:, t + 1] = 0.5 * states[:, t] + x[:, t]
    for t in reversed(range(length - 1)):
        last = x[:, t] + 0.99 * x[:, t + 1] + 0.95 * last
        advantage[:, t] = last
    turned = x * 2
    for t in range(length):
        turned[:, t] = x[:, t] + 0.9 * turned[:, t - 1] + x[:, t - 1]
    return states[:, 1:], advantage, turned


def _numbers(x: torch.Tensor) -> Made:
    """Numbers that go by the step, among them fractions; several tensors and elements in one round."""
    n, gamma = x.shape[1], 0.9
    weighed = summed = product = x[:, 0] * 0
    pairs = []
    for t in range(n):
        weighed = weighed + gamma**t * x[:, t] + x[:, t] * 0.5 ** (x.shape[1] - 1 - t)
    for t in range(n):
        summed = summed + x[:, t].softmax(-1) * t + (1 - (t + 1) / n)
    for t, (one, other) in enumerate(zip(x.unbind(1), x.flip(1).unbind(1), strict=False)):
        product = product + one * other * t
    for one in x.unbind(1):
        pairs.append(one.sin())
        pairs.append(one.cos())
    return weighed, summed, product, torch.stack(pairs, 1)


@pytest.mark.parametrize("loops", [_firsts, _again, _beside, _numbers])
def test_recurrences_as_they_are_written(loops: Callable[[torch.Tensor], Made]) -> None:
    others = _others((3, 1), (1, 9), (2, 2))
    export_and_compare(Called(loops), (torch.randn(2, 6, 4),), *others, dynamic_shapes=SHAPES)


@pytest.mark.parametrize("model", [_Decorated(), _Layers()])
def test_states_of_cells(model: torch.nn.Module) -> None:
    export_and_compare(model, (torch.randn(2, 6, 4),), *_others((3, 1), (1, 9)), dynamic_shapes=SHAPES)


def _known_twice(x: torch.Tensor) -> Any:
    states, total = [x[:, 0], x[:, 0]], torch.zeros(x.shape[0], 4)
    other = states
    for t in range(x.shape[1]):
        states[0] = states[0] * 0.5 + x[:, t]
        total = total + other[0]
    return total


def _element_before_the_last(x: torch.Tensor) -> Any:
    made, total = [x[:, 0]], torch.zeros(x.shape[0], 4)
    for t in range(1, x.shape[1]):
        made.append(x[:, t])
        total = total * 0.5 + made[t - 1]
    return total, torch.stack(made)


def _two_places_before(x: torch.Tensor) -> Any:
    made = x * 1
    for t in range(2, x.shape[1]):
        made[:, t] = made[:, t - 1] + made[:, t - 2]
    return made


def _growing_tuple(x: torch.Tensor) -> Any:
    made: Made = ()
    for t in range(x.shape[1]):
        made = (*made, x[:, t])
    return torch.stack(made)


def _by_a_tensor(x: torch.Tensor) -> Any:
    total, scale = torch.zeros(x.shape[0], 4), x[0, 0, 0].sigmoid()
    for t in range(x.shape[1]):
        total = total + x[:, t] * scale**t
    return total


def _of_two_lengths(x: torch.Tensor) -> Any:
    made = []
    for one, other in zip(x.transpose(0, 1), torch.ones(3, 4), strict=False):
        made.append(one * other)
    return torch.stack(made)


@pytest.mark.parametrize(
    "loop",
    [_known_twice, _element_before_the_last, _two_places_before, _by_a_tensor, _of_two_lengths],
)
def test_what_no_operator_takes_is_refused(loop: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(DynamicShapeError, match=r"test_exporter_loop_states\.py:\d+"):
        export(loop, (torch.randn(2, 6, 4),), dynamic_shapes=SHAPES)


def test_a_loop_is_followed_behind_one_that_was_not() -> None:
    with pytest.raises(DynamicShapeError):
        export(_growing_tuple, (torch.randn(2, 6, 4),), dynamic_shapes=SHAPES)
    export_and_compare(Called(_again), (torch.randn(2, 6, 4),), dynamic_shapes=SHAPES)


def test_a_round_in_place_of_none_reads_what_is_there() -> None:
    """The step may be a place that a shorter input does not have."""

    def looked_up(x: torch.Tensor) -> torch.Tensor:
        own = x[0] * 1
        for t in range(1, x.shape[1] - 1):
            own = torch.where(own[t] > 0, own * 0.5, own + 1)
        return own

    program = export(Called(looked_up), (torch.randn(2, 8, 4),), dynamic_shapes=SHAPES)
    for size in ((2, 8), (3, 3), (1, 2), (2, 1)):
        x = torch.randn(*size, 4)
        torch.testing.assert_close(program(x)[0], looked_up(x))


class _Tagger(torch.nn.Module):
    """The score of a path and the best one, as conditional random fields compute them, writing behind the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.end, self.steps = (torch.nn.Parameter(torch.randn(*size)) for size in ((4,), (4,), (4, 4)))

    def forward(self, x: torch.Tensor) -> Made:
        path = x.argmax(-1)
        total = self.begin[path[:, 0]]
        score, back, made = self.begin + x[:, 0], [], torch.zeros_like(x)
        for i in range(1, x.shape[1]):
            total += self.steps[path[:, i - 1], path[:, i]]
            best, places = (score.unsqueeze(2) + self.steps + x[:, i].unsqueeze(1)).max(dim=1)
            score = torch.where(x[:, i, :1] > 0, best, score)
            back.append(places)
            made[:, i] = score
        total += self.end[path[:, -1]]
        score += self.end
        tag = score.max(1)[1]
        tags = [tag]
        for places in reversed(back):
            tag = places.gather(1, tag.unsqueeze(1)).squeeze(1)
            tags.insert(0, tag)
        return total, torch.stack(tags, 1), score, made


def test_a_result_that_is_written_to_behind_the_loop_keeps_the_length_free() -> None:
    export_and_compare(_Tagger(), (torch.randn(2, 5, 4),), *_others((1, 9), (3, 2), (2, 1)), dynamic_shapes=SHAPES)


def _in_a_list(x: torch.Tensor) -> Made:
    h, found = x[:, 0] * 1, []
    for t in range(1, x.shape[1]):
        h = torch.tanh(h + x[:, t])
        found.append(h)
    h += 5
    return torch.stack(found, 1), h


def _by_another_name(x: torch.Tensor) -> Made:
    h = new = x[:, 0] * 1
    for t in range(1, x.shape[1]):
        new = torch.tanh(h + x[:, t])
        h = new.view(-1, 4)
    h += 5
    return new, h


def _of_the_input(x: torch.Tensor) -> Made:
    h = x[:, 0]
    for t in range(1, x.shape[1]):
        h = torch.tanh(h + x[:, t])
    h += 5
    return x.sum(1), h


def _known_before(x: torch.Tensor) -> Made:
    h = x[:, 0] * 1
    same = h
    for t in range(1, x.shape[1]):
        h += x[:, t]
    h += 5
    return same, h


@pytest.mark.parametrize("function", [_in_a_list, _by_another_name, _of_the_input, _known_before])
def test_such_a_write_to_what_may_be_another_tensor_too_is_refused(function: Callable[..., Made]) -> None:
    with pytest.raises(DynamicShapeError):
        export(Called(function), (torch.randn(2, 6, 4),), dynamic_shapes=SHAPES)
