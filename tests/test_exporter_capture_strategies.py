"""Which strategy captures what, and what the unsound ones say."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pytest
import torch

from batch_export import export
from batch_export.errors import CaptureError, ExportWarning
from batch_export.exporter.capture.capture import STRATEGIES, capture
from batch_export.exporter.capture.draft import draft_export

X = torch.ones(2, 3)


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_the_documented_order() -> None:
    assert [name for name, _ in STRATEGIES] == [
        "torch.export(strict=False)",
        "torch.export(strict=True)",
        "draft_export",
        "torch.jit.trace",
    ]


def test_an_exported_program_is_taken_as_it_is() -> None:
    program = torch.export.export(Plain(), (X,))
    captured = capture(program)
    assert captured.program is program
    assert captured.strategy == "ExportedProgram"


@pytest.mark.parametrize("name", [name for name, _ in STRATEGIES])
def test_every_strategy_captures_with_a_dynamic_axis(name: str) -> None:
    strategy = next(one for one in STRATEGIES if one[0] == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = capture(Plain(), (X,), dynamic_shapes=({0: "batch"},), strategies=[strategy])
    assert captured.strategy == name
    assert list(captured.axis_names.values()) == ["batch"]
    torch.testing.assert_close(captured.program.module()(torch.ones(5, 3)), 2 * torch.ones(5, 3))


def test_a_branch_on_data_is_captured_by_a_later_strategy_with_a_warning() -> None:
    decided = torch.arange(1.0, 7.0).reshape(2, 3)  # all within its range decide alike
    with pytest.raises(CaptureError, match=r"a data-dependent decision would stay"):
        export(Branch(), (decided,))
    with pytest.warns(ExportWarning, match=r"as long as the data decide as in the example"):
        program = export(Branch(), (decided,), allow_guards=True)
    assert program.captured is not None
    tried = [attempt.strategy for attempt in program.captured.attempts]
    assert tried[:2] == ["torch.export(strict=False)", "torch.export(strict=True)"]
    assert program.captured.attempts[0].error
    torch.testing.assert_close(program(X)[0], X * 2)


def test_a_sound_capture_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        export(Plain(), (X,))


def test_a_draft_leaves_no_open_file_and_no_log_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.listdir("/proc/self/fd")
    program = draft_export(Branch(), (X,), {}, None)
    assert not program._report.successful()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(os.listdir("/proc/self/fd")) == len(before)
    monkeypatch.setenv("TORCH_DTRACE", str(tmp_path / "asked"))
    draft_export(Branch(), (X,), {}, None)
    assert [path.parent.name for path in tmp_path.rglob("*") if path.is_file()] == ["asked"]
