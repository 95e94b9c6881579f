"""Python code of graphs: torch's passes write none of it, and every program that leaves the capture has its own."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from batch_export.exporter.capture.capture import capture


class Choosing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (torch.relu(x),))


def test_torch_writes_the_code_of_a_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = torch.fx.GraphModule.recompile

    def counted(module: torch.fx.GraphModule) -> object:
        written.append(module)
        return write(module)

    monkeypatch.setattr(torch.fx.GraphModule, "recompile", counted)
    capture(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.ones(1, 2),))
    assert len(written) == 1


def test_a_program_with_branches_has_their_code_and_is_saved_and_loaded() -> None:
    captured = capture(Choosing(), (torch.ones(2),))
    graphs = [one for one in captured.program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    assert len(graphs) == 3
    assert all("def forward" in vars(one)["_code"] for one in graphs)
    stream = io.BytesIO()
    torch.export.save(captured.program, stream)
    stream.seek(0)
    loaded = torch.export.load(stream)
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0])):
        torch.testing.assert_close(captured.program.module()(x), Choosing()(x))
        torch.testing.assert_close(loaded.module()(x), Choosing()(x))
