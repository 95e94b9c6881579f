"""`ctc_loss`: lengths and targets in all their forms, at every number of steps and texts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from exporting import assert_same
from torch import Tensor, nn
from torch.nn import functional

from batch_export import export
from batch_export.exporter.capture.ctc_losses import ctc_loss

pytestmark = pytest.mark.sampled
Texts = tuple[Tensor, Tensor, Tensor, Tensor]


def texts(time: int, batch: int, length: int, classes: int = 5, seed: int = 0) -> Texts:
    """Logarithms of likelihoods, targets (blanks among them, too), and lengths, some of 0."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(time, batch, classes, generator=generator).log_softmax(-1),
        torch.randint(0, classes, (batch, length), generator=generator),
        torch.randint(0, time + 1, (batch,), generator=generator),
        torch.randint(0, length + 1, (batch,), generator=generator),
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_the_recursion_is_torchs(reduction: str, zero_infinity: bool) -> None:
    options: dict[str, Any] = {"reduction": reduction, "zero_infinity": zero_infinity}
    for seed, (time, batch, length, classes) in enumerate([(1, 1, 1, 2), (5, 3, 2, 2), (9, 4, 4, 5), (6, 2, 3, 3)]):
        given = texts(time, batch, length, classes, seed)
        assert_same([ctc_loss(*given, **options)], [functional.ctc_loss(*given, **options)])


class Loss(nn.Module):
    """A loss of what a layer gives, called as a form says."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.loss = nn.CTCLoss(zero_infinity=True)

    def forward(self, x: Tensor, targets: Tensor, times: Tensor, lengths: Tensor) -> Tensor:
        """`float[time, batch, classes]`, and what belongs to it -> the loss."""
        likelihoods = x.log_softmax(-1)
        if self.form == "a module":
            loss: Tensor = self.loss(likelihoods, targets, times, lengths)
            return loss
        if self.form == "one behind the other":
            rows = torch.arange(targets.shape[1]) < lengths[:, None]
            return functional.ctc_loss(likelihoods, targets[rows], times, lengths, blank=2, reduction="none")
        if self.form == "all of the time":
            times = torch.full((x.shape[1],), x.shape[0])
        if self.form == "torch's own":
            return torch.ctc_loss(likelihoods, targets, times, lengths, 1, 2, True)
        return functional.ctc_loss(likelihoods, targets.int(), times.int(), lengths.int(), reduction="sum")


FORMS = ["a module", "all of the time", "one behind the other", "torch's own"]
AXES = ({0: "time", 1: "batch"}, {0: "batch", 1: "length"}, {0: "batch"}, {0: "batch"})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axes", [None, AXES], ids=["static", "free"])
def test_a_loss_is_that_of_eager(form: str, axes: Any) -> None:
    module, example = Loss(form), texts(6, 2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = export(module, example, dynamic_shapes=axes)
    sizes = [(6, 2, 3), *([(1, 1, 1), (9, 3, 2), (4, 5, 4)] if axes else [])]
    for seed, size in enumerate(sizes):
        given = texts(*size, seed=seed)
        assert_same([program(*given)[0]], [module(*given)])


def test_numbers_as_lengths_and_one_text() -> None:
    x, targets, *_ = texts(6, 2, 3)
    both = export(lambda x, y: functional.ctc_loss(x, y, (6, 5), (3, 2), reduction="none"), (x, targets))
    assert_same([both(x, targets)[0]], [functional.ctc_loss(x, targets, (6, 5), (3, 2), reduction="none")])
    lengths = torch.tensor(6), torch.tensor(3)
    one = export(lambda x, y: functional.ctc_loss(x, y, *lengths, reduction="none"), (x[:, 0], targets[0]))
    expected = functional.ctc_loss(x[:, 0], targets[0], *lengths, reduction="none")
    assert_same([one(x[:, 0], targets[0])[0]], [expected])
