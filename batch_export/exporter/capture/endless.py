"""Loops in a trial end: at sizes and numbers that nobody runs a model at, the condition of one may hold for ever.

Nothing arrives; a context is opened round a run of a model. A sum of no elements reaches no limit, and the export would
never return. The rounds of a `scan` are as many as an axis is long, of one within another the product of that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch.overrides import TorchFunctionMode

MOST_STEPS = 10_000
_CALLS, _SECONDS = 20_000, 10.0
"""Calls of torch's functions and the time of computing behind which a loop of Python's is taken for one without end."""
_UNUSUAL, _UNUSUAL_SECONDS = 100, 2.0
"""The same for a model that calls so many times as much as in any run of it that ended, or of which one did not end."""
_USUAL: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
_ENDLESS: WeakSet[torch.nn.Module] = WeakSet()
MOST_ROUNDS = 4_000
_KEY = torch._C.DispatchKey.CompositeExplicitAutograd


class EndlessError(Exception):
    """A loop took more than `MOST_STEPS` steps, scans more than `MOST_ROUNDS` rounds, or Python goes on and on."""


class _Ending(TorchFunctionMode):
    """Ends a loop of Python's that goes on and on (`while x.max() > 1:` of an infinite x)."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module, self.calls, self.begun = module, 0, time.thread_time()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Notes how many calls a run takes that ends."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if kind is None:
            _USUAL[self.module] = max(self.calls, _USUAL.get(self.module, 0))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of its own."""
        del types
        self.calls += 1
        if self.calls % _CALLS == 0 and time.thread_time() - self.begun > self._seconds():
            _ENDLESS.add(self.module)
            raise EndlessError(f"the model's own code goes on after {self.calls} calls of torch's functions")
        return func(*args, **(kwargs or {}))

    def _seconds(self) -> float:
        if self.module in _ENDLESS:
            return _UNUSUAL_SECONDS
        usual = _USUAL.get(self.module)
        return _SECONDS if usual is None or self.calls < _UNUSUAL * usual else _UNUSUAL_SECONDS


@contextlib.contextmanager
def loops_bounded(module: torch.nn.Module) -> Iterator[None]:
    """While open, loops that run on real tensors fail with `EndlessError`: a `while_loop` after `MOST_STEPS` steps, all
    scans together after `MOST_ROUNDS` rounds, and loops of Python's after some seconds of many calls.

    Args:
        module: what is run.
    """
    kernels: dict[Any, Callable[..., object]] = while_loop_op.py_kernels
    scans: dict[Any, Callable[..., object]] = scan_op.py_kernels
    dense, scanned = kernels.get(_KEY), scans.get(_KEY)
    if dense is None or scanned is None:  # another torch
        with _Ending(module):
            yield
        return
    rounds = 0

    def counting(combine: Callable[..., object], begun: Any, rows: Any, *rest: Any, **options: Any) -> object:
        nonlocal rounds
        rounds += int(rows[0].shape[0])
        if rounds > MOST_ROUNDS:
            raise EndlessError(f"scans go on after {MOST_ROUNDS} rounds")
        return scanned(combine, begun, rows, *rest, **options)

    def bounded(condition: Callable[..., object], *rest: Any, **options: Any) -> object:
        steps = 0

        def counted(*values: object) -> object:
            nonlocal steps
            steps += 1
            if steps > MOST_STEPS:
                raise EndlessError(f"a while_loop goes on after {MOST_STEPS} steps")
            return condition(*values)

        return dense(counted, *rest, **options)

    kernels[_KEY], scans[_KEY] = bounded, counting
    _forget()
    try:
        with _Ending(module):
            yield
    finally:
        kernels[_KEY], scans[_KEY] = dense, scanned
        _forget()


def _forget() -> None:
    for operator in (while_loop_op, scan_op):
        operator._dispatch_cache.clear()
