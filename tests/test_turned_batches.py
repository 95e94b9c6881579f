"""A batch moved behind other axes and cast in front of a product, at every level of onnxruntime's optimisation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from batch_export import export

MODELS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "behind all": (lambda x: x.half().permute(1, 2, 0).float() @ torch.ones(4, 3), (4, 2, 3)),
    "behind all but one": (lambda x: x.half().permute(1, 0, 2).float() @ torch.ones(3, 3), (4, 2, 3)),
    "of four axes": (lambda x: torch.ones(2, 3) @ x.double().cumsum(0).permute(1, 2, 3, 0).float(), (4, 2, 2, 3)),
    "read elsewhere": (lambda x: _read_twice(x.half().permute(1, 2, 0)), (4, 2, 3)),
    "on both sides": (lambda x: x.half().permute(1, 2, 0).float() @ x.half().permute(1, 0, 2).float(), (4, 2, 3)),
}
_RUN = """
import sys, numpy, onnxruntime
for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(sys.argv[1], options)
    found = session.run(None, {session.get_inputs()[0].name: numpy.load(sys.argv[2])})[0]
    numpy.testing.assert_allclose(found, numpy.load(sys.argv[3]), rtol=1e-5, atol=1e-5)
"""


def _read_twice(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return wide @ torch.ones(4, 4) + wide * x.abs().float()


@pytest.mark.parametrize(("optimize", "opset"), [(True, 20), (False, 18)])
@pytest.mark.parametrize("name", MODELS)
def test_products_are_eagers_at_each_level(name: str, optimize: bool, opset: int, tmp_path: Path) -> None:
    """In a process of its own, which onnxruntime would end."""
    function, shape = MODELS[name]
    x = torch.randn(shape)
    export(function, (x,), tmp_path / "m.onnx", optimize=optimize, opset_version=opset)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "y.npy", function(x).numpy())
    files = [str(tmp_path / one) for one in ("m.onnx", "x.npy", "y.npy")]
    ended = subprocess.run([sys.executable, "-c", _RUN, *files], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_a_factor_that_is_made_of_nothing() -> None:
    """A table of a Fourier transform at an opset without one is a Constant, whose node has no inputs."""
    x = torch.randn(2, 6)
    (found,) = export(lambda x: torch.fft.rfft(x).real, (x,), opset_version=16)(x)
    torch.testing.assert_close(found, torch.fft.rfft(x).real)
