"""Losses whose translation is ours where torch's decomposition is not what eager computes."""

from __future__ import annotations

import pytest
import torch

from batch_export.exporter import export


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
