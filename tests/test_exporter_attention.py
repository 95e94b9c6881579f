"""Attention and rotary embedding with a free batch and a free length, at opsets before and after ONNX has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from exporting import export_and_compare
from rarer import first
from torch import Tensor

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

HEADS, SIZE = 4, 8
OPSETS = [18, 22, 23, 25]
FREE = {0: "batch", 2: "seq"}
FLAT = {0: "batch", 1: "seq"}


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return self.function(q, k, v)


def heads(batch: int, seq: int, kv: int = HEADS) -> tuple[Tensor, ...]:
    torch.manual_seed(batch * 100 + seq)
    return tuple(torch.randn(batch, count, seq, SIZE) for count in (HEADS, kv, kv))


sdpa = torch.nn.functional.scaled_dot_product_attention

FOUR_AXES: dict[str, tuple[Callable[..., Any], int]] = {
    "scaled dot product": (sdpa, HEADS),
    "scaled dot product, causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True), HEADS),
    "scaled dot product, masked": (
        lambda q, k, v: sdpa(q, k, v, attn_mask=(q @ k.transpose(-1, -2)) < 4.0),
        HEADS,
    ),
    "scaled dot product, shared heads": (lambda q, k, v: sdpa(q, k, v, enable_gqa=True, scale=0.3), 2),
    "onnx": (lambda q, k, v: torch.onnx.ops.attention(q, k, v)[0], HEADS),
    "onnx, causal": (lambda q, k, v: torch.onnx.ops.attention(q, k, v, is_causal=True)[0], HEADS),
    "onnx, biased": (lambda q, k, v: torch.onnx.ops.attention(q, k, v, (q @ k.transpose(-1, -2)).sin())[0], HEADS),
    "onnx, shared heads": (lambda q, k, v: torch.onnx.ops.attention(q, k, v, scale=0.3, softcap=3.0)[0], 2),
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("kind", first(4, FOUR_AXES))
def test_attention_over_heads(kind: str, opset: int) -> None:
    function, kv = FOUR_AXES[kind]
    program = export_and_compare(
        Call(function), heads(2, 5, kv), heads(3, 7, kv), dynamic_shapes=(FREE, FREE, FREE), opset_version=opset
    )
    if kind.startswith("onnx"):
        native = "Attention" in {node.op_type for node in program.model.graph}
        assert native is (opset >= 23)


@pytest.mark.parametrize("opset", OPSETS)
def test_attention_over_merged_heads(opset: int) -> None:
    def inputs(batch: int, seq: int) -> tuple[Tensor, ...]:
        return tuple(part.transpose(1, 2).flatten(2) for part in heads(batch, seq, 2))

    module = Call(lambda q, k, v: torch.onnx.ops.attention(q, k, v, q_num_heads=HEADS, kv_num_heads=2)[0])
    export_and_compare(module, inputs(2, 5), inputs(3, 7), dynamic_shapes=(FLAT, FLAT, FLAT), opset_version=opset)


class WithPast(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, past_key: Tensor, past_value: Tensor) -> Any:
        return torch.onnx.ops.attention(q, k, v, past_key=past_key, past_value=past_value)[:3]


@pytest.mark.parametrize("opset", OPSETS)
def test_attention_with_a_past(opset: int) -> None:
    def inputs(batch: int, seq: int, past: int) -> tuple[Tensor, ...]:
        return (*heads(batch, seq), *heads(batch, past)[1:])

    axes = (FREE, FREE, FREE, {0: "batch", 2: "past"}, {0: "batch", 2: "past"})
    export_and_compare(WithPast(), inputs(2, 3, 4), inputs(3, 1, 9), dynamic_shapes=axes, opset_version=opset)


class Rotary(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor | None = None) -> Tensor:
        return torch.onnx.ops.rotary_embedding(x, cosines, sines, positions, **self.options)


ROTARY: dict[str, dict[str, Any]] = {
    "halves": {},
    "pairs": {"interleaved": True},
    "partly": {"rotary_embedding_dim": 4},
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("kind", ROTARY)
def test_rotary_embedding_by_positions(kind: str, opset: int) -> None:
    width = 2 if kind == "partly" else SIZE // 2

    def inputs(batch: int, seq: int) -> tuple[Tensor, ...]:
        angles = torch.arange(64)[:, None] / 10 ** torch.arange(width)
        positions = (torch.arange(seq) + 3).expand(batch, seq).contiguous()
        return heads(batch, seq)[0], angles.cos(), angles.sin(), positions

    axes = (FREE, None, None, FLAT)
    module = Rotary(**ROTARY[kind])
    program = export_and_compare(module, inputs(2, 5), inputs(3, 7), dynamic_shapes=axes, opset_version=opset)
    native = "RotaryEmbedding" in {node.op_type for node in program.model.graph}
    assert native is (opset >= 23)


@pytest.mark.parametrize("opset", OPSETS)
def test_rotary_embedding_over_merged_heads(opset: int) -> None:
    def inputs(batch: int, seq: int) -> tuple[Tensor, ...]:
        angles = torch.arange(seq)[:, None] / 10 ** torch.arange(SIZE // 2)
        x = heads(batch, seq)[0].transpose(1, 2).flatten(2)
        return x, angles.cos().expand(batch, -1, -1).contiguous(), angles.sin().expand(batch, -1, -1).contiguous()

    axes = (FLAT, FLAT, FLAT)
    module = Rotary(num_heads=HEADS)
    export_and_compare(module, inputs(2, 5), inputs(3, 7), dynamic_shapes=axes, opset_version=opset)


@pytest.mark.parametrize("shapes", [None, (FREE, FREE, FREE)], ids=["static", "free"])
def test_shared_heads_are_one_gather_each(shapes: Any, tmp_path: Path) -> None:
    module = Call(lambda q, k, v: sdpa(q, k, v, enable_gqa=True))
    program = export_and_compare(module, heads(2, 5, 2), dynamic_shapes=shapes, opset_version=20)
    operators = [node.op_type for node in program.model.graph]
    assert operators.count("Expand") == 2  # of the keys' heads, and of the values': what rewriters look for
    program.save(tmp_path / "model.onnx")
    written = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert written.count("Gather") == 2
    assert not {"Expand", "Shape"} & set(written)


@pytest.mark.parametrize("opset", [9, 10])
def test_causal_attention_of_free_length_below_11(opset: int) -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    free = ({0: "batch", 2: "seq"},)
    program = export(attention, (torch.randn(2, 2, 5, 8),), opset_version=opset, dynamic_shapes=free)
    x = torch.randn(1, 2, 3, 8)
    torch.testing.assert_close(torch.as_tensor(program(x)[0]), attention(x), rtol=1e-4, atol=1e-5)


def test_whether_attention_is_causal_may_go_by_a_free_length() -> None:
    def attention(x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.shape[2] > 1)

    program = export(attention, (torch.randn(2, 2, 5, 8),), dynamic_shapes=({0: "batch", 2: "seq"},))
    for seq in (1, 4):
        x = torch.randn(1, 2, seq, 8)
        torch.testing.assert_close(torch.as_tensor(program(x)[0]), attention(x), rtol=1e-4, atol=1e-5)


def test_a_length_that_decides_whether_attention_is_causal_is_refused_where_it_matters() -> None:
    def attention(x: Tensor, k: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, k, k, None, 0.0, x.shape[2] > 1)

    with pytest.raises(DynamicShapeError, match="holds only while `seq > 1`"):
        export(attention, (torch.randn(2, 2, 5, 8), torch.randn(2, 2, 7, 8)), dynamic_shapes=({2: "seq"}, {2: "keys"}))
