"""torch.nn's attention and transformer layers without their fast paths, which a file cannot follow.

Without gradients these layers call fused operators of torch's own, and give zeros for what a padding mask leaves out,
where their documented computation gives numbers. What is captured, and what a file is compared with, is the latter, as
it is in `torch.onnx.export`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def without_fast_paths() -> Iterator[None]:
    """Turns the fast paths off while it is open."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
