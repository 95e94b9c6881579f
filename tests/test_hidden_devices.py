"""A server that forks asks CUDA for nothing while it preloads."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from batch_export.runner import preload
from batch_export.runner.hidden_devices import without_devices


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a build of torch for CUDA has, on a machine with eight devices."""
    made = SimpleNamespace(_cuda_getDeviceCount=lambda: 8, _ensureCUDADeviceGuardSet=lambda: 8)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=made))
    return made


def answers(questions: SimpleNamespace) -> list[int]:
    return [questions._cuda_getDeviceCount(), questions._ensureCUDADeviceGuardSet()]


def test_a_build_for_cuda_asks_for_no_device_within(questions: SimpleNamespace) -> None:
    with without_devices():
        assert answers(questions) == [0, 0]
    assert answers(questions) == [8, 8]
    with pytest.raises(KeyError), without_devices():
        raise KeyError
    assert answers(questions) == [8, 8]


def test_what_is_preloaded_asks_for_none(questions: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setitem(sys.modules, "slow", SimpleNamespace(warm=lambda: seen.extend(answers(questions))))
    preload.preload(["slow:warm"])
    assert seen == [0, 0]
    assert answers(questions) == [8, 8]


@pytest.mark.skipif(hasattr(torch._C, "_cuda_getDeviceCount"), reason="this torch is a build for CUDA")
def test_a_build_without_cuda_stays_as_it_is() -> None:
    own = torch._C._ensureCUDADeviceGuardSet
    with without_devices():
        assert not hasattr(torch._C, "_cuda_getDeviceCount")
        assert torch._C._ensureCUDADeviceGuardSet is own
