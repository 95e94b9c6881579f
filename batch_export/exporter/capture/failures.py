"""The sentence for a model that no strategy captured: what the first one said, at which line, and what to try.

Arrives: the attempts. Leaves: one error. What each strategy said is in its `attempts` and in the report.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch

from batch_export.errors import CaptureError
from batch_export.exporter.capture.assigned_buffers import SharedBufferError
from batch_export.exporter.capture.captured import Attempt
from batch_export.exporter.capture.caught_failures import CaughtFailureError
from batch_export.exporter.capture.extreme_elements import OtherKindsError
from batch_export.exporter.capture.guard_sources import line_of
from batch_export.exporter.capture.overlapping_writes import OverlappingWriteError
from batch_export.exporter.capture.returned_operands import ReturnedOperandError
from batch_export.exporter.capture.script_graphs import UnknownNodeError
from batch_export.exporter.capture.strategies import TRACE
from batch_export.exporter.capture.truth_values import RefusedByEagerError
from batch_export.exporter.capture.unfit_outputs import UnfitOutputError
from batch_export.exporter.capture.written_constants import UnfollowedWriteError

_REFUSED = (
    *(SharedBufferError, RefusedByEagerError, UnfitOutputError, CaughtFailureError, OverlappingWriteError),
    *(UnknownNodeError, OtherKindsError),
)


def not_captured(attempts: Sequence[Attempt], *, trace: str = "") -> CaptureError:
    """The error, which its caller raises from the first attempt's.

    Args:
        attempts: what was tried.
        trace: what is wrong with what torch.jit.trace captured, if it captured anything.
    """
    if (writes := unfollowed(attempts)) is not None:
        return writes
    told = next((one for one in attempts if isinstance(one.exception, ReturnedOperandError)), None)
    if told is not None:
        return CaptureError(
            f"the model could not be captured: {told.exception}",
            source=line_of(attempts[0].exception) or None,
            next_step="write `.clone()` behind what that branch returns",
            attempts=tuple(attempts),
        )
    first = attempts[0]
    more = f"; what torch.jit.trace captured {trace}" if trace else ""
    ran = next((one for one in attempts if one.strategy == TRACE), None)
    if ran is not None and ran.error and line_of(ran.exception):
        step = (
            "call the model with these inputs outside of the export: torch.jit.trace, which runs it as it is, fails as "
            f"well{'' if ran.error == first.error else f' ({ran.error})'}"
        )
    else:
        change = "change the model at that line; " if line_of(first.exception) else ""
        step = f"{change}report=True writes down what each strategy said"
    return CaptureError(
        f"the model could not be captured: {first.strategy} said {first.error.rstrip('.')}{more}",
        source=line_of(first.exception) or None,
        next_step=step,
        attempts=tuple(attempts),
    )


def unfollowed(attempts: Sequence[Attempt]) -> CaptureError | None:
    """The error for writes that no strategy follows, where the first one said so."""
    first = attempts[0].exception if attempts else None
    if first is not None and _swaps(first):
        first = UnfollowedWriteError(
            "two tensors change places (`torch.utils.swap_tensors`)",
            line_of(first),
            "give them their names anew (`a, b = b, a`), or write the numbers (copy_)",
        )
    if not isinstance(first, UnfollowedWriteError):
        return None
    return CaptureError(
        f"{first}, which a capture does not follow",
        source=first.source or None,
        next_step=first.next_step,
        attempts=tuple(attempts),
    )


def _swaps(error: BaseException) -> bool:
    """Whether an error was raised where two tensors were to change places."""
    code = getattr(getattr(torch.utils, "swap_tensors", None), "__code__", None)
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def refused(error: BaseException) -> CaptureError | None:
    """The error for what no other strategy would do better, only without saying so; None for any other failure."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, _REFUSED):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    if isinstance(seen, CaughtFailureError):
        return CaptureError(
            f"the model could not be captured for all data: {seen}, which a file cannot",
            source=seen.source or None,
            next_step="choose between both ways by torch.where or torch.cond, or take the line out of the try",
        )
    if isinstance(seen, UnknownNodeError):
        return CaptureError(
            f"the TorchScript model could not be captured: {seen}",
            source=line_of(seen) or None,
            next_step="export the original module instead, or pass dynamo=False for the TorchScript exporter",
        )
    if isinstance(seen, OverlappingWriteError):
        return CaptureError(str(seen), source=seen.source or None, next_step="write a copy of what is read: `.clone()`")
    if isinstance(seen, UnfitOutputError):
        return CaptureError(
            str(seen),
            source=seen.source or None,
            next_step="return tensors, numbers and None, or lists, tuples, dicts, named tuples, dataclasses of them",
        )
    if isinstance(seen, OtherKindsError):
        return CaptureError(
            f"the model could not be captured for all data: {seen}",
            source=seen.source or None,
            next_step="give them one dtype and shape first, or compute with torch.maximum or torch.minimum",
        )
    if isinstance(seen, RefusedByEagerError):
        return CaptureError(
            f"the model does not run at the example inputs: {str(seen).rstrip('.')}",
            source=seen.source or None,
            next_step="call the model with these inputs outside of the export, and change it at that line",
        )
    return CaptureError(
        f"{seen}, so that they are two tensors after the first call, and one in the file",
        source=seen.source or line_of(seen) or None,
        next_step="give each module a tensor of its own: register_buffer(name, tensor.clone())",
    )
