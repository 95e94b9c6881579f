"""Loops over a free size that go on from tensors to tensors are one operator; others count with the example's size."""

from __future__ import annotations

import functools
import linecache
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from exporting import export_and_compare
from rarer import first
from torch.utils import _pytree as pytree

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture.loop_rewriting import with_rounds

pytestmark = pytest.mark.sampled


class Cells(torch.nn.Module):
    """Cells of two layers, each over all steps, as one writes them by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.ModuleList([torch.nn.LSTMCell(3, 4), torch.nn.LSTMCell(4, 4)])
        self.out = torch.nn.Linear(4, 2)
        self.dropped = torch.nn.Dropout(0.5)

    def step(self, cell: torch.nn.Module, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        made: torch.Tensor = cell(x, state)
        return made

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x
        for cell in self.cells:
            outputs = []
            state, c = x.new_zeros(x.shape[0], 4), x.new_zeros(x.shape[0], 4)
            for t in range(x.shape[1]):
                state, c = self.step(cell, h[:, t], (state, c))
                outputs.append(state)
            h = torch.stack(outputs, dim=1)
        return self.out(self.dropped(h)), state


class StateSpace(torch.nn.Module):
    """Decays, inputs and readings of each step, and a name that is used again behind the loop."""

    def forward(self, decay: torch.Tensor, x: torch.Tensor, reading: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(decay.shape[0], decay.shape[1], decay.shape[3])
        found = []
        for index in range(decay.shape[2]):
            state = decay[:, :, index] * state + x[:, :, index]
            out = torch.matmul(state, reading[:, index, :].unsqueeze(-1))
            found.append(out[:, :, 0])
        out = torch.stack(found, dim=-1)
        return out + 1


class Filled(torch.nn.Module):
    """A tensor that gets a slice at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: torch.Tensor, gates: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.zeros(x.shape[0], x.shape[1] + 1, 4, dtype=torch.float64)
        state = x[:, 0] * 0
        for t in range(x.shape[1]):
            gate = torch.sigmoid(gates[:, t, None])
            state = state * gate + x[:, t, :] * self.scale
            out[:, t] = state * 2
        gate = state.sum()
        return out, gate


@pytest.mark.parametrize("sizes", [(1, 1), (2, 9), (4, 2)])
def test_loops_over_a_free_size(sizes: tuple[int, int]) -> None:
    b, n = sizes
    axes = {0: "b", 1: "n"}
    places = {0: "b", 2: "n"}
    given = (torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 5, 4))
    other = (torch.randn(b, 3, n, 4), torch.randn(b, 3, n, 4), torch.randn(b, n, 4))
    program = export_and_compare(StateSpace(), given, other, dynamic_shapes=(places, places, axes))
    assert [node.op_type for node in program.model.graph].count("Scan") == 1
    filled = (torch.randn(3, 5, 4), torch.randn(3, 5))
    export_and_compare(Filled(), filled, (torch.randn(b, n, 4), torch.randn(b, n)), dynamic_shapes=(axes, axes))


