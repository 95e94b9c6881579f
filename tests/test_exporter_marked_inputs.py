"""An export reads the marks of free axes on the inputs that it was given, and leaves none of its own."""

from __future__ import annotations

from collections.abc import Callable

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


class Rows(torch.nn.Module):
    """Takes any number of rows, and three columns."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 2) + y.sum()


@pytest.mark.parametrize("is_one", [False, True], ids=["two tensors", "one tensor twice"])
@pytest.mark.parametrize("mark", [torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic])
def test_marked_axes_are_free_where_the_model_lets_them_be(mark: Callable[..., None], is_one: bool) -> None:
    x = torch.randn(4, 3)
    y = x if is_one else torch.randn(4, 3)
    for place in (0, 1):
        mark(x, place)
    before = {name: str(value) for name, value in vars(x).items()}
    program = export(Rows(), (x, y))
    first, second = (one.shape for one in program.model.graph.inputs)
    assert [isinstance(size, int) for size in first] == [False, True]
    assert all(isinstance(size, int) for size in second) is not is_one
    others = torch.randn(6, 3), torch.randn(4 + 2 * is_one, 3)
    torch.testing.assert_close(program(*others)[0], Rows()(*others))
    assert {name: str(value) for name, value in vars(x).items()} == before
