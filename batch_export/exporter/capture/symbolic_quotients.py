"""Python's `divmod` of sizes, which torch's symbolic numbers (2.13) have no method for.

Nothing arrives. Leaves: a context in which `divmod(size, k)` is `(size // k, size % k)`, as it is of Python's numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_KINDS: tuple[Any, ...] = (torch.SymInt, torch.SymFloat)


def _divmod(left: Any, right: Any) -> Any:
    return (left // right, left % right) if isinstance(right, _NUMBERS) else NotImplemented


def _rdivmod(right: Any, left: Any) -> Any:
    return (left // right, left % right) if isinstance(left, _NUMBERS) else NotImplemented


@contextlib.contextmanager
def symbolic_quotients() -> Iterator[None]:
    """Within, sizes have quotient and remainder at once."""
    with contextlib.ExitStack() as stack:
        for kind in _KINDS:
            for name, method in (("__divmod__", _divmod), ("__rdivmod__", _rdivmod)):
                if not hasattr(kind, name):
                    stack.enter_context(patch.object(kind, name, method, create=True))
        yield
