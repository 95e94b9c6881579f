"""`while_loop` in a trial ends: at sizes that nobody runs a model at, its condition may hold for ever.

Nothing arrives; a context is opened round a run of a model. A sum of no elements reaches no limit, and the export would
never return.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop_op

MOST_STEPS = 10_000
_KEY = torch._C.DispatchKey.CompositeExplicitAutograd


class EndlessError(Exception):
    """A loop took more than `MOST_STEPS` steps."""


@contextlib.contextmanager
def loops_bounded() -> Iterator[None]:
    """While open, a `while_loop` that runs on real tensors fails with `EndlessError` after `MOST_STEPS` steps."""
    kernels: dict[Any, Callable[..., object]] = while_loop_op.py_kernels
    dense = kernels.get(_KEY)
    if dense is None:  # another torch
        yield
        return

    def bounded(condition: Callable[..., object], *rest: Any, **options: Any) -> object:
        steps = 0

        def counted(*values: object) -> object:
            nonlocal steps
            steps += 1
            if steps > MOST_STEPS:
                raise EndlessError(f"a while_loop goes on after {MOST_STEPS} steps")
            return condition(*values)

        return dense(counted, *rest, **options)

    kernels[_KEY] = bounded
    while_loop_op._dispatch_cache.clear()
    try:
        yield
    finally:
        kernels[_KEY] = dense
        while_loop_op._dispatch_cache.clear()
