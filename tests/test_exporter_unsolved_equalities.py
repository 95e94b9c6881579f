"""An equality of sizes that torch's solver has no answer to does not end a capture."""

from __future__ import annotations

import torch
from torch.nn import functional

from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.strategies import NON_STRICT
from tests.exporting import export_and_compare


class Folded(torch.nn.Module):
    """Pieces of an image that was made smaller three times, put together again: its sides have to be even."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = functional.max_pool2d(x, 3, 2, 1)
        pieces = functional.unfold(x, 2, stride=2) * 2
        return functional.fold(pieces, (x.shape[2], x.shape[3]), 2, stride=2)


def test_a_fold_behind_poolings_of_a_free_size() -> None:
    shapes = ({2: "h", 3: "w"},)
    image = torch.rand(1, 2, 64, 48)
    captured = capture(Folded(), (image,), dynamic_shapes=shapes)
    assert [attempt.strategy for attempt in captured.attempts] == [NON_STRICT]
    others = [(torch.rand(1, 2, height, width),) for height, width in ((96, 64), (57, 32), (128, 80))]
    export_and_compare(Folded(), (image,), *others, dynamic_shapes=shapes)
