"""Defects of others that the hunter meets again and again, by the cause's name; docs/upstream.md has their repros."""

from __future__ import annotations

import re

_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"upstream \| (number|nan).*(min|max|sort|topk|kthvalue|median|mode)",
        "NaN and large integers in ReduceMin, TopK, ..",
    ),
    (r"upstream \| number.*(sum|prod)", "sums and products of integers by way of floating point"),
    (r"upstream \| number.*(sign|trunc)", "Sign of int64 reads the lower 32 bits"),
    (r"upstream \| sign of zero", "Where and Max of onnxruntime take either zero"),
    (r"upstream \| number.*(elu|expm1)", "Elu and Selu lose small numbers"),
)
"""A pattern of the cause's name -> what is known of it."""


SPECIAL_ON_THE_WAY = " (NaN, infinities or huge numbers on the way)"
"""At the end of a finding's detail."""
_DECLARED: tuple[tuple[str, str], ...] = (
    (
        r"adaptive_avg_pool|mode=\"area\"|interpolate|upsample|embedding_bag|fft|grid_sample|F\.conv|F\.fold|renorm",
        "a weight of 0 in a table is multiplied with what is not finite",
    ),
    (r"cosine|norm\(|normalize|distance|dist\(|hypot", "a square or cube is infinite on the way"),
    (r"scaled_dot_product_attention", "a row that a mask excludes gives 0 where its scores are NaN"),
    (
        r"var_mean|std_mean|\.var\(|\.std\(|batch_norm|group_norm|instance_norm",
        "eager's running mean of infinities is NaN",
    ),
)
"""Operators -> what of them is declared at NaN and infinities; docs/exporter.md says the same."""


def declared(kind: str, detail: str, operators: str) -> str:
    """What is declared of a small program's difference; empty when nothing is, and for finite programs always."""
    if kind not in ("nan", "infinity", "sign of zero") and SPECIAL_ON_THE_WAY not in detail:
        return ""
    return next((text for pattern, text in _DECLARED if re.search(pattern, operators)), "")


def explanation(cause: str) -> str:
    """What is known of a cause; empty when nothing is."""
    return next((text for pattern, text in _KNOWN if re.search(pattern, cause)), "")
