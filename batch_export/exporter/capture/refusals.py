"""Why a captured program is not given to the caller: an axis that is fixed, a guard that takes sizes away.

Arrives: axes as they were asked for, guards and torch's own errors. Leaves: errors that name axis, input, size and
line, and what to do. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from batch_export.errors import CaptureError, DynamicShapeError
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture import loop_reasons
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guard_sources import Observation
from batch_export.exporter.capture.guard_symbols import readable
from batch_export.exporter.capture.guards import Guard, fixed_sizes
from batch_export.exporter.capture.rounded_decisions import RoundedDecision
from batch_export.exporter.capture.trial import Outcome, Trial

Failure = tuple[Exception, ShapeEnv | None]
"""What a capture failed of, and torch's environment of sizes then."""


def one_only(asked: shapes.DynamicShapes, given: Mapping[str, int], axes: Sequence[str]) -> DynamicShapeError:
    axis = next(one for one in asked.axes if one.text == axes[0])
    return DynamicShapeError(
        f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)} has the example size "
        f"{given[axis.text]}, and the model took no other that was tried",
        next_step="give an example in which that axis has two elements or more, or leave it out of dynamic_shapes",
    )


def other_rank(guard: Guard) -> DynamicShapeError:
    return DynamicShapeError(
        f"{' and '.join(guard.axes)} may be 1, and then the model drops an axis, which one file cannot: it holds only "
        f"while `{guard.condition}`",
        source=guard.source or None,
        next_step="squeeze axes that are always 1, declare the range (torch.export.Dim(name, min=2)), or pass "
        "guards='allow' to keep the guard in the model's metadata",
    )


def narrower(restrictions: Sequence[Guard], asked: shapes.DynamicShapes) -> DynamicShapeError:
    first = next((guard for guard in restrictions if guard.source), restrictions[0])
    others = [guard.condition for guard in restrictions if guard is not first]
    more = f"; also only while {', '.join(f'`{condition}`' for condition in others[:4])}" if others else ""
    places = {
        axis.text: f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)}"
        for axis in reversed(asked.axes)
    }
    listed = " and ".join(places.get(text, text) for text in first.axes)
    united = " give both axes one name," if first.is_equality else ""
    return DynamicShapeError(
        f"{listed} {'was' if len(first.axes) == 1 else 'were'} asked for as dynamic, but the captured program holds "
        f"only while `{first.condition}`{f' ({first.reason})' if first.reason else ''}{more}"
        f"{_by_loop(first.source)}",
        source=first.source or None,
        next_step=f"declare the range that you need (torch.export.Dim(name, min=..., max=...)),{united} change the "
        "model at that line, or pass guards='allow' to keep the guard in the model's metadata and in the report",
    )


def rounded_otherwise(decision: RoundedDecision) -> DynamicShapeError:
    """The error for a comparison that torch decides by exact algebra, and Python by rounded numbers."""
    return DynamicShapeError(
        f"torch makes `{decision.condition}` of a comparison of fractions of sizes, and Python's numbers, which are "
        f"rounded at each step, say otherwise at the size {decision.size}",
        source=decision.source or None,
        next_step="compare integers (`n % 10 == 0`), or pass guards='allow' to keep what torch made of it",
    )


def _is_of_axes(text: str) -> bool:
    return "data-dependent" not in text and ("specialized" in text or "Constraints violated" in text)


def fixed_axis(error: Exception, seen: Observation, asked: shapes.DynamicShapes) -> DynamicShapeError | None:
    """The error, with axis, input, size and line, when a strategy failed because the model fixes a dynamic axis."""
    text = str(error)
    if not asked.axes or not _is_of_axes(text):
        return None
    refusal: DynamicShapeError
    for axis, size, source in fixed_sizes(seen.environment, asked.axes, asked.aliases):
        refusal = DynamicShapeError(
            f"axis {axis.axis} ({axis.name or 'dynamic'}) of the input {readable(axis.where)} was asked for as "
            f"dynamic, but the model makes it {size}{_by_loop(source)}",
            source=source or None,
            next_step="remove that axis from dynamic_shapes, use Dim.AUTO to let the exporter decide, or change the "
            f"model {'at that line ' if source else ''}so that this size is not fixed",
        )
        refusal.__cause__ = error
        return refusal
    lines = [line.strip(" -") for line in text.splitlines() if "specialized" in line or "must" in line]
    refusal = DynamicShapeError(
        f"the dynamic shapes do not fit the model: {lines[0] if lines else text.splitlines()[0]}",
        next_step="remove that axis from dynamic_shapes, or use Dim.AUTO to let the exporter decide",
    )
    refusal.__cause__ = error
    return refusal


def _by_loop(source: str) -> str:
    """Why the loop at a line, if there is one, holds its length to the example's."""
    why = loop_reasons.of_source(source)
    return f": the loop there is captured round by round, since {why}" if why else ""


def fixes_fewer(one: Failure, other: Failure, asked: shapes.DynamicShapes) -> bool:
    """Whether of two captures that failed at axes which the model fixes the one names fewer: the rest it keeps free.

    One that ended at a decision fixed none.
    """
    if isinstance(one[0], GuardOnDataDependentSymNode) and asked.axes and _is_of_axes(str(other[0])):
        return True
    counts: list[int] = []
    for error, environment in (one, other):
        if not asked.axes or not _is_of_axes(str(error)):
            return False
        counts.append(len(list(fixed_sizes(environment, asked.axes, asked.aliases))))
    return 0 < counts[0] < counts[1]


def hold_against_given(captured: Captured, asked: shapes.DynamicShapes, trial: Trial) -> None:
    """A program that was captured from other sizes has to be the model at the given ones too.

    Raises:
        CaptureError: if the model itself fails there.
        DynamicShapeError: if the program is not the model there.
    """
    if trial.outcome is Outcome.REFUSED:
        raise CaptureError(
            f"the model fails at the example inputs: {trial.problem}", next_step="pass inputs that the model takes"
        )
    if trial.outcome in (Outcome.AGREES, Outcome.NOTHING):
        return
    if captured.harmful:
        raise narrower(captured.harmful, asked)
    sizes = ", ".join(f"{axis.text}" for axis in asked.axes)
    raise DynamicShapeError(
        f"at the example inputs {trial.problem}: the model does something else there than at other sizes of {sizes}",
        next_step="give an example in which each dynamic axis has two elements or more",
    )