class FilledAlike(torch.nn.Module):
    """Tensors made like others, of which one gets slices of fewer axes, with nothing that goes on."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, wide = torch.zeros_like(x), x.new_zeros(3, *x.shape, dtype=torch.float64)
        for t in range(x.shape[1]):
            out[:, t] = x[:, t] * 2
        for t in range(x.shape[1]):
            wide[:, :, t] = x[:, t] - 1
        return out, wide


def test_slices_are_written_to_tensors_made_like_others() -> None:
    more = [(torch.randn(1, 1, 2),), (torch.randn(2, 7, 2),)]
    export_and_compare(FilledAlike(), (torch.randn(2, 5, 2),), *more, dynamic_shapes=({0: "b", 1: "n"},))


def test_cells_of_layers_and_no_seeds_of_their_own() -> None:
    shapes = ({0: "b", 1: "n"},)
    others = [(torch.randn(1, 1, 3),), (torch.randn(2, 9, 3),)]
    export_and_compare(Cells().eval(), (torch.randn(3, 5, 3),), *others, dynamic_shapes=shapes)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        export(Cells().train(), (torch.randn(3, 5, 3),), dynamic_shapes=shapes)
    assert not [one for one in heard if "seeds random numbers" in str(one.message)]


def _left(x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(x.shape[0], 3)
    for t in range(x.shape[1]):
        if t * t > 4:
            break
        h = h + x[:, t]
    return h


def _written_behind(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = torch.zeros(x.shape[0], 3)
    found = []
    for t in range(x.shape[1]):
        h = h + x[:, t]
        found.append(h)
    h.add_(1)
    return torch.stack(found), h


def _kept_slices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x = x * 1
    found = []
    for t in range(x.shape[1]):
        found.append(x[:, t])
    torch.nn.functional.relu(x, inplace=True)
    return torch.stack(found), x


def _known_elsewhere(x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(x.shape[0], 3)
    found: list[torch.Tensor] = []
    other = found
    for t in range(x.shape[1]):
        h = h + x[:, t]
        found.append(h)
    return torch.stack(other)


def _read_by_a_view(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    view = out[:, 0]
    for t in range(x.shape[1]):
        out[:, t] = x[:, t] + view
    return out


def _growing(x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(x.shape[0], 3)
    for t in range(x.shape[1]):
        h = torch.cat([h, h[:, -3:] + x[:, t]], 1)
    return h


def _from_the_end(x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(x.shape[0], 3)
    for t in range(-1, x.shape[1]):
        h = h * 0.5 + x[:, t]
    return h


def _read_by_a_function(x: torch.Tensor) -> torch.Tensor:
    """Of what a round changes, a function that was made before has the name."""
    h, weight = torch.zeros(x.shape[0], 3), torch.ones(3)

    def cell(state: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return state * weight + row

    for t in range(x.shape[1]):
        h = cell(h, x[:, t])
        weight = weight * 0.9
    return h


def _read_by_a_class(x: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(x.shape[0], 3)

    class Reader:
        def __call__(self, row: torch.Tensor) -> torch.Tensor:
            return memory * 0.5 + row

    read, found = Reader(), []
    for row in x.unbind(1):
        found.append(read(row))
        memory = memory + row
    return torch.stack(found)


class Looping(torch.nn.Module):
    def __init__(self, loop: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.loop = loop

    def forward(self, x: torch.Tensor) -> object:
        return self.loop(x)


@pytest.mark.parametrize(
    "loop",
    first(
        4,
        [
            *(_left, _read_by_a_function, _written_behind, _known_elsewhere, _growing, _kept_slices),
            *(_read_by_a_view, _read_by_a_class, _from_the_end),
        ],
    ),
)
def test_other_loops_count_with_the_examples_size(loop: Callable[[torch.Tensor], object]) -> None:
    given = (torch.randn(2, 4, 3),)
    with pytest.raises(DynamicShapeError, match=r"makes it 4.*\(at .*test_exporter_free_loops\.py:\d+"):
        export(Looping(loop), given, dynamic_shapes=({0: "b", 1: "n"},))
    export_and_compare(Looping(loop), given, (torch.randn(3, 4, 3),), dynamic_shapes=({0: "b"},))


def _all_but_the_last(x: torch.Tensor) -> torch.Tensor:
    state = x[:, 0] * 2
    for t in range(x.shape[1] - 1):
        state = state * 0.5 + x[:, t]
    return state


def _two_states(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    state, seen = torch.ones(x.shape[0], 3), torch.zeros(x.shape[0], dtype=torch.bool)
    for t in range(x.shape[1]):
        seen = seen | (x[:, t, 0] > 0)
        state = state / x[:, t]
    return state, seen


def _stacked(x: torch.Tensor) -> torch.Tensor:
    state, rows = torch.ones(x.shape[0], 3), []
    for t in range(x.shape[1]):
        state = state / x[:, t]
        rows.append(state)
    return torch.stack(rows, 1)


def _filled_but_the_last(x: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(x, 7.0)
    for t in range(x.shape[1] - 1):
        out[:, t] = x[:, t] + 1
    return out


def _filled_from_the_third_on(x: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(x, 7.0)
    for t in range(2, x.shape[1]):
        out[:, t] = x[:, t] + 1
    return out


def _from_the_second_on(x: torch.Tensor) -> torch.Tensor:
    state, out = x[:, 0], x * 2
    for t in range(1, x.shape[1]):
        state = state * 0.5 + x[:, t]
        out[:, t] = state
    return out


def _the_second_half(x: torch.Tensor) -> torch.Tensor:
    state = x[:, 0]
    for t in range(x.shape[1] // 2, x.shape[1]):
        state = state * 0.5 + x[:, t]
    return state


FROM_ELSEWHERE = [_filled_from_the_third_on, _from_the_second_on, _the_second_half]


@pytest.mark.parametrize("loop", [_all_but_the_last, _two_states, _stacked, _filled_but_the_last, *FROM_ELSEWHERE])
def test_a_loop_of_no_rounds_leaves_everything_as_it_was(loop: Callable[[torch.Tensor], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no limit is told
        program = export(loop, (torch.randn(2, 5, 3),), dynamic_shapes=({0: "b", 1: "t"},))
    assert any(node.op_type == "Scan" for node in program.model.graph)
    for batch, steps in ((2, 5), (2, 1), (1, 1), (3, 2), (1, 8), (2, 0)):
        x = torch.randn(batch, steps, 3)
        if steps or loop in (
            _two_states,
            _filled_but_the_last,
            _filled_from_the_third_on,
        ):  # of others eager has no result
            torch.testing.assert_close(list(program(x)), pytree.tree_leaves(loop(x)), rtol=1e-5, atol=1e-6)


def test_a_loop_that_is_declared_to_run_has_no_slice_more() -> None:
    steps = torch.export.Dim("t", min=1)
    program = export(_two_states, (torch.randn(2, 5, 3),), dynamic_shapes=({0: "b", 1: steps},))
    assert not {"Pad", "Max", "Greater"} & {node.op_type for node in program.model.graph}
    x = torch.randn(3, 1, 3)
    torch.testing.assert_close(tuple(program(x)), _two_states(x))


def test_code_without_such_a_loop_is_the_code_itself() -> None:
    assert with_rounds(_left.__code__) is _left.__code__
    assert with_rounds(_growing.__code__) is not _growing.__code__


def test_a_file_that_changed_since_it_was_read_is_not_read_again(tmp_path: Path) -> None:
    text = "def f(x, h):\n    for t in range(x.shape[0]):\n        h = h + x[t] * 2\n    return h\n"
    file = tmp_path / "loop.py"
    file.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), names)
    code = names["f"].__code__
    assert with_rounds(code) is not code
    for other in (text.replace("h + x", "h - x"), text.replace("* 2", "* 3"), text.replace("x[t]", "x[t] * h")):
        file.write_text(other)
        linecache.clearcache()
        assert with_rounds(code) is code


class _Slices(torch.nn.Module):
    """Loops over slices, and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = c = g = torch.zeros_like(x[:, 0])
        outs, others, later = [], [], torch.zeros_like(x)
        for xt in x.unbind(1):
            h = self.cell(xt, h)
            outs.append(h)
        for t, xt in enumerate(x.transpose(0, 1)):
            c = torch.tanh(xt + c * x[:, t])
            later[:, t] = c
        for t in range(x.shape[1] - 1, -1, -1):
            g = torch.tanh(x[:, t] + g)
            others.append(g)
        for xt in reversed(x.unbind(1)):
            h = h * 0.5 + xt
        backwards, last = torch.zeros_like(x), h
        for t in reversed(range(x.shape[1])):
            last = last * 0.9 + x[:, t]
            backwards[:, t] = last
        others.reverse()
        return torch.stack(outs, 1), later, torch.stack(others[::-1], 1), torch.stack(others, 1), h, backwards


