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
"""Operator -> what of it is declared where NaN, infinities or huge numbers reach it; docs/exporter.md says the same."""
_DECLARED_AS_NAN: tuple[tuple[str, str], ...] = (
    (r"%|fmod|remainder", "torch's remainder is NaN in its vectors where the quotient overflows"),
    (r"(addmm|addmv|addbmm|baddbmm)\(.*alpha=", "eager multiplies terms of a product by alpha, and not their sum"),
)
"""The same where eager has NaN; docs/upstream.md or docs/exporter.md says so."""
_DECLARED_AS_INFINITE: tuple[tuple[str, str], ...] = (
    (r"polygamma", "at a negative integer torch gives what sin(pi * x) rounds to"),
    (r"(add|sub)_?\(.*alpha=", "eager multiplies by alpha and adds in one step"),
)
"""The same where the file has an infinity; docs/upstream.md or docs/exporter.md says so."""
_OF_NOTHING = re.compile(r" instead of \[([^\]]*\b0\b[^\]]*)\]")
"""At the end of a finding of another shape, where eager's has no elements."""
_DECLARED_OF_NOTHING: tuple[tuple[str, str], ...] = (
    (r"pixel_unshuffle", "of no elements torch gives its input, and its meta function another shape"),
)
"""Operator -> what of its shape is declared where it has no elements; docs/upstream.md says the same."""


def declared(detail: str, wrong: list[str] | None) -> str:
    """What is declared of a small program's difference; empty when nothing is.

    Of numbers that all are finite nothing is, but where there are none.

    Args:
        detail: of the finding.
        wrong: the operators of the steps that the file gets wrong at its own numbers, None where that is not known.
            Every one of them has to be declared: a name somewhere in the program excuses nothing.
    """
    if wrong is None:
        return ""
    as_nan = _DECLARED_AS_NAN if " instead of nan" in detail else ()
    as_infinite = _DECLARED_AS_INFINITE if re.search(r": -?inf instead of", detail) else ()
    special = (*_DECLARED, *as_nan, *as_infinite)
    table = special if SPECIAL_ON_THE_WAY in detail else _DECLARED_OF_NOTHING if _OF_NOTHING.search(detail) else ()
    if not wrong:
        return "every step is right at the file's own numbers"
    texts = [next((text for pattern, text in table if re.search(pattern, one)), "") for one in wrong]
    return texts[0] if all(texts) else ""


def explanation(cause: str) -> str:
    """What is known of a cause; empty when nothing is."""
    return next((text for pattern, text in _KNOWN if re.search(pattern, cause)), "")
