"""`torch._assert` on what data say: an operator that checks when the model runs, not a decision at capture.

Nothing arrives. Leaves: a context in which such an assertion is captured as `aten::_assert_async`, which has no place
in a file and is left out of it. Assertions on Python's own values, sizes among them, are checked as they are written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def assertions_on_data() -> Iterator[None]:
    """Within, `torch._assert` of a tensor decides nothing."""
    own: Any = torch._assert

    def checked(condition: Any, message: str) -> None:
        if isinstance(condition, torch.Tensor):
            torch.ops.aten._assert_async.msg(condition, message)
        else:
            own(condition, message)

    torch._assert = checked
    try:
        yield
    finally:
        torch._assert = own