def test_loops_over_slices_and_backwards() -> None:
    more = [(torch.randn(b, t, 4),) for b, t in ((2, 3), (3, 1), (1, 9))]
    module, shapes = _Slices(), ({0: "b", 1: "t"},)
    export_and_compare(module, (torch.randn(2, 5, 4),), *more, dynamic_shapes=shapes)


class _TurnedRound(torch.nn.Module):
    """Means one after the other, over what gives slices in other words than `unbind`."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean, last, pairs = torch.zeros(4), torch.zeros(4), torch.zeros(2, 2)
        y, outs = x.T, []
        for count, row in enumerate(y.T, start=1):
            mean = mean + (row - mean) / count
        for row, other in zip(y.t(), y.mT, strict=True):
            last = last * 0.5 + row * other
        for row in x.flip(0).contiguous():
            last = last - row
            outs.append(last)
        for pair in x.view(-1, 2, 2):
            pairs = pairs * 0.5 + pair
        return mean, last, pairs, torch.stack(outs)


def test_loops_over_what_turns_a_tensor_round() -> None:
    more = [(torch.randn(n, 4),) for n in (1, 2, 9)]
    export_and_compare(_TurnedRound(), (torch.randn(5, 4),), *more, dynamic_shapes=({0: "n"},))


class _Filter(torch.nn.Module):
    """A filter of Kalman's, whose gain has an inverse."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, spread = torch.zeros(x.shape[0], 3, 1), torch.eye(3).expand(x.shape[0], 3, 3)
        change, outs = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 0.7]]), []
        for t in range(x.shape[1]):
            mean, spread = change @ mean, change @ spread @ change.T + 0.1 * torch.eye(3)
            gain = spread @ torch.linalg.inv(spread + torch.eye(3)).mT
            mean = mean + gain @ (x[:, t, :, None] - mean)
            spread = (torch.eye(3) - gain) @ spread
            outs.append(mean[..., 0])
        return torch.stack(outs, 1)


