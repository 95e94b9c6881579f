"""`if mask.any(): x[mask] = value`: the write does nothing where the mask has nothing, so that it is no decision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from batch_export.exporter import export
from tests.exporting import assert_same, eager

pytestmark = pytest.mark.sampled


class _Tokens(nn.Module):
    """More kinds of tokens than decisions that are captured both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 4)
        self.special = nn.Parameter(torch.rand(8, 4))
        self.listed = [torch.rand(4), torch.rand(4)]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for kind in range(8):
            mask = ids == kind
            if mask.any():
                x[mask] = self.special[kind].to(x.dtype)
        mask = ids == 9
        if torch.any(mask).item():
            x[mask] += self.listed[1] * 2
        mask = ids > 12
        if mask.sum() > 0:
            x[mask] = -1.0
            x[mask] += 0.5
        return x


class _Places(nn.Module):
    """One value for each place: as many as there are, or an error."""

    def forward(self, ids: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = torch.zeros(*ids.shape, 4)
        mask = ids > 12
        if mask.any():
            x[mask] = values
        return x


class _Hits(nn.Module):
    """What is computed of the places themselves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        mask = x > 0
        if mask.any():
            x[mask] = x[mask].max()
        return x


class _Indices(nn.Module):
    """Whole numbers in the place of a mask: indices."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        if at.any():
            x[at] = 5.0
        return x


@pytest.mark.parametrize("is_free", [False, True])
def test_writes_by_a_mask_are_no_decisions(*, is_free: bool) -> None:
    torch.manual_seed(0)
    module = _Tokens()
    axes = {"ids": {0: "batch", 1: "seq"}} if is_free else None
    program = export(module, (torch.randint(0, 16, (2, 20)),), dynamic_shapes=axes)

    assert not program.captured.both_ways
    assert not any(node.op_type == "If" for node in program.model.graph)
    for high in (10, 16):
        ids = torch.randint(8, high, (3, 7) if is_free else (2, 20))
        assert_same(program(ids), eager(module, (ids,)))
    nothing = torch.full((2, 20), 11)
    assert_same(program(nothing), eager(module, (nothing,)))


def test_one_value_for_each_place_is_a_decision() -> None:
    module = _Places()
    ids = torch.tensor([[1, 13, 2, 14]])
    program = export(module, (ids, torch.rand(2, 4)))

    assert len(program.captured.both_ways) == 1
    for given in (ids, torch.tensor([[1, 2, 3, 4]]), torch.tensor([[15, 2, 3, 14]])):
        values = torch.rand(2, 4)
        assert_same(program(given, values), [module(given, values)])


def test_what_is_made_of_the_places_is_a_decision() -> None:
    module = _Hits()
    program = export(module, (torch.tensor([1.0, -2.0, 3.0]),))

    assert len(program.captured.both_ways) == 1
    for x in (torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([2.0, 5.0, -3.0])):
        assert_same(program(x), [module(x)])


def test_indices_are_no_mask() -> None:
    module = _Indices()
    program = export(module, (torch.rand(3), torch.tensor([2, 0])))

    assert len(program.captured.both_ways) == 1
    for at in (torch.tensor([0, 0]), torch.tensor([1, 2])):
        x = torch.rand(3)
        assert_same(program(x, at), [module(x, at)])
