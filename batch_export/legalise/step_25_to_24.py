"""Opset 25 -> 24: windows of attention become masks."""

from __future__ import annotations

from batch_export.legalise.attention_windows import windows_as_mask
from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import Rule

_of = examples_at(25)

RULES = {
    "Attention": Rule(
        windows_as_mask,
        _of(
            "y = Attention <left_window_size = 1, right_window_size = 0> (q, k, v)",
            "float[2,2,3,8] q, float[2,2,3,8] k, float[2,2,3,8] v",
            "float[2,2,3,8] y",
        ),
        "windows beside nonpad_kv_seqlen",
    ),
}