def test_a_matrix_beside_itself_turned_round() -> None:
    more = [(torch.randn(b, t, 3),) for b, t in ((3, 1), (1, 9))]
    export_and_compare(_Filter(), (torch.randn(2, 5, 3),), *more, dynamic_shapes=({0: "b", 1: "t"},))


class _Counting(torch.nn.Module):
    """Loops that compute with the step as a number, and one that fills a list from its end."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weighed = []
        for place, row in enumerate(x):
            weighed.append(torch.tanh(row * place + (2 - place)))
        total = torch.zeros_like(x[0])
        for step in range(1, x.shape[0]):
            total = total - x[step] / (step + 1)
        state, backwards = x[0] * 0, []
        for step in range(x.shape[0] - 1, -1, -1):
            state = state * 0.5 + x[step] * -step
            backwards.insert(0, state)
        return torch.stack(weighed), total, torch.stack(backwards)


def test_loops_that_compute_with_the_step() -> None:
    others = [(torch.randn(rows, 3),) for rows in (1, 2, 7)]
    export_and_compare(_Counting(), (torch.randn(4, 3),), *others, dynamic_shapes=({0: "n"},))
    whole = torch.arange(12).reshape(4, 3)
    export_and_compare(_Counting(), (whole.double(),), (whole[:2].double(),), dynamic_shapes=({0: "n"},))
    narrow = (torch.arange(4, dtype=torch.int32),)  # of which a tensor without axes would become wider
    with pytest.raises(DynamicShapeError, match="the model makes it 4"):
        export(_Narrow(), narrow, dynamic_shapes=({0: "n"},))


class _Narrow(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = []
        for place, one in enumerate(x):
            made.append(one * place)
        return torch.stack(made)


class _Spellings(torch.nn.Module):
    """The step's place in other words, and elements that are added to a list."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept, last, found = torch.zeros(x.shape), torch.zeros(x.shape[0], 3, x.shape[1]), []
        turned, state = x.transpose(1, 2), torch.zeros(x.shape[0], 3)
        for t in range(x.shape[1]):
            state = state * 0.5 + x[..., t, :] + turned[..., t]
            kept[:, t, :] = state
            last[..., t] = state - 1
            found += [state * 2]
        square = torch.zeros(x.shape[0], x.shape[1], 3, 3)
        for t in range(x.shape[1]):
            square[:, t, ...] = x[:, t, :, None]
        return kept, last, torch.stack(found, 1), square


