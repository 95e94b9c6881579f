"""Where a model switches gradients on or off leaves no trace in a program."""

from __future__ import annotations

import torch

from batch_export.exporter import export
from batch_export.exporter.capture.capture import capture


class Switching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("steps", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().amax(0)
            self.steps += 1
            with torch.enable_grad():
                scale = scale + self.weight
        branch = torch.cond(x.sum() > 0, self.up, lambda x: x - 2, (x,))
        return branch / scale

    @torch.no_grad()
    def up(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_grad_modes_leave_one_plain_graph_and_the_same_numbers() -> None:
    module = Switching()
    program = capture(module, (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},)).program
    targets = {str(node.target) for one in program.graph_module.modules() for node in one.graph.nodes}
    assert not [name for name in targets if "set_grad" in name]
    exported = export(module, (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},))
    for x in (torch.ones(4, 3), -torch.ones(1, 3)):
        torch.testing.assert_close(exported(x)[0], module(x))
