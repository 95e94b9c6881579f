"""The public `export`: the exporter core with the TorchScript exporter plugged in behind `dynamo=False` and `fallback`.

Arrives and leaves: see `exporter.api.export`. The core itself knows no other exporter; here the two meet.
"""

from __future__ import annotations

import functools
from typing import Any

from batch_export.exporter import api
from batch_export.exporter.program import ONNXProgram
from batch_export.peers import torchscript


@functools.wraps(api.export)
def export(*args: Any, **kwargs: Any) -> ONNXProgram:
    """See `exporter.api.export`, whose signature and text this function carries."""
    kwargs.setdefault("torchscript", torchscript.export)
    return api.export(*args, **kwargs)