def test_the_steps_place_in_other_words() -> None:
    more = [(torch.randn(b, t, 3),) for b, t in ((3, 1), (1, 9), (2, 3))]
    export_and_compare(_Spellings(), (torch.randn(2, 5, 3),), *more, dynamic_shapes=({0: "b", 1: "t"},))


def _of_a_known_list(x: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    for t in range(x.shape[1]):
        found += [x[:, t] * len(found)]
    return torch.stack(found)


def test_a_list_that_is_read_in_its_loop_stays_a_list() -> None:
    with pytest.raises(DynamicShapeError, match="the model makes it 4"):
        export(Looping(_of_a_known_list), (torch.randn(2, 4, 3),), dynamic_shapes=({1: "n"},))


def _of_sizes_in_rounds(x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        state = torch.tanh(state + x[:, t] * max(x.shape[0], 2) / max(x.shape[0] - 1, 1) + min(x.shape[0], 3))
    return state


def test_the_larger_of_two_sizes_in_a_round_is_no_smaller_one() -> None:
    """Dynamo asks whether a function is `max`, and takes any other for `min`."""
    more = [(torch.randn(b, t, 3),) for b, t in ((1, 2), (2, 3), (5, 1), (4, 6))]
    export_and_compare(Looping(_of_sizes_in_rounds), (torch.randn(3, 4, 3),), *more, dynamic_shapes=({0: "b", 1: "t"},))


class _Held:
    weight: torch.Tensor


def _held_by_an_object(x: torch.Tensor) -> torch.Tensor:
    held, weight = _Held(), torch.ones(3)
    held.weight = weight
    h = torch.zeros(x.shape[0], 3)
    for t in range(x.shape[1]):
        h = h + x[:, t] * held.weight
        weight *= 0.9
    return h


def _held_by_a_partial_function(x: torch.Tensor) -> torch.Tensor:
    weight = torch.ones(3)
    times, h = functools.partial(torch.mul, weight), torch.zeros(x.shape[0], 3)
    for t in range(x.shape[1]):
        h = h + times(x[:, t])
        weight *= 0.9
    return h


@pytest.mark.parametrize("loop", first(1, [_held_by_an_object, _held_by_a_partial_function]))
def test_a_loop_that_is_not_what_its_operator_does_is_refused(loop: Callable[[torch.Tensor], object]) -> None:
    """What is written to in a round is held by something that is no name."""
    given = (torch.randn(2, 4, 3),)
    with pytest.raises(CaptureError, match="is no operator of the file: at the example inputs output 0 differs"):
        export(Looping(loop), given, dynamic_shapes=({0: "b", 1: "n"},))
    export_and_compare(Looping(loop), given, (torch.randn(3, 4, 3),), dynamic_shapes=({0: "b"},))


def _with_noise(x: torch.Tensor) -> torch.Tensor:
    h = x.new_zeros(4, 3)
    for row in x:
        h = h * 0.5 + row + torch.rand_like(h)
    return h


def test_a_loop_that_draws_numbers_says_so() -> None:
    with pytest.raises(CaptureError, match=r"draws random numbers, which come in another order.*before the loop"):
        export(Looping(_with_noise), (torch.randn(2, 4, 3),), dynamic_shapes=({0: "n"},))


def _by_the_length(x: torch.Tensor) -> torch.Tensor:
    h, n = torch.zeros(x.shape[0], 3), x.shape[1]
    for t in range(n):
        h = h + x[:, t] * ((t + 2) % n) + (t + 1) // n
    return h


def test_a_round_in_place_of_none_divides_by_no_length_of_0() -> None:
    others = [(torch.randn(2, n, 3),) for n in (0, 1, 2, 7)]
    export_and_compare(Looping(_by_the_length), (torch.randn(2, 4, 3),), *others, dynamic_shapes=({0: "b", 1: "n"},))
