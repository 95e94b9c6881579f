"""Distributions (`torch.distributions`) without the checks of their arguments, which are decisions by data.

Nothing arrives. Leaves: a context in which they are not checked, unless the model asks for it by `validate_args=True`.
A file has no such checks either.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def unchecked_distributions() -> Iterator[None]:
    """Within, distributions take what they are given."""
    module: Any = sys.modules.get("torch.distributions.distribution")
    if module is None:  # then nobody has one
        yield
        return
    before: bool = module.Distribution._validate_args
    module.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        module.Distribution.set_default_validate_args(before)
