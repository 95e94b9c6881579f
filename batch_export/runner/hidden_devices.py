"""A server that forks must not ask CUDA for its devices: no fork of a process that did can use one.

Fake tensors, `torch.export` and model libraries all ask it while they are imported or run for the first time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_QUESTIONS = ("_cuda_getDeviceCount", "_ensureCUDADeviceGuardSet")


@contextlib.contextmanager
def without_devices() -> Iterator[None]:
    """Within, a CUDA build of torch sees no device, and asks nobody; where torch is not imported, nothing is done.

    NOTE: torch's own questions to CUDA are replaced: the one that `torch.cuda.is_available()` goes through, and the
    one by which a fake mode has CUDA tensors followed where there is no device.
    """
    torch: Any = sys.modules.get("torch")
    own = {name: getattr(torch._C, name) for name in _QUESTIONS if hasattr(torch._C, name)} if torch is not None else {}
    if "_cuda_getDeviceCount" not in own:
        yield
        return
    for name in own:
        setattr(torch._C, name, _none)
    try:
        yield
    finally:
        for name, question in own.items():
            setattr(torch._C, name, question)


def _none() -> int:
    return 0
