"""float64 stays float64: operators that onnxruntime has no kernel for, and numbers that float32 would round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from exporting import eager
from torch.nn import functional as F  # noqa: N812

from batch_export.exporter import export
from batch_export.exporter.graph import kernel_dtypes
from batch_export.exporter.ops import double_forms

pytestmark = pytest.mark.sampled

Function = Callable[[torch.Tensor], torch.Tensor]
torch.manual_seed(0)


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


W1, W2, W3, DEPTHWISE = _random(4, 3, 3), _random(4, 3, 3, 2), _random(4, 3, 2, 2, 2), _random(6, 1, 3, 3)
BACK1, BACK2, BIAS = _random(3, 4, 3), _random(4, 2, 3, 3), _random(4)
GRU, RNN = torch.nn.GRU(3, 4).double(), torch.nn.RNN(3, 4).double()

LAYERS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "conv of one axis": (lambda x: F.conv1d(x, W1, BIAS, 2, 1, 2), (2, 3, 9)),
    "conv of two axes": (lambda x: F.conv2d(x, W2, BIAS, (1, 2), (1, 0)), (2, 3, 6, 7)),
    "conv of three axes": (lambda x: F.conv3d(x, W3, BIAS), (2, 3, 4, 4, 5)),
    "conv by groups": (lambda x: F.conv2d(x, DEPTHWISE, None, padding=1, groups=3), (2, 3, 5, 5)),
    "conv that keeps the size": (lambda x: F.conv2d(x, W2, BIAS, padding="same"), (2, 3, 5, 6)),
    "transposed conv": (lambda x: F.conv_transpose1d(x, BACK1, BIAS, 2, 1, 1), (2, 3, 5)),
    "transposed conv by groups": (lambda x: F.conv_transpose2d(x, BACK2, None, 2, 0, 0, 2, 1), (2, 4, 4, 5)),
    "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 7, 7)),
    "average pool of what is there": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 3, 7, 7)),
    "average pool with a last window": (lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True), (2, 3, 8)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=1.7), (2, 3, 5, 5)),
    "bilinear": (lambda x: F.interpolate(x, size=(7, 3), mode="bilinear"), (2, 3, 5, 5)),
    "grid sample": (
        lambda x: F.grid_sample(x, (x[:, :1, :, :2] / 2).reshape(2, 5, 2, 1).expand(2, 5, 2, 2)),
        (2, 1, 5, 5),
    ),
    "fold": (lambda x: F.fold(x, (4, 5), (2, 2)), (2, 12, 12)),
    "instance norm": (F.instance_norm, (2, 3, 4, 4)),
    "group norm": (lambda x: F.group_norm(x, 2), (2, 4, 3)),
    "layer norm": (lambda x: F.layer_norm(x, (4,), None, BIAS, 0.1), (3, 4)),
    "gru": (lambda x: GRU(x)[0], (5, 2, 3)),
    "rnn": (lambda x: RNN(x)[0], (5, 2, 3)),
    "determinant": (torch.linalg.det, (2, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_without_a_kernel_are_written_out(name: str) -> None:
    function, sizes = LAYERS[name]

    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    example = (_random(*sizes),)
    program = export(Layer(), example, None, opset_version=20)
    np.testing.assert_allclose(program(*example)[0].numpy(), eager(Layer(), example)[0].numpy(), 1e-11, 1e-11)
    program.release()


def test_numbers_are_not_rounded_on_the_way() -> None:
    class Numbers(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            rounded = torch.full((), 0.1).double()
            return [x.norm(p=3), x.quantile(0.3), torch.lerp(x, 2 * x, 0.3), F.rrelu(x, 0.1, 0.3), x + rounded]

    example = (torch.tensor([0.1, -0.7, 1.3, 0.4], dtype=torch.float64),)
    program = export(Numbers(), example, None)
    for actual, expected in zip(program(*example), eager(Numbers(), example), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), 1e-14)
    program.release()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_only_infinities_are_infinite(dtype: torch.dtype) -> None:
    def infinite(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.isinf(), x.isposinf(), x.isneginf(), x.isfinite()]

    special = [float("inf"), -float("inf"), float("nan")] if dtype.is_floating_point else []
    ends = torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).min] if special else [2**63 - 1, 0], dtype=dtype)
    example = (torch.cat([ends, torch.tensor(special, dtype=dtype)]),)
    program = export(infinite, example)
    assert all(torch.equal(*pair) for pair in zip(program(*example), infinite(*example), strict=True))
    program.release()


def _running(x: torch.Tensor) -> torch.Tensor:
    mean, variance = torch.full((3,), 1e-4, dtype=x.dtype), torch.full((3,), 1e-7, dtype=x.dtype)
    return F.batch_norm(x, mean, variance, mean + 1, mean - 1, eps=1e-3)


@pytest.mark.parametrize("norm", [lambda x: F.rms_norm(x, (4,), None, 1e-3), _running], ids=["rms norm", "batch norm"])
@pytest.mark.parametrize("opset", [20, 23])
def test_an_epsilon_beside_small_numbers_is_not_rounded(norm: Function, opset: int) -> None:
    example = (_random(2, 3, 4) * 1e-3,)
    program = export(norm, example, opset_version=opset)
    np.testing.assert_allclose(program(*example)[0].numpy(), norm(*example).numpy(), 1e-13)
    program.release()


_NAMES = {"float": ir.DataType.FLOAT, "int8": ir.DataType.INT8, "int16": ir.DataType.INT16} | {
    "double": ir.DataType.DOUBLE, "int32": ir.DataType.INT32, "int64": ir.DataType.INT64,
    "uint8": ir.DataType.UINT8, "bool": ir.DataType.BOOL,
}  # fmt: skip
_NEVER_RECORDED = frozenset(
    (
        *("DeformConv", "Det", "GlobalLpPool", "Hardmax", "LRN", "LpPool", "MaxRoiPool", "MaxUnpool", "Mean", "RNN"),
        *("MeanVarianceNormalization", "MelWeightMatrix", "Multinomial", "OneHot", "QuantizeLinear"),
    )
)
"""Operators that no translation records for such dtypes, or that torch takes apart first."""


def test_every_dtype_without_a_kernel_is_known() -> None:
    listed = onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def()
    kernels = [one for one in listed if one.provider == "CPUExecutionProvider" and one.domain == ""]
    unknown = []
    for name in sorted({one.op_name for one in kernels} - _NEVER_RECORDED):
        schema = onnx.defs.get_schema(name, 18) if onnx.defs.has(name, 18) else None
        if schema is None or schema.deprecated or not schema.inputs:
            continue
        first = schema.inputs[0].type_str
        allowed = {kind for one in schema.type_constraints if one.type_param_str == first
                   for kind in one.allowed_type_strs}  # fmt: skip
        there = [one for one in kernels if one.op_name == name
                 and one.version_range[0] <= schema.since_version <= one.version_range[1]]  # fmt: skip
        has = {kind for one in there for kind in dict(one.type_constraints).get(first, allowed)}
        for kind, dtype in _NAMES.items():
            text = f"tensor({kind})"
            if text not in allowed - has or not there:
                continue
            written_out = dtype == ir.DataType.DOUBLE and name in double_forms.FORMS
            if not written_out and kernel_dtypes._has_kernel(name, dtype, {}):
                unknown.append((name, kind))
    assert not unknown


def test_gelu_keeps_its_digits_far_below_zero() -> None:
    x = torch.linspace(-20, 5, 26, dtype=torch.float64)
    (actual,) = export(torch.nn.GELU(), (x,))(x)
    torch.testing.assert_close(actual, x / 2 * torch.special.erfc(-x / 2**0.5), rtol=1e-10, atol=0.0)
