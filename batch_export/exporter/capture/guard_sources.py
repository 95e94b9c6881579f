"""Where in the user's model torch fixes or limits a size: the line that is being run or traced when a guard is added.

Arrives: nothing; a context is opened round a capture. Leaves: guards whose location is the user's `file:line`, and
torch's environment of sizes, also when the capture failed. Nothing is decided here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

OWN_SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of this exporter."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_NUMPY = os.path.dirname(np.__file__) + os.sep
_HIGHER_ORDER = os.path.join(_TORCH, "_higher_order_ops") + os.sep
_CAPTURING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "one_run.py")
_TYPED = ("<stdin>", "<console>", "<ipython-input")
"""Files without a place, whose lines somebody typed; others of the kind are generated."""
COUNTED = "__index__"
"""What stands for torch's own line in a guard that Python made by counting with a size."""
TAKEN = "guard_int"
"""The same where torch itself takes a size as a number, as `unbind` does."""
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


@dataclass(slots=True)
class Observation:
    """What was seen while a strategy captured.

    Attributes:
        environment: torch's environment of sizes, also when the capture failed.
        made_plain: whether Python's `int` or `float` turned a free size into a plain number.
        made_index: whether something else in Python did: `math.sqrt(size)`, `range(size)`, `names[size]`.
        nested: whether a size was looked at inside a higher-order operator (`associative_scan`).
        places: the lines (`file:line`) at which sizes were looked at.
        compared: those at which something was compared by identity that may be an answer about sizes.
    """

    environment: ShapeEnv | None = None
    made_plain: bool = False
    made_index: bool = False
    nested: bool = False
    places: set[str] = field(default_factory=set)
    compared: list[str] = field(default_factory=list)

    @property
    def is_freer_strictly(self) -> bool:
        """Whether a strict capture may keep sizes free that this one fixed."""
        return self.made_plain or self.made_index or self.nested


def is_users(file: str) -> bool:
    """Whether a source file belongs to the model or a library of models, not to torch, NumPy or this exporter."""
    if file.startswith(("<", _TORCH, _NUMPY, OWN_SOURCES)):
        return file.startswith(_TYPED)
    return not file.startswith(_STANDARD_LIBRARY) or "site-packages" in file


def is_generated(file: str) -> bool:
    """Whether code has no file, and is neither Python's own nor torch's: what somebody has made by `eval` or `exec`."""
    return file.startswith("<") and not file.startswith(("<frozen ", "<eval_with_key"))


def is_torchs(file: str) -> bool:
    """Whether a source file belongs to torch or this exporter."""
    return file.startswith((_TORCH, OWN_SOURCES))


def line_of(error: BaseException | None) -> str:
    """`file:line` of the innermost line of the model that an error passed through; empty when there is none."""
    seen: BaseException | None = error
    while seen is not None:
        frames = [one for one in traceback.extract_tb(seen.__traceback__) if is_users(one.filename)]
        inner = [one for one in frames if one.name != "<module>"]
        if inner:
            return f"{inner[-1].filename}:{inner[-1].lineno}"
        seen = seen.__cause__ or seen.__context__
    return ""


def quoted(file: str, line: int) -> str:
    """A line itself, with its place."""
    return f"`{linecache.getline(file, line).strip() or '?'}` (at {file}:{line})"


def running_line() -> str:
    """`file:line` of the innermost line of the model that is running; empty when there is none."""
    frames = [one for one in traceback.extract_stack() if is_users(one.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def keep_lines_of(function: Callable[..., object]) -> None:
    """Has torch note the lines of a function that is a model by itself; of a module it notes those of `forward`.

    NOTE: a private function of torch.fx, without which nodes of such a model have no line.
    """
    register = getattr(torch.fx.proxy, "_register_stack_trace_anchor", None)
    if register is not None:
        register(function)


def users_location(depth: int = 2) -> str:
    """The innermost line outside torch and this exporter that is being run or traced; empty when there is none.

    Args:
        depth: from how many calls up it is looked for.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _CAPTURING:
            break
        if is_users(file):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return next((f"{file}:{line}" for file, line in _traced_frames()), "")


def users_frame(depth: int = 2) -> FrameType | None:
    """The innermost frame of the model's code that is running; None when there is none.

    Args:
        depth: from how many calls up it is looked for.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def users_frames() -> Iterator[tuple[str, int]]:
    """The lines of the model that are being run or traced, innermost first, up to where the capture was begun."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _CAPTURING:
        if is_users(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    yield from _traced_frames()


def _traced_frames() -> Iterator[tuple[str, int]]:
    """Dynamo's own idea of the stack, in strict mode, innermost first."""
    with contextlib.suppress(Exception):
        from torch._guards import TracingContext  # lazy: a torch without it still exports

        for entry in reversed(TracingContext.extract_stack()):
            if is_users(entry.filename):
                yield entry.filename, entry.lineno or 0


def _conversion() -> str:
    """The method by which Python, or torch, is turning a symbolic number into a plain one; empty when it is not."""
    frame: FrameType | None = sys._getframe(2)
    found = ""
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        if frame.f_code.co_name in ("__int__", "__float__", "__index__"):
            return frame.f_code.co_name
        if frame.f_code.co_name == TAKEN:
            found = TAKEN
        frame = frame.f_back
    return found


def _is_in_higher_order() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        if frame.f_code.co_filename.startswith(_HIGHER_ORDER):
            return True
        frame = frame.f_back
    return False


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
        seen.nested = seen.nested or _is_in_higher_order()
        given = original(self, framework_loc)
        conversion = _conversion()
        seen.made_plain = seen.made_plain or conversion in ("__int__", "__float__")
        seen.made_index = seen.made_index or conversion == COUNTED
        place = users_location()
        seen.places.add(place)
        if conversion in (COUNTED, TAKEN):
            given = dataclasses.replace(given, framework_loc=conversion)
        return dataclasses.replace(given, maybe_user_loc=place) if place else given

    ShapeEnv._get_sloc = located  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        ShapeEnv._get_sloc = original  # type: ignore[method-assign]
