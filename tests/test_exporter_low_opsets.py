"""Opsets 7 to 12: exactly the opset asked for with eager's numbers, or an error that names what has no form."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from torch import nn

from batch_export import export
from batch_export.errors import NoFormError
from batch_export.legalise.ranks import axes_of
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled

LOW = range(7, 13)


class Pictures(nn.Module):
    """Resizing, softmax, pads, limits and reductions by axes from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.norm(self.convolution(x)))
        wide = nn.functional.interpolate(y, scale_factor=2, mode="nearest")
        chances = torch.softmax(self.last(wide.mean((2, 3))), 1)
        first, second = torch.split(y, [3, 5], dim=1)
        sums = (first.sum(-1) + second.amax((-2, -1), keepdim=True).squeeze(-1)[:, :3]).unsqueeze(-1)
        return chances, sums, nn.functional.pad(y, (1, 2)), y.clamp(0.1, 0.9), (y >= 0.5).float()


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.layer.activation = torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        return y


@pytest.mark.parametrize("opset", LOW)
@pytest.mark.parametrize(("make", "shape"), [(Pictures, (2, 3, 8, 8)), (Words, (2, 5, 16))], ids=["pictures", "words"])
def test_a_model_is_the_same_at_low_opsets(make: type[nn.Module], shape: tuple[int, ...], opset: int) -> None:
    torch.manual_seed(0)
    x, more = torch.randn(shape), torch.randn(3, *shape[1:])
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    program = export_and_compare(make(), (x,), (more,), opset_version=opset, dynamic_shapes=(batch,))
    assert program.model_proto.opset_import[0].version == opset


class Choosing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, 2 * x)


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)


class Padding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x, (0, 0, 0, x.shape[0]))


@pytest.mark.parametrize(
    ("module", "opset", "said"),
    [
        (Choosing(), 8, r"Where has no form at opset 8 .*test_exporter_low_opsets.py.* choose opset 9"),
        (Counting(), 10, r"CumSum has no form at opset 10 .* choose opset 11"),
        (Padding(), 10, r"Pad by lengths that are computed has no form at opset 10 .* choose opset 11"),
    ],
    ids=["where", "cumsum", "computed pads"],
)
def test_what_has_no_form_is_named_with_the_lowest_opset(module: nn.Module, opset: int, said: str) -> None:
    free = ({0: torch.export.Dim("rows", min=1, max=64)},)
    with pytest.raises(NoFormError, match=said):
        export(module, (torch.randn(3, 4),), opset_version=opset, dynamic_shapes=free)
    export_and_compare(module, (torch.randn(3, 4),), (torch.randn(5, 4),), opset_version=opset + 1, dynamic_shapes=free)


def test_axes_are_counted_by_the_nodes_that_made_a_value() -> None:
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=ir.Shape(["n", 3, 4]))
    unknown = ir.val("u")

    def made(op_type: str, *inputs: ir.Value, **attributes: int | list[int]) -> ir.Value:
        return ir.node(op_type, list(inputs), attributes).outputs[0]

    lengths = ir.val("lengths", dtype=ir.DataType.INT64, shape=ir.Shape([5]))
    assert axes_of(made("Mul", made("Cast", x, to=1), made("Neg", x))) == 3
    assert axes_of(made("ReduceMean", x, axes=[-1], keepdims=0)) == 2
    assert axes_of(made("ReduceMean", x, axes=[-1])) == 3
    assert axes_of(made("Unsqueeze", made("ArgMax", x, keepdims=0), axes=[0, 1])) == 4
    assert axes_of(made("Reshape", unknown, lengths)) == 5
    assert axes_of(made("Expand", x, lengths)) == 5
    assert axes_of(made("MatMul", x, made("Transpose", x))) == 3
    assert axes_of(made("Gather", x, lengths)) == 3
    assert axes_of(made("Shape", x)) == 1
    for lost in (unknown, made("Neg", unknown), made("Squeeze", x), made("Loop", x), made("Add", x, unknown)):
        assert axes_of(lost) is None
