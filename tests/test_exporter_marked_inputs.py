"""An export leaves no marks of torch's on the inputs that it was given."""

from __future__ import annotations

import pytest
import torch

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture.marked_inputs import marks_put_back


class Fixed(torch.nn.Module):
    """Takes three rows, whatever it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.expand(3, 6).view(torch.int32).bitwise_and_(0x7FFF0000)
        return y


def test_a_refused_export_does_not_mark_its_inputs() -> None:
    x = torch.randn(3, 6)
    with pytest.raises(DynamicShapeError):
        export(Fixed(), (x,), dynamic_shapes=({0: "n"},), opset_version=26)
    assert not vars(x)
    assert torch.equal(export(Fixed(), (x,), opset_version=26)(x)[0], Fixed()(x))


def test_marks_of_the_callers_stay() -> None:
    x = torch.randn(3, 6)
    torch._dynamo.mark_dynamic(x, 0)
    before = {name: str(mark) for name, mark in vars(x).items()}
    with marks_put_back((x,)):
        torch._dynamo.mark_dynamic(x, 1)
        torch._dynamo.maybe_mark_dynamic(x, 1)
    assert {name: str(mark) for name, mark in vars(x).items()} == before
