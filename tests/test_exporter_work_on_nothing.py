"""`if rows.numel() == 0: continue` before work on rows: work done on nothing changes nothing, and is no decision."""

from __future__ import annotations

import pytest
import torch
from rarer import first
from torch import nn

from batch_export.exporter import export
from tests.exporting import assert_same, eager

pytestmark = pytest.mark.sampled


class _Mixture(nn.Module):
    """Asks six times: more decisions are not captured both ways."""

    def __init__(self, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(4, experts)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(experts))


class _ByMask(_Mixture):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            if (chosen == place).any():
                out[chosen == place] = expert(x[chosen == place])
        for place, expert in enumerate(self.experts):
            mask = chosen == place
            if not mask.any().item():
                continue
            out[mask] += expert(out[mask])
        return out


class _ByRows(_Mixture):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out, other = torch.zeros_like(x), torch.zeros_like(x)
        for place in range(len(self.experts)):
            rows, nth = torch.where(chosen == place)
            if rows.shape[0] == 0:
                continue
            expert = self.experts[place]
            given = x[rows]
            out.index_add_(0, rows, expert(given) * weights[rows, nth, None])
        for place, expert in enumerate(self.experts):
            rows = (chosen[:, 0] == place).nonzero().squeeze(-1)
            if len(rows) > 0:
                other[rows] = expert(x[rows])
        return out + other


class _ByCounts(_Mixture):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        for place in range(len(self.experts)):
            if counts[place] == 0:
                continue
            expert = self.experts[place]
            rows, nth = torch.where(chosen == place)
            out[rows] += expert(x[rows]) * weights[rows, nth, None]
        return out


@pytest.mark.parametrize("kind", first(1, [_ByMask, _ByRows, _ByCounts]))
def test_work_on_no_rows_is_no_decision(kind: type[_Mixture]) -> None:
    torch.manual_seed(0)
    module = kind(6 if kind is _ByCounts else 3)
    program = export(module, (torch.randn(10, 4),), dynamic_shapes=({0: "batch"},))

    assert not program.captured.both_ways
    assert not any(node.op_type == "If" for node in program.model.graph)
    for rows in (1, 1, 2, 7, 30, 0):
        x = torch.randn(rows, 4) * 3
        assert_same(program(x), eager(module, (x,)))


class _Counts(nn.Module):
    """Counts its calls: a call of it is something even where there are no rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2


class _Changing(nn.Module):
    """Does something besides."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.counting = _Counts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, last = torch.zeros_like(x), x.sum()
        mask = x[:, 0] > 0
        if self.how == "sum":
            if mask.any():
                out[mask] = x[mask] * 2
                last = last + 1
        elif self.how == "counter":
            if mask.any():
                out[mask] = self.counting(x[mask])
        elif self.how == "mean":
            if mask.any():
                out[mask] = x[mask] * 2
                out[~mask] = x[mask].mean()
        elif self.how == "name":
            doubled = x[:2]
            if mask.any():
                doubled = x[mask] * 2
                out[mask] = doubled
            last = last + doubled.sum()
        elif mask.any():
            mask = x[:, 1] > 0
            out[mask] = x[mask] * 2
        return out + last + self.counting.calls


@pytest.mark.parametrize("how", first(2, ["sum", "counter", "mean", "name", "other mask"]))
def test_what_does_more_than_work_on_rows_is_a_decision(how: str) -> None:
    module = _Changing(how)
    x = torch.tensor([[1.0, 2.0], [-1.0, 1.0], [2.0, -1.0]])
    program = export(module, (x,), dynamic_shapes=({0: "batch"},))

    assert len(program.captured.both_ways) == 1
    for given in (x, -x.abs(), x.abs(), -x):
        module.counting.calls.zero_()
        assert_same(program(given), eager(module, (given,)))
