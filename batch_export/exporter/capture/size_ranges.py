"""What torch learns of free sizes from numbers of the data is kept where it holds.

Arrives: tensors. Leaves: a context behind which sizes have the ranges that they had before. Of `0 <= u < n`
torch (2.13) keeps that `n` is at least 1 for the rest of the program, which in a round of a loop is true and behind it
is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch._guards import detect_fake_mode


@contextlib.contextmanager
def sizes_as_before(tensors: Sequence[object]) -> Iterator[None]:
    """Within, the ranges of sizes that were known before may be narrowed, and behind it they are what they were.

    Args:
        tensors: some of the program's; what is none does not count.
    """
    mode = detect_fake_mode(list(tensors))
    environment: Any = mode.shape_env if mode is not None else None
    if environment is None:
        yield
        return
    before = dict(environment.var_to_range)
    try:
        yield
    finally:
        now = environment.var_to_range
        narrowed = {
            symbol: sizes
            for symbol, sizes in before.items()
            if now[symbol] != sizes and symbol not in environment.replacements
        }
        if narrowed:
            now.update(narrowed)
            environment._maybe_evaluate_static.cache_clear()
            environment._version_counter += 1  # torch's answers so far go by it
