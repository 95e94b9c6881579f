"""Models whose weights and inputs lie on a GPU: the file is that of the same model on the CPU, and runs anywhere."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from exporting import Called
from torch import Tensor, nn

from batch_export.exporter import ONNXProgram, export
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import tensors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
ON_CUDA = ProviderSpec(
    "cuda", "onnxruntime", "CUDAExecutionProvider", options={"use_tf32": "0"}, io_binding=True, opsets=(7, 27)
)


class Attention(nn.Module):
    """Attention with a causal mask that is made on the device of what it masks."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[1]
        mask = torch.full((size, size), float("-inf"), device=x.device).triu(1)
        return self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


class Counted(nn.Module):
    """A buffer that forward changes, and what is made on a device by name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + torch.arange(x.shape[2], device="cuda") * self.calls


class Mixed(nn.Module):
    """A part that is computed on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 16))

    def forward(self, x: Tensor) -> Tensor:
        away = (x * self.weight).cpu().softmax(-1)
        return away.cuda() @ x.mT + away.to(x.device).sum()


class Recurrent(nn.Module):
    """A recurrent network whose weights cuDNN has laid out in one piece."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.inner = kind(16, 8, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.inner(x)[0]
        return outputs


def by_data(x: Tensor) -> Tensor:
    return x * 2 if bool(x.sum() > 0) else x - 1


def in_half(x: Tensor) -> Tensor:
    with torch.autocast("cuda", dtype=torch.float16):
        return (x @ x.mT).float()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.LayerNorm(8)),
    "convolution": lambda: nn.Sequential(nn.Conv1d(5, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2)),
    "attention": Attention,
    "encoder layer": lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "buffer": Counted,
    "two devices": Mixed,
    "data decision": lambda: Called(by_data),
    "autocast": lambda: Called(in_half),
    "indices": lambda: Called(lambda x: x[x > 0].cumsum(0)),
    "sorted": lambda: Called(lambda x: x.sort(stable=True, dim=-1).values + x.topk(16).values),
    "scatter": lambda: Called(lambda x: torch.zeros_like(x).scatter_add(1, x.long().abs() % 5, x)),
    "resized": lambda: Called(lambda x: nn.functional.interpolate(x[None], scale_factor=2.0, mode="bilinear")),
    "attention itself": lambda: Called(lambda x: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "fourier": lambda: Called(lambda x: torch.fft.rfft(x).abs()),
}


@pytest.fixture(autouse=True)
def float32_means_float32() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def results(program: ONNXProgram, given: Tensor) -> list[Tensor]:
    return [torch.as_tensor(one).cpu() for one in program(given)]


def eager(module: nn.Module, given: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return [copy.deepcopy(module)(given.clone()).cpu()]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_the_gpu_is_exported_as_on_the_cpu(name: str) -> None:
    torch.manual_seed(0)
    module = MODELS[name]().eval().cuda()
    x = torch.randn(2, 5, 16, device="cuda")
    allowed = 2e-2 if name == "autocast" else 1e-4
    shapes: tuple[Any, ...] = ({0: "n"},)
    program = export(module, (x,), dynamic_shapes=shapes)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert all(weight.is_cuda for weight in module.parameters()), "they stay there"
    for given in (x, torch.randn(3, 5, 16, device="cuda")):
        (expected, *_), (actual, *_) = eager(module, given), results(program, given)
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=allowed, atol=allowed)


@pytest.mark.parametrize("name", [one for one in MODELS if one not in ("buffer", "two devices", "autocast")])
def test_its_file_runs_on_the_gpu(name: str, tmp_path: Path) -> None:
    if reason := RUNTIMES["onnxruntime"].absence(ON_CUDA):
        pytest.skip(reason)
    torch.manual_seed(0)
    module = MODELS[name]().eval().cuda()
    x = torch.randn(2, 5, 16, device="cuda")
    path = tmp_path / "model.onnx"
    program = export(module, (x,), dynamic_shapes=({0: "n"},))
    program.save(path)
    session = open_session(path, ON_CUDA)
    for given in (x, torch.randn(3, 5, 16, device="cuda")):
        (expected,) = eager(module, given)
        (actual,) = tensors(session.output_names, session.run({session.input_names[0]: given.cpu().numpy()}))
        np.testing.assert_allclose(np.asarray(actual), expected.numpy(), rtol=1e-4, atol=1e-4)
