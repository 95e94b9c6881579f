"""Loops over a free size in other words: windows, places that go by a rule, choices by the step, counters, `while`,
tensors that grow, sums, `+=`, and ranges under a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

SHAPES = ({0: "b", 1: "t"},)
EXAMPLE = (torch.randn(2, 8, 4),)
OTHERS = [(torch.randn(*size, 4),) for size in ((1, 9), (3, 4), (4, 13))]
Tensor = torch.Tensor
Made = tuple[Tensor, ...]


def _windows(x: Tensor) -> Made:
    """Parts of as many places: one by one, with a hop, blocks, backwards, around the step."""
    window, hop, padded = 4, 2, torch.nn.functional.pad(x, (0, 0, 1, 1))
    means, frames, hops, blocks, medians = [], [], [], [], []
    back = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1] - 2):
        means.append(x[:, t : t + 3].mean(1))
    for i in range((x.shape[1] - window) // hop + 1):
        frames.append(x[:, i * hop : i * hop + window].sum(1))
    for begin in range(0, x.shape[1] - window + 1, 3):
        hops.append(x[:, begin : begin + window].amax(1))
    for i in range(x.shape[1] // hop):
        blocks.append(x[:, i * hop : (i + 1) * hop].softmax(1))
    for t in range(1, padded.shape[1] - 1):
        medians.append(padded[:, t - 1 : t + 2].median(1).values)
    for t in range(x.shape[1] - 3, -1, -1):
        back = back * 0.9 + x[:, t : t + 3].sum(1)
    stacked = [torch.stack(one, 1) for one in (means, frames, hops, medians)]
    return *stacked, torch.cat(blocks, 1), back


def _places(x: Tensor) -> Made:
    """Places that are not the step's: from the end, every second one, pairs, what is written there."""
    length = x.shape[1]
    ahead = from_end = evens = pairs = torch.zeros_like(x[:, 0])
    turned, spread = torch.zeros_like(x), torch.zeros(x.shape[0], 2 * length, 4)
    for t in range(length):
        ahead = 0.5 * ahead + x[:, length - 1 - t]
        turned[:, length - 1 - t] = ahead
    for t in range(length):
        from_end = 0.5 * from_end + x[:, -t - 1]
    for t in reversed(range(0, length, 2)):
        evens = evens * 0.9 + x[:, t]
    for t in range(length // 2):
        pairs = 0.5 * pairs + x[:, 2 * t] * x[:, 2 * t + 1]
    for t in range(length):
        spread[:, 2 * t] = x[:, t]
    return ahead, turned, from_end, evens, pairs, spread


def _added(x: Tensor) -> Made:
    """What each round adds: to overlapping windows, at its place, to one tensor, to a number."""
    hop, window, length = 2, 4, x.shape[1]
    sound, less, wide = torch.zeros(x.shape[0], (length - 1) * hop + window), x * 2, torch.zeros(x.shape[0], 8, 4)
    total, loss, count = torch.zeros_like(x[:, 0]), 0.0, 0
    known = total
    for i in range(length):
        sound[:, i * hop : i * hop + window] += x[:, i]
    for t in range(length):
        less[:, t] -= x[:, t].cumsum(-1)
    for t in range(length):
        total *= 0.5
        total += x[:, t]
    for t in range(length - 1):
        loss += ((x[:, t + 1] - x[:, t]) ** 2).sum()
        count += 1
    wide += x[:, :1]
    return sound, less, total, known, torch.as_tensor(loss / count), wide


def _chosen(x: Tensor) -> Made:
    """An `if` by the step, and the step beside a tensor."""
    length, lengths = x.shape[1], (x[..., 0] > 0).sum(1)
    by_turns = halves = gated = held = torch.zeros_like(x[:, 0])
    every_third = []
    for t in range(length):
        if t % 2 == 0:  # noqa: SIM108  # the statement is what is tried
            by_turns = by_turns + x[:, t]
        else:
            by_turns = by_turns - x[:, t]
    for t in range(length):
        if t < length // 2:
            halves = halves + x[:, t]
        elif t == length - 1:
            halves = halves * 2
        elif t > 0 and not t % 3:
            halves = halves - x[:, t]
    for t in range(length):
        every_third.append(x[:, t] if t % 3 else x[:, t] * 2)
    for t in range(length):
        held = torch.where((t < lengths).unsqueeze(1), torch.tanh(x[:, t] + held), held)
    for t in range(length):
        valid = (lengths > t).float()[:, None]
        gated = valid * (x[:, t] + gated) + (1 - valid) * gated
    return by_turns, halves, torch.stack(every_third, 1), held, gated


def _counted(x: Tensor) -> Made:
    """`while` with a counter, which is read behind it."""
    t, u, state, parts = 0, 1, torch.zeros_like(x[:, 0]), []
    while t < x.shape[1]:
        state = 0.5 * state + x[:, t]
        t += 1
    while u + 2 <= x.shape[1]:
        parts.append(x[:, u : u + 2].sum(1))
        u = u + 2
    return state * t, torch.stack(parts, 1) * u


def _grown(x: Tensor) -> Made:
    """Tensors that grow by `torch.cat`, from nothing, from None and from something."""
    empty, none, state = torch.zeros(x.shape[0], 0, 4), None, torch.zeros_like(x[:, 0])
    wide = torch.zeros(x.shape[0], 3)
    for t in range(x.shape[1]):
        state = state * 0.5 + x[:, t]
        empty = torch.cat([empty, state.unsqueeze(1)], dim=1)
    for t in range(x.shape[1]):
        part = x[:, t : t + 1] * 2
        none = part if none is None else torch.cat((none, part), 1)
    for t in range(x.shape[1]):
        wide = torch.cat([wide, x[:, t]], -1)
    return empty, torch.as_tensor(none), wide


def _summed(x: Tensor) -> Made:
    """`sum` of a generator, of a list that a loop has filled, and how long it is."""
    losses = []
    for t in range(x.shape[1] - 1):
        losses.append(x[:, t + 1] - x[:, t])
    return torch.as_tensor(sum(x[:, t] * 0.5 for t in range(x.shape[1]))), torch.as_tensor(sum(losses)) / len(losses)


def _run(x: Tensor, steps: Iterable[int]) -> list[Tensor]:
    state, found = torch.zeros_like(x[:, 0]), []
    for t in steps:
        state = torch.tanh(state + x[:, t])
        found.append(state)
    return found


def _named(x: Tensor) -> Made:
    """Steps and lists under a name, and both ways; the best path, from its end."""
    ahead = _run(x, range(x.shape[1]))
    back = _run(x, reversed(range(x.shape[1])))
    back.reverse()
    score, places, moves = x[:, 0], [], torch.arange(16.0).view(4, 4) / 16
    for t in range(1, x.shape[1]):
        best, place = (score.unsqueeze(2) + moves).max(1)
        score = best + x[:, t]
        places.append(place)
    tag = score.argmax(1)
    path = [tag]
    for place in reversed(places):
        tag = place.gather(1, tag.unsqueeze(1)).squeeze(1)
        path.insert(0, tag)
    return torch.stack(ahead, 1), torch.stack(back, 1), torch.stack(path, 1)


def _numbers(x: Tensor) -> Made:
    """Numbers that go on, numbers by the step beside what functions give, the step as a value."""
    decay, times, faded, mean = 1.0, 0, torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    state, top, place, found = mean, x[:, 0, 0], torch.zeros(x.shape[0], dtype=torch.long), []
    for t in range(x.shape[1]):
        faded = faded + decay * x[:, t] * times
        decay *= 0.9
        times = times + 1
    for t in range(x.shape[1]):
        mean = mean + (x[:, t].softmax(-1) - mean) / (t + 1)
    for t, row in enumerate(x.unbind(1)):
        state = torch.tanh(row + state)
        found.append(state * (t + 1))
    for t in range(1, x.shape[1]):
        is_larger = x.select(1, t)[:, 0] > top
        place = torch.where(is_larger, t, place)
        top = torch.where(is_larger, x[:, t, 0], top)
    return faded * decay, mean, torch.stack(found, 1), place


def _in_place(x: Tensor) -> Made:
    """Methods that write, a running sum in its own tensor, lists in a dict."""
    state, running, mixed = torch.zeros_like(x[:, 0]), x.clone(), x.clone()
    found: dict[str, list[Tensor]] = {"once": [], "twice": []}
    for t in range(x.shape[1]):
        state.mul_(0.5).add_(x[:, t])
    for t in range(1, x.shape[1]):
        running[:, t] += running[:, t - 1]
    for t in range(1, x.shape[1]):
        mixed[:, t] = mixed[:, t] * 2 + 0.5 * mixed[:, t - 1]
    for t in range(x.shape[1]):
        found["once"].append(x[:, t])
        found["twice"].append(x[:, t] * 2)
    return state, running, mixed, torch.stack(found["once"], 1) + torch.stack(found["twice"], 1)


def _from_the_last(x: Tensor) -> Made:
    """What all rounds but the first read lies outside of the axis in that one; a list comprehension behind a loop."""
    length, advantages, last, state = x.shape[1], torch.zeros_like(x), torch.zeros_like(x[:, 0]), x[:, 0] * 0
    for t in reversed(range(length)):
        following = x[:, -1] * 0.3 if t == length - 1 else x[:, t + 1]
        advantages[:, t] = last = x[:, t] + 0.99 * following + 0.9 * last
    for t in range(length):
        state = 0.5 * state + x[:, t]
    return advantages, torch.stack([state * (i + 1) for i in range(3)])


@pytest.mark.parametrize(
    "loops",
    first(
        5,
        [
            *(_windows, _places, _added, _chosen, _counted, _grown, _named),
            *(_numbers, _in_place, _from_the_last, _summed),
        ],
    ),
)
def test_loops_in_other_words(loops: Callable[[Tensor], Made]) -> None:
    export_and_compare(Called(loops), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


def test_no_place_and_one_place() -> None:
    """Loops of no rounds: nothing is added, and what grows from something stays that."""

    def loops(x: Tensor) -> Made:
        total, wide = torch.zeros(x.shape[0], 4), torch.zeros(x.shape[0], 3)
        for t in range(0, x.shape[1], 2):
            total += x[:, t]
        for t in range(x.shape[1] - 1):
            wide = torch.cat([wide, x[:, t] * x[:, t + 1]], 1)
        return total, wide

    export_and_compare(Called(loops), EXAMPLE, (torch.randn(2, 0, 4),), (torch.randn(1, 1, 4),), dynamic_shapes=SHAPES)


class _Advantages(torch.nn.Module):
    """Values have one place more than rewards, by a free axis of their own."""

    def forward(self, rewards: Tensor, values: Tensor) -> Tensor:
        found, last = [], torch.zeros(rewards.shape[0])
        for t in reversed(range(rewards.shape[1])):
            last = rewards[:, t] + 0.99 * values[:, t + 1] - values[:, t] + 0.95 * last
            found.insert(0, last)
        return torch.stack(found, 1)


def test_places_of_an_axis_of_its_own() -> None:
    others = [(torch.randn(b, t), torch.randn(b, t + 1)) for b, t in ((1, 3), (3, 1), (2, 9))]
    given = (torch.randn(2, 5), torch.randn(2, 6))
    export_and_compare(_Advantages(), given, *others, dynamic_shapes=({0: "b", 1: "t"}, {0: "b", 1: "s"}))


def _another_tensor_in_place(x: Tensor) -> Any:
    """What a round changes in place is another tensor in the next one."""
    total, other = x[:, 0] * 1, torch.ones(x.shape[0], 4)
    for t in range(x.shape[1]):
        total.mul_(0.5)
        total = other if t == 0 else x[:, t] * 2
    return total, other


def _known_and_begun_anew(x: Tensor) -> Any:
    total = known = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        if t % 3 == 1:
            total = x[:, t].clone()
        total += x[:, t]
    return total, known


def _known_list_of_a_dict(x: Tensor) -> Any:
    found: dict[str, list[Tensor]] = {"states": []}
    known = found["states"]
    for t in range(x.shape[1]):
        found["states"].append(x[:, t] * 2)
    return torch.stack(known, 1)


def _view_of_its_own(x: Tensor) -> Any:
    """A name for a place that is written to behind it stands for what is written."""
    made, total = x.clone(), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        before = made[:, t]
        made[:, t] = x[:, t] * 2
        total = total + before
    return total


def _written_twice(x: Tensor) -> Any:
    made = torch.zeros_like(x)
    for t in range(x.shape[1] - 1):
        made[:, t : t + 2] = x[:, t : t + 2]
    return made


def _kept_in_place(x: Tensor) -> Any:
    total, found = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        total += x[:, t]
        found.append(total)
    return torch.stack(found, 1)


def _of_what_is_read(x: Tensor) -> Any:
    total = x[:, 0]
    for t in range(1, x.shape[1]):
        total += x[:, t]
    return total, x


def _of_other_shapes(x: Tensor) -> Any:
    total = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        part = x[:, t] if t % 2 else x[:, t, :1]
        total = total + part
    return total


def _in_place_of_its_own(x: Tensor) -> Any:
    found = []
    for t in range(x.shape[1]):
        part = other = x[:, t] * 2
        if t % 2:
            part += 1
        found.append(other)
    return torch.stack(found, 1)


@pytest.mark.parametrize(
    "loop",
    first(
        3,
        [
            *(_another_tensor_in_place, _view_of_its_own, _written_twice, _kept_in_place, _of_other_shapes),
            *(_known_and_begun_anew, _known_list_of_a_dict, _of_what_is_read, _in_place_of_its_own),
        ],
    ),
)
def test_what_would_be_another_number_is_refused(loop: Callable[[Tensor], Any]) -> None:
    with pytest.raises(DynamicShapeError, match=r"test_exporter_loop_forms\.py:\d+"):
        export(Called(loop), EXAMPLE, dynamic_shapes=SHAPES)
    export_and_compare(Called(loop), EXAMPLE, (torch.randn(5, 8, 4),), dynamic_shapes=({0: "b"},))
