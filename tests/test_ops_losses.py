"""Losses whose translation is ours where torch's decomposition is not what eager computes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from batch_export.exporter import ONNXProgram, export

pytestmark = pytest.mark.sampled


class Losses(torch.nn.Module):
    """Calls a function."""

    def __init__(self, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.loss(*given)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margins_of_several_labels_end_at_the_first_missing_one(reduction: str, dtype: torch.dtype) -> None:
    module = torch.nn.MultiLabelMarginLoss(reduction=reduction)
    torch.manual_seed(0)
    example = torch.randn(3, 4, dtype=dtype), torch.randint(-1, 4, (3, 4))
    shapes = ({0: "samples", 1: "classes"}, {0: "samples", 1: "classes"})
    program = export(module, example, dynamic_shapes=shapes)
    for sizes in ((3, 4), (1, 1), (6, 3), *([(0, 3)] if reduction == "none" else [])):
        scores, target = torch.randn(sizes, dtype=dtype), torch.randint(-1, sizes[1], sizes)
        torch.testing.assert_close(program(scores, target)[0], module(scores, target))
    one = torch.randn(4, dtype=dtype), torch.tensor([3, 0, -1, 1])
    torch.testing.assert_close(export(module, one)(*one)[0], module(*one))
    single = torch.tensor(0.3, dtype=dtype), torch.tensor(-1)
    torch.testing.assert_close(export(module, single)(*single)[0], module(*single))


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("p", [1, 2])
def test_margins_are_held_against_numbers_alone(reduction: str, p: int) -> None:
    weight = torch.tensor([0.5, 2.0, 1.0, INF])
    loss = functools.partial(F.multi_margin_loss, p=p, margin=0.75, weight=weight, reduction=reduction)
    torch.manual_seed(0)
    scores, target = torch.randn(4, 4), torch.tensor([1, 0, 3, 2])
    program = export(Losses(loss), (scores, target), dynamic_shapes=(({0: "rows"}, {0: "rows"}),))
    for place, number in ((0, 1.0), (1, NAN), (4, NAN), (3, INF), (4, INF), (5, -INF), (14, -INF)):
        special = scores.clone()
        special.view(-1)[place] = number
        agree(program, loss, special, target)
    agree(program, loss, torch.full((4, 4), NAN), target)
    if reduction == "none":
        agree(program, loss, scores[:0], target[:0])
    one = scores[0], target[0]
    agree(export(Losses(loss), one), loss, *one)
    one = scores[0], target[:1]
    agree(export(Losses(loss), one), loss, *one)


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "logarithms": F.nll_loss,
    "scores": F.cross_entropy,
    "smoothed": lambda *given, reduction: F.cross_entropy(*given, reduction=reduction, label_smoothing=0.2),
}


def agree(program: ONNXProgram, loss: Callable[..., torch.Tensor], *given: torch.Tensor) -> None:
    torch.testing.assert_close(program(*given)[0], loss(*given), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_by_number_with_any_number_of_rows_and_classes(name: str, reduction: str) -> None:
    loss = functools.partial(LOSSES[name], reduction=reduction)
    example = torch.randn(3, 4), torch.randint(0, 4, (3,))
    program = export(Losses(loss), example, dynamic_shapes=(({0: "rows", 1: "classes"}, {0: "rows"}),))
    masked = torch.tensor([[-INF, 0.0], [NAN, -0.5], [-1.0, -2.0], [-INF, -INF]])
    nothing = torch.full((4,), -100)
    for scores, target in (
        example,
        (masked, torch.tensor([-100, -100, 1, -100])),
        (masked, nothing),
        (torch.randn(0, 4), nothing[:0]),
        (torch.randn(1, 1), nothing[:1] + 100),
        (torch.randn(0, 0), nothing[:0]),
        (torch.randn(4, 0), nothing),
    ):
        agree(program, loss, scores, target)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_by_number_with_weights(name: str, reduction: str) -> None:
    loss = functools.partial(LOSSES[name], reduction=reduction)
    example = torch.randn(3, 4), torch.tensor([0, -100, 3]), torch.rand(4)
    program = export(Losses(loss), example, dynamic_shapes=(({0: "rows"}, {0: "rows"}, {}),))
    for rows in (3, 1, 0):
        agree(program, loss, torch.randn(rows, 4), torch.arange(rows), example[2])
    images = torch.randn(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3)), example[2]
    agree(export(Losses(loss), images), loss, *images)
    one = torch.randn(4), torch.tensor(2), example[2]
    agree(export(Losses(loss), one), loss, *one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_entropy_of_probabilities_near_0_and_1(reduction: str, dtype: torch.dtype) -> None:
    loss = functools.partial(F.binary_cross_entropy, reduction=reduction)
    p = torch.tensor([0.0, 1e-30, 1e-9, 1e-4, 0.3, 0.5, 0.9999999, 1.0], dtype=torch.float64).to(dtype)
    example = p.repeat(3), torch.tensor([0.0, 0.5, 1.0], dtype=dtype).repeat_interleave(8), torch.rand(24).to(dtype)
    program = export(Losses(loss), example, dynamic_shapes=(({0: "n"},) * 3,))
    for count in (24, 1, 0):
        given = [one[:count] for one in example]
        tolerance = 2e-3 if dtype is torch.float16 else 1e-6
        torch.testing.assert_close(program(*given)[0], loss(*given), rtol=tolerance, atol=0.0, equal_nan=True)


@pytest.mark.parametrize(
    ("loss", "most"),
    [
        (lambda x, y: F.cross_entropy(x, y), 2),
        (lambda x, y: F.nll_loss(x, y), 1),
        (lambda x, y: F.binary_cross_entropy(x, x, reduction="none"), 13),
        (lambda x, y: torch.logsumexp(x, 1), 6),
        (lambda x, y: torch.log1p(x), 7),
        (lambda x, y: torch.view_as_complex(x.view(-1, 2, 2)).abs(), 7),
    ],
)
def test_losses_and_logarithms_take_few_nodes(loss: Callable[..., torch.Tensor], most: int) -> None:
    example = torch.rand(3, 4), torch.tensor([1, 0, 2])
    program = export(Losses(loss), example, dynamic_shapes=(({0: "rows"}, {0: "rows"}),))
    assert len(program.model.graph) <= most


@pytest.mark.parametrize("opset", [11, 13])
def test_losses_and_logarithms_of_sums_at_older_opsets(opset: int) -> None:
    def found(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(x, target, ignore_index=1) + F.nll_loss(x, target, reduction="sum")
        return torch.logsumexp(x.double(), 1) + loss

    given = [(torch.randn(n, 4), torch.arange(n) % 4) for n in (3, 5)]
    axes = (({0: "n"}, {0: "n"}),)
    program = export(Losses(found), given[0], dynamic_shapes=axes, opset_version=opset)
    for inputs in given:
        torch.testing.assert_close(program(*inputs)[0], found(*inputs))


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_the_weight_of_the_targets_is_added_up(reduction: int) -> None:
    operators = torch.ops.aten

    def losses(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, image: torch.Tensor) -> object:
        plain = operators.nll_loss_forward(x, y, None, reduction, 3)
        weighted = operators.nll_loss_forward(x, y, weight, reduction, 3)
        one = operators.nll_loss_forward(x[0], y[0], weight, reduction, -100)
        labels = y[:4].reshape(1, 2, 2)
        return *plain, *weighted, *one, *operators.nll_loss2d_forward(image, labels, weight, reduction, 3)

    given = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 3]), torch.rand(4), torch.randn(1, 4, 2, 2)
    for found, expected in zip(export(Losses(losses), given)(*given), losses(*given), strict=True):
        torch.testing.assert_close(found, expected)
