"""Each operator with a function in it (`cond`, `scan`, `map`) is read by dynamo as if it were the first one.

Nothing arrives. Leaves: a context in which dynamo keeps nothing of such operators that were captured before. Torch
compiles all of one kind as one function, and asks for each whether what it kept of the others holds, by their sizes: of
free ones that is a guard (`batch == 2`), so that a model's axes would be fixed by a loop of another model.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

_MODULE = importlib.import_module("torch._higher_order_ops.utils")
_OWN = "_hop_compile_and_call"


@contextlib.contextmanager
def fresh_operators() -> Iterator[None]:
    """Within, dynamo forgets an operator's own code before it reads it, but for one that stands in such an operator.

    NOTE: this replaces a function of torch's while a model is captured; a torch without it keeps what it kept.
    """
    own: Callable[..., Any] | None = getattr(_MODULE, _OWN, None)
    forget: Callable[[CodeType], None] | None = getattr(torch._C._dynamo.eval_frame, "reset_code", None)
    if own is None or forget is None:
        yield
        return
    depth = 0

    def called(function: Any, *given: Any, **named: Any) -> Any:
        nonlocal depth
        code = getattr(function, "__code__", None)
        if code is not None and not depth:
            forget(code)
        depth += 1
        try:
            return own(function, *given, **named)
        finally:
            depth -= 1

    setattr(_MODULE, _OWN, called)
    try:
        yield
    finally:
        setattr(_MODULE, _OWN, own)
