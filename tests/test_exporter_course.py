"""A further example is captured only where it may take another branch than the first one did."""

from __future__ import annotations

import pytest
import torch

from batch_export.exporter.capture import one_run
from batch_export.exporter.capture.capture import capture

pytestmark = pytest.mark.sampled


class Shares(torch.nn.Module):
    """Two chains of lengths, equal at some sizes; at others the model repeats the last one, which is another branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide, narrow = x[:, ::4][:, ::2], x[:, 3::8]
        if wide.shape[1] != narrow.shape[1]:
            narrow = torch.cat([narrow, narrow[:, -1:].relu()], 1)
        return wide + narrow


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    own = one_run._run

    def noting(*given: object, **options: object) -> object:
        sizes.append(given[3][0][0].shape[1])  # type: ignore[index]
        return own(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(one_run, "_run", noting)
    return sizes


def test_sizes_at_which_all_conditions_hold_are_not_captured_from(captures: list[int]) -> None:
    captured = capture(Shares(), (torch.randn(2, 24),), dynamic_shapes=({1: "n"},), guards="allow")
    assert captured.restrictions
    assert captures[0] == 24
    assert 48 not in captures
    assert 25 in captures or len(captures) == 1


def test_a_branch_of_odd_sizes_is_looked_for(captures: list[int]) -> None:
    class Even(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, ::2] if x.shape[1] % 2 else torch.nn.functional.pad(x, (0, 1))[:, ::2][:, : x.shape[1] // 2]

    capture(Even(), (torch.randn(2, 6),), dynamic_shapes=({1: "n"},), guards="allow")
    assert captures[:1] == [6]
    assert 12 not in captures
