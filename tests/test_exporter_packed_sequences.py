"""Packed sequences: recurrent layers over batches of sequences of different lengths, beside eager at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.utils import rnn

from batch_export.exporter import export
from batch_export.exporter.capture.packed_sequences import packed_sequences
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled

DYNAMIC = {"x": {0: "batch", 1: "seq"}, "lengths": {0: "batch"}}
LENGTHS = ([6, 4, 1], [3, 3], [1])


@dataclass(frozen=True)
class How:
    layer: Callable[..., torch.nn.RNNBase]
    options: dict[str, Any]
    is_sorted: bool = False
    is_total: bool = False
    uses_data: bool = False
    batch_first: bool = True
    padding: float = 0.0


class Packing(torch.nn.Module):
    def __init__(self, how: How) -> None:
        super().__init__()
        self.how = how
        self.layer = how.layer(4, 5, batch_first=how.batch_first, **how.options)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> object:
        how = self.how
        x = x if how.batch_first else x.transpose(0, 1)
        packed = rnn.pack_padded_sequence(x, lengths, how.batch_first, how.is_sorted)
        if how.uses_data:
            packed = packed._replace(data=self.linear(packed.data).relu())
        found, state = self.layer(packed)
        if how.uses_data:
            found = found._replace(data=found.data - found.data.mean(0))
        total = x.shape[int(how.batch_first)] if how.is_total else None
        return rnn.pad_packed_sequence(found, how.batch_first, how.padding, total), state


WAYS = {
    "two layers both ways": How(torch.nn.LSTM, {"bidirectional": True, "num_layers": 2}),
    "sorted and filled up": How(torch.nn.LSTM, {}, is_sorted=True, is_total=True),
    "a padding value": How(torch.nn.GRU, {"bidirectional": True}, is_total=True, padding=-1.0),
    "steps first": How(torch.nn.GRU, {}, batch_first=False),
    "operators on the elements": How(torch.nn.RNN, {"nonlinearity": "relu"}, uses_data=True),
    "no biases": How(torch.nn.RNN, {"bias": False}, uses_data=True, is_sorted=True),
}


def _leaves(value: object) -> list[torch.Tensor]:
    found: list[torch.Tensor] = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in found if leaf is not None]


def _agree(program: Any, module: torch.nn.Module, *inputs: torch.Tensor) -> None:
    for found, expected in zip(program(*inputs), _leaves(module(*inputs)), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", WAYS)
def test_layers_take_the_lengths(way: str) -> None:
    module = Packing(WAYS[way]).eval()
    program = export(module, (torch.randn(2, 5, 4), torch.tensor([5, 2])), dynamic_shapes=DYNAMIC)
    for lengths in LENGTHS:
        _agree(program, module, torch.randn(len(lengths), max(lengths) + 1, 4), torch.tensor(lengths))
    assert sum(node.op_type in ("LSTM", "GRU", "RNN") for node in program.model.graph.all_nodes()) <= 2


def test_lengths_in_any_order_and_states_that_are_given() -> None:
    class Started(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(4, 5)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> object:
            packed = rnn.pack_padded_sequence(x.transpose(0, 1), lengths.cpu(), enforce_sorted=False)
            found, state = self.layer(packed, (h, c))
            return found, state

    shapes = {**DYNAMIC, "h": {1: "batch"}, "c": {1: "batch"}}

    def inputs(*lengths: int) -> tuple[torch.Tensor, ...]:
        count = len(lengths)
        return torch.randn(count, 6, 4), torch.tensor(lengths), torch.randn(1, count, 5), torch.randn(1, count, 5)

    module = Started().eval()
    program = export(module, inputs(2, 6, 4), dynamic_shapes=shapes)
    for lengths in ((1, 5, 2, 6), (3,), (2, 4)):
        _agree(program, module, *inputs(*lengths))


def test_torch_packs_as_ever_afterwards() -> None:
    x, lengths = torch.randn(2, 3, 4), torch.tensor([3, 1])
    export(Packing(WAYS["steps first"]).eval(), (x, lengths))
    packed = rnn.pack_padded_sequence(x, lengths, True)
    assert packed.batch_sizes.tolist() == [2, 1, 1]


SCANNED = {
    "projections": (How(torch.nn.LSTM, {"proj_size": 2, "bidirectional": True, "num_layers": 2}), torch.float32),
    "projections, float64": (How(torch.nn.LSTM, {"proj_size": 2}, is_sorted=True), torch.float64),
    "LSTM": (How(torch.nn.LSTM, {"bidirectional": True}), torch.float64),
    "GRU": (How(torch.nn.GRU, {"bidirectional": True, "num_layers": 2}, padding=-1.0), torch.float64),
    "RNN": (How(torch.nn.RNN, {}, uses_data=True, batch_first=False), torch.float64),
}


@pytest.mark.parametrize("opset", [13, 20])
@pytest.mark.parametrize("way", SCANNED)
def test_layers_without_a_kernel_take_the_lengths_too(way: str, opset: int) -> None:
    how, dtype = SCANNED[way]
    module = Packing(how).to(dtype).eval()
    example = (torch.randn(2, 5, 4, dtype=dtype), torch.tensor([5, 2]))
    program = export(module, example, dynamic_shapes=DYNAMIC, opset_version=opset)
    for lengths in LENGTHS:
        x = torch.randn(len(lengths), max(lengths) + 1, 4, dtype=dtype)
        _agree(program, module, x, torch.tensor(lengths))


def test_layers_can_be_made_while_a_model_is_captured() -> None:
    with packed_sequences():
        assert torch.nn.GRU(2, 3).hidden_size == 3


class GivenState(torch.nn.Module):
    """Lengths have to be sorted, which numbers made up at random are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(4, 5)

    def forward(self, x: torch.Tensor, state: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        found, _ = self.layer(rnn.pack_padded_sequence(x, lengths), state)
        return rnn.pad_packed_sequence(found)[0]


def test_axes_of_sorted_lengths_that_the_model_makes_equal_are_one() -> None:
    def given(*lengths: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(lengths[0], len(lengths), 4), torch.randn(1, len(lengths), 5), torch.tensor(lengths)

    shapes = ({0: "seq", 1: "batch"}, {1: "states"}, {0: "many"})
    with pytest.warns(UserWarning, match="the model makes the axes .* equal"):
        export_and_compare(GivenState(), given(6, 4, 1), given(3, 3), given(7, 5, 4, 4), dynamic_shapes=shapes)
