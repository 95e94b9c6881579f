"""The sentence for a model that no strategy captured: what the first one said, at which line, and what to try.

Arrives: the attempts. Leaves: one error. What each strategy said is in its `attempts` and in the report.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from batch_export.errors import CaptureError
from batch_export.exporter.capture.captured import Attempt
from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.returned_operands import ReturnedOperandError
from batch_export.exporter.capture.strategies import TRACE


def not_captured(attempts: Sequence[Attempt]) -> CaptureError:
    """The error, which its caller raises from the first attempt's."""
    told = next((one for one in attempts if isinstance(one.exception, ReturnedOperandError)), None)
    if told is not None:
        return CaptureError(
            f"the model could not be captured: {told.exception}",
            source=_line(attempts[0].exception) or None,
            next_step="write `.clone()` behind what that branch returns",
            attempts=tuple(attempts),
        )
    first = attempts[0]
    ran = next((one for one in attempts if one.strategy == TRACE), None)
    if ran is not None and ran.error and _line(ran.exception):
        step = (
            "call the model with these inputs outside of the export: torch.jit.trace, which runs it as it is, fails as "
            f"well{'' if ran.error == first.error else f' ({ran.error})'}"
        )
    else:
        step = "change the model at that line; report=True writes down what each strategy said"
    return CaptureError(
        f"the model could not be captured: {first.strategy} said {first.error.rstrip('.')}",
        source=_line(first.exception) or None,
        next_step=step,
        attempts=tuple(attempts),
    )


def _line(error: BaseException | None) -> str:
    """`file:line` of the innermost line of the model that an error passed through; empty when there is none."""
    seen: BaseException | None = error
    while seen is not None:
        frames = [one for one in traceback.extract_tb(seen.__traceback__) if is_users(one.filename)]
        inner = [one for one in frames if one.name != "<module>"]
        if inner:
            return f"{inner[-1].filename}:{inner[-1].lineno}"
        seen = seen.__cause__ or seen.__context__
    return ""
