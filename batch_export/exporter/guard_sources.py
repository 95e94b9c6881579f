"""Where in the user's model torch fixes or limits a size: the line that is being run or traced when a guard is added.

Arrives: nothing; a context is opened round a capture. Leaves: guards whose location is the user's `file:line`, and
torch's environment of sizes, also when the capture failed. Nothing is decided here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

_HERE = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(torch.__file__) + os.sep
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


@dataclass(slots=True)
class Observation:
    """What was seen while a strategy captured: torch's environment of sizes, also when the capture failed."""

    environment: ShapeEnv | None = None


def _is_users(file: str) -> bool:
    if file.startswith(("<", _TORCH, _HERE)):
        return False
    return not file.startswith(_STANDARD_LIBRARY) or "site-packages" in file


def _user_location() -> str:
    """The innermost line outside torch and this exporter that is being run or traced; empty when there is none."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_HERE):
            break
        if _is_users(file):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    with contextlib.suppress(Exception):  # dynamo's own idea of the stack, in strict mode
        from torch._guards import TracingContext

        for entry in reversed(TracingContext.extract_stack()):
            if _is_users(entry.filename):
                return f"{entry.filename}:{entry.lineno}"
    return ""


@contextlib.contextmanager
def observing() -> Iterator[Observation]:
    """While open, torch's guards carry the user's full `file:line`; torch itself shortens it or has none.

    NOTE: this replaces a private method of ShapeEnv, and goes when torch keeps the user's frame in `ShapeGuard.sloc`.
    """
    seen = Observation()
    original: Callable[..., Any] | None = getattr(ShapeEnv, "_get_sloc", None)
    if original is None:
        yield seen
        return

    def located(self: ShapeEnv, framework_loc: str | None = None) -> Any:
        seen.environment = self
        given = original(self, framework_loc)
        place = _user_location()
        return dataclasses.replace(given, maybe_user_loc=place) if place else given

    ShapeEnv._get_sloc = located  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        ShapeEnv._get_sloc = original  # type: ignore[method-assign]
