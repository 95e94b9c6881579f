"""`torch.export.draft_export` without what it leaves behind: a log of its own below the temporary folder.

Arrives: a module, its example inputs and torch's form of the dynamic shapes. Leaves: torch's exported program. Torch
opens a file for each call and neither closes nor removes it; whoever asked for these logs (`TORCH_DTRACE`) keeps them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch._logging._internal import DTRACE_ENV_VAR

from batch_export.exporter.capture.kept_state import state_kept

_ROOM = "torch.export._draft_export"
_LOG = "CaptureStructuredTrace"


def draft_export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], form: Any
) -> torch.export.ExportedProgram:
    """Captures a module; what was assumed is in the program's `_report`.

    Args:
        module: the module.
        args: example inputs by position.
        kwargs: example inputs by name.
        form: torch's `dynamic_shapes`.
    """
    with _logs_closed(), state_kept(module, args, kwargs):  # torch runs the model beside its capture
        return torch.export.draft_export(module, args, kwargs=kwargs or None, dynamic_shapes=form)


@contextlib.contextmanager
def _logs_closed() -> Iterator[None]:
    """Closes the logs that are opened in it once nobody writes to them any more; they lie in a folder that goes too."""
    room = vars(importlib.import_module(_ROOM))
    log_class, logs = room[_LOG], []
    asked = bool(os.environ.get(DTRACE_ENV_VAR))

    with tempfile.TemporaryDirectory(prefix="batch_export_draft_") as folder:

        def remembered() -> object:
            log = log_class()
            if not asked:
                log.root_dir = folder
            logs.append(log)
            return log

        room[_LOG] = remembered
        try:
            yield
        finally:
            room[_LOG] = log_class
            for log in logs:
                log.close()
