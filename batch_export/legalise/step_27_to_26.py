"""Opset 27 -> 26: linear attention and causal convolution with a state, by ONNX's own definitions."""

from __future__ import annotations

from batch_export.legalise.examples import examples_at
from batch_export.legalise.function_bodies import written_out

_of = examples_at(27)

RULES = {
    "LinearAttention": written_out(
        27,
        _of(
            'y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "linear"> (q, k, v)',
            "float[2,3,8] q, float[2,3,8] k, float[2,3,8] v",
            "float[2,3,8] y, float[2,2,4,4] s",
        ),
    ),
    "CausalConvWithState": written_out(
        27,
        _of(
            "y, s = CausalConvWithState (x, w)",
            "float[2,3,8] x, float[3,1,4] w",
            "float[2,3,8] y, float[2,3,3] s",
        ),
    ),
}
