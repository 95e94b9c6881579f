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


def explanation(cause: str) -> str:
    """What is known of a cause; empty when nothing is."""
    return next((text for pattern, text in _KNOWN if re.search(pattern, cause)), "")
