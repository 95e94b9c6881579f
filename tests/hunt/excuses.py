"""Whose a difference is, element by element, where onnxruntime's result is not eager's.

An element is somebody else's, or declared, for one of these reasons:

- `upstream`: the reference evaluator has eager's value there, or has it once each node rounds its results only once
  (`ideal.py`): the file is right, onnxruntime's kernel is not.
- `zeros of either sign`: eager's value comes out of the file when sums of zeros, and choices between zeros of both
  signs, have another sign, which ONNX does not name, and hangs on it: it is such a zero, or comes of one (`atan2`).
- `torch's own decomposition`: torch, with its operators decomposed, has the file's value and not eager's, and NaN or an
  infinity is among the program's numbers, or the sign of a zero is all that differs. Fused kernels of eager say
  something else about these than their formulas.
- `overflow`: in float64 file and eager agree, or are both finite where eager has another finite number than in its
  own dtype, and the program has finite numbers above 1e12 in float32 or bfloat16, whose squares or cubes do not fit:
  eager computes some operators in float64, ONNX's have the dtype of their inputs. A complex number is excused where the
  file has eager's of float64: its quotients overflow in eager's vectors.

None of these excuses a wrong finite number of a program of ordinary numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from hunt import runs
from hunt.compare import ZERO_SIGN, Allowance, difference, wrong
from hunt.programs import Program, Tensors

UPSTREAM, DECOMPOSED, OVERFLOW = "upstream", "torch's own decomposition", "overflow"
ZEROS = "zeros of either sign"
_IDEAL = "ideal"
_SIGNS = (1.0, -1.0, 0.0, 0.0, 0.0, 0.0)
"""Open zeros all positive, all negative, or by chance."""
_HUGE = 1e12
_CONSTANTS = 1e-6
"""The widened file keeps constants that were rounded to float32."""


@dataclass(frozen=True)
class Numbers:
    """What kinds of numbers a program has at one case, intermediate ones included."""

    special: bool
    huge: bool
    special_complex: bool = False


def numbers(program: Program, values: Tensors) -> Numbers:
    """Runs the program in eager with everything as an output."""
    names = tuple(name for step in program.steps for name in step.writes)
    try:
        found = runs.eager(replace(program, outputs=(*program.outputs, *names), form="tuple"), values)
    except Exception:  # then what the leaves say has to do
        found = []
    parts = [torch.view_as_real(one.resolve_conj()) if one.is_complex() else one for one in (*found, *values.values())]
    floats = [one for one in parts if one.is_floating_point() and one.numel()]
    wide = [one for one in floats if one.dtype in (torch.float32, torch.bfloat16)]
    pairs = [one for one in (*found, *values.values()) if one.is_complex()]
    return Numbers(
        any(not bool(torch.isfinite(one).all()) for one in floats),
        any(bool((one.abs().double().nan_to_num(0.0, 0.0, 0.0) > _HUGE).any()) for one in wide),
        any(not bool(torch.isfinite(torch.view_as_real(one.resolve_conj())).all()) for one in pairs),
    )


class Excuses:
    """The reasons that hold for one program at one case; each is computed once, when it is asked for."""

    def __init__(self, program: Program, exported: runs.Export, files: runs.Files, values: Tensors) -> None:
        self._program, self._exported, self._files, self._values = program, exported, files, values
        self._kinds: Numbers | None = None
        self._results: dict[str, list[torch.Tensor] | None] = {}
        self._silent: str = ""

    def of(
        self, output: int, place: int, expected: torch.Tensor, actual: torch.Tensor, allowance: Allowance
    ) -> tuple[Allowance, tuple[str, ...]]:
        """The allowance with the elements of one output that are excused, and for which reasons.

        Args:
            output: index of the file's output.
            place: index of eager's result.
            expected: eager's result.
            actual: the runtime's.
            allowance: what rounding excuses.
        """
        reasons: list[str] = []
        if allowance.loose is None:
            return allowance, ()
        if expected.shape != actual.shape or expected.is_complex():
            return self._of_all(output, place, expected, actual, allowance)
        for reason in (UPSTREAM, ZEROS, DECOMPOSED, OVERFLOW):
            left = _any(wrong(expected, actual, allowance), expected)
            if not bool(left.any()):
                break
            excused = left & self._excused(reason, output, place, expected, actual, allowance)
            if bool(excused.any()):
                assert allowance.loose is not None
                allowance = replace(allowance, loose=allowance.loose | excused)
                reasons.append(reason)
        return allowance, tuple(reasons)

    def _of_all(
        self, output: int, place: int, expected: torch.Tensor, actual: torch.Tensor, allowance: Allowance
    ) -> tuple[Allowance, tuple[str, ...]]:
        """The same for a result that has no elements to compare one by one: all of it or nothing."""
        for evaluator in (UPSTREAM, _IDEAL):
            found = self._at(evaluator, output)
            if found is not None and difference(expected, found, allowance) is None:
                return Allowance(None, None, None), (UPSTREAM,)
        found = self._at(DECOMPOSED, place) if self._has.special else None
        if found is not None and difference(found, actual) is None:
            return Allowance(None, None, None), (DECOMPOSED,)
        reasons = self._of_parts(output, place, expected, actual, allowance) if expected.is_complex() else ()
        return (Allowance(None, None, None), reasons) if reasons else (allowance, ())

    def _of_parts(
        self, output: int, place: int, expected: torch.Tensor, actual: torch.Tensor, allowance: Allowance
    ) -> tuple[str, ...]:
        """Why each number of a complex result is excused; nothing where one is not."""
        if actual.shape != (*expected.shape, 2):
            return ()
        expected = expected.resolve_conj()
        like, exact = torch.view_as_real(expected), self._at("exact", place) if self._has.huge else None
        told = [(UPSTREAM, expected, self._at(one, output)) for one in (UPSTREAM, _IDEAL)]
        if exact is not None and exact.is_complex() and exact.shape == expected.shape:
            told.append((OVERFLOW, exact.to(expected.dtype), actual))
        left, reasons = _any(wrong(expected, actual, allowance), like), dict[str, None]()
        for reason, wanted, found in told:
            if found is None or found.shape != like.shape or not bool(left.any()):
                continue
            unlike = left & _any(wrong(wanted, found, allowance), like)
            reasons |= {reason: None} if bool((left & ~unlike).any()) else {}
            left = unlike
        return () if bool(left.any()) else tuple(reasons)

    def _excused(
        self,
        reason: str,
        output: int,
        place: int,
        expected: torch.Tensor,
        actual: torch.Tensor,
        allowance: Allowance,
    ) -> torch.Tensor:
        nothing = torch.zeros(expected.shape, dtype=torch.bool)
        if reason == UPSTREAM:
            by_reference = self._agrees(self._at(reason, output), expected, allowance)
            if bool((by_reference | ~_any(wrong(expected, actual, allowance), expected)).all()):
                return by_reference
            return by_reference | self._agrees(self._at(_IDEAL, output), expected, allowance)
        if reason == ZEROS:
            found = [self._at(f"{ZEROS} {index}", output) for index in range(len(_SIGNS))]
            told = [
                one for one in found if one is not None and (one.shape, one.dtype) == (expected.shape, expected.dtype)
            ]
            hangs, agrees = nothing, nothing
            for one in told:
                hangs = hangs | _any(wrong(told[0], one), told[0])
                agrees = agrees | self._agrees(one, expected, allowance)
            return hangs & agrees
        if reason == DECOMPOSED:
            zeros = wrong(expected, actual, allowance).get(ZERO_SIGN, nothing)
            if not self._has.special and not bool(zeros.any()):
                return nothing
            made = self._at(reason, place)
            is_alike = made is not None and made.shape == expected.shape  # torch may fix a size when it decomposes
            agrees = self._agrees(actual, made, allowance) if made is not None and is_alike else nothing
            return agrees if self._has.special else agrees & zeros
        if not self._has.huge:
            return nothing
        wide, exact = self._at(reason, output), self._at("exact", place)
        if wide is None or exact is None or wide.shape != exact.shape or exact.shape != expected.shape:
            return nothing
        if wide.dtype != exact.dtype and not (wide.is_floating_point() and exact.is_floating_point()):
            return nothing
        wide = wide.to(exact.dtype)  # which the program may have named
        slack = exact.double().abs().nan_to_num(0.0, 0.0, 0.0) * _CONSTANTS
        agrees = ~_any(wrong(exact, wide, Allowance(slack, nothing, None)), expected)
        if expected.is_floating_point():  # a remainder of a huge number is a matter of its last bit
            undecided = _any(wrong(expected, exact.to(expected.dtype)), expected) & torch.isfinite(expected)
            agrees |= undecided & torch.isfinite(exact) & torch.isfinite(wide) & ~torch.isfinite(actual)
        special = ~torch.isfinite(expected) | ~torch.isfinite(actual) if expected.is_floating_point() else ~nothing
        return agrees & (special | (exact.double().abs() > _HUGE))

    @staticmethod
    def _agrees(found: torch.Tensor | None, like: torch.Tensor, allowance: Allowance) -> torch.Tensor:
        """Where a result is what it is held against; nowhere when there is none."""
        if found is None or (found.shape, found.dtype) != (like.shape, like.dtype):
            return torch.zeros(like.shape, dtype=torch.bool)
        return ~_any(wrong(like, found, allowance), like)

    def silence(self) -> str:
        """Why the reference evaluator says nothing, if it does not."""
        return f" (no word of the reference: {self._silent})" if self._silent else ""

    @property
    def special(self) -> bool:
        """Whether NaN, an infinity or a number whose square overflows is among the program's numbers."""
        return self._has.special or self._has.huge

    def in_parts(self, expected: torch.Tensor, actual: torch.Tensor) -> bool:
        """Whether a real result was made of complex numbers that are not finite.

        Eager multiplies by imaginary parts of 0 there, the file does not (docs/exporter.md). Among complex
        results such numbers are alike; a real part, or a cast, shows which of them it was.
        """
        return self._has.special_complex and expected.shape == actual.shape and not expected.is_complex()

    @property
    def _has(self) -> Numbers:
        if self._kinds is None:
            self._kinds = numbers(self._program, self._values)
        return self._kinds

    def _at(self, reason: str, index: int) -> torch.Tensor | None:
        if reason not in self._results:
            try:
                self._results[reason] = self._run(reason)
            except Exception as error:  # it cannot say
                self._results[reason] = None
                self._silent = f"{type(error).__name__}: {error}"[:150] if reason == UPSTREAM else self._silent
        found = self._results[reason]
        return found[index] if found is not None and index < len(found) else None

    def _run(self, reason: str) -> list[torch.Tensor]:
        if reason == UPSTREAM:
            return self._files.run(runs.REFERENCE, self._program, self._values)
        if reason == _IDEAL:
            return self._files.run(runs.IDEAL, self._program, self._values)
        if reason.startswith(ZEROS):
            index = int(reason.removeprefix(ZEROS))
            return self._files.ideal(self._program, self._values, sign=_SIGNS[index], seed=index)
        if reason == DECOMPOSED:
            return runs.decomposed(self._program, self._exported, self._values)
        if reason == OVERFLOW:
            return self._files.widened(self._program, self._values)
        return runs.eager(self._program, self._values, float64=True)


def _any(found: dict[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    masks: Sequence[torch.Tensor] = [one for kind, one in found.items() if kind != ZERO_SIGN]
    zeros = found.get(ZERO_SIGN, torch.zeros(like.shape, dtype=torch.bool))
    result = zeros.clone()
    for one in masks:
        result |= one
    return result
