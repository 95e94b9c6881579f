"""Axes of one name are one size to a program from its beginning."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812

from tests.exporting import export_and_compare


class Padded(torch.nn.Module):
    """What is computed of one input's length pads both, and only their product brings them together."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        x, y = (F.pad(one, (0, 0, 0, -length % 4)).reshape(batch, -1, 4, 4) for one in (x, y))
        return torch.einsum("bcsn,bcsp->bcnp", x, y)


def test_inputs_that_are_padded_alike_stay_alike() -> None:
    def given(batch: int, length: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(batch, length, 4), torch.randn(batch, length, 4)

    shapes = ({0: "b", 1: "n"}, {0: "b", 1: "n"})
    program = export_and_compare(Padded(), given(2, 9), given(1, 2), given(3, 13), given(1, 8), dynamic_shapes=shapes)
    assert {str(one) for value in program.model.graph.inputs for one in value.shape or ()} == {"b", "n", "4"}


def test_axes_without_a_name_stay_apart() -> None:
    class Joined(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, y])

    auto = torch.export.Dim.DYNAMIC
    more = (torch.randn(5, 2), torch.randn(2, 2)), (torch.randn(1, 2), torch.randn(7, 2))
    export_and_compare(Joined(), (torch.randn(3, 2), torch.randn(3, 2)), *more, dynamic_shapes=({0: auto}, {0: auto}))
