"""What became of one program: exported, run three ways at several sizes and values, and compared with eager.

A program and its cases arrive, a `Finding` leaves. Outcomes:

| outcome | what it means | whose |
|---|---|---|
| `ok` | every run agrees | |
| `refused` | the exporter said in one of its own errors that it cannot | |
| `skipped` | eager itself cannot run it | |
| `silent` | wrong numbers, shapes or dtypes, by onnx's reference evaluator too (or where that cannot say) | ours |
| `warned` | as `silent`, but the export warned of an assumption | ours |
| `assumed` | the export was allowed to take something about the data for granted; here it does not hold | |
| `not running` | the file does not load, or fails at a size or a value at which eager runs | ours |
| `invalid` | onnx's full check refuses the file | ours |
| `raw error` | the export ended in an error that is not one of ours | ours |
| `crash`, `timeout` | the process died, or took too long | ours |
| `zero sign` | only the sign of a zero is wrong, by the reference evaluator too | ours |
| `declared` | ONNX leaves a zero's sign open, torch disagrees with itself, or numbers overflow (`excuses.py`) | |
| `upstream` | the reference evaluator agrees with eager, as it is or node by node; onnxruntime does not | onnxruntime |
| `reference` | onnxruntime agrees with eager, the reference evaluator does not | onnx |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from batch_export.errors import OnnxExporterError
from hunt import runs, sensitivity
from hunt.compare import ZERO_SIGN, Allowance, Difference, difference, worst
from hunt.excuses import UPSTREAM, Excuses
from hunt.known import SPECIAL_ON_THE_WAY
from hunt.programs import Program, Tensors

OURS = ("silent", "not running", "raw error", "crash", "timeout", "invalid", "warned", "zero sign")
"""Outcomes that are defects of the exporter, most serious first."""
_TIMES_FOR_ZEROS = 40
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Case:
    """Values of the leaves, the sizes they have, and what kind of values they are."""

    values: Tensors
    sizes: Mapping[str, int]
    mode: str


@dataclass(frozen=True)
class Finding:
    """What became of one program.

    Attributes:
        outcome: see the module's table.
        kind: of the difference or error, in a few words that are the same for the same cause.
        detail: one line with the numbers.
        case: index of the case that shows it.
        output: index of the file's output that shows it, -1 where none does.
        opset: of the file that shows it.
        files: that were judged, one for each opset.
    """

    outcome: str
    kind: str = ""
    detail: str = ""
    case: int = 0
    output: int = -1
    opset: int = 0
    files: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether it is a defect of the exporter."""
        return self.outcome in OURS

    @property
    def cause(self) -> tuple[str, str]:
        """What has to stay the same while the program is shrunk."""
        return self.outcome, self.kind


def judge(program: Program, cases: Sequence[Case], *, reference: bool = False, opsets: Sequence[int] = ()) -> Finding:
    """Judges a program at its cases, of which the first is the example.

    Args:
        program: to export.
        cases: the example first.
        reference: ask the reference evaluator also where onnxruntime agrees.
        opsets: others that the capture is translated at as well; what is found is the worst of all files.
    """
    results = _Results(program, cases)
    try:
        results.of(0)
    except Exception as error:
        return Finding("skipped", _words(error), str(error))
    try:
        exported = runs.export(program, cases[0].values)
    except OnnxExporterError as error:
        return Finding("refused", f"{type(error).__name__}: {error.operator or _words(error)}", _line(error))
    except Exception as error:
        return Finding("raw error", _words(error), _line(error), opset=program.opset)
    found = [_file(program, cases, exported, results, reference)]
    for opset in opsets:
        if found[-1].is_ours:
            break
        found.append(_further(replace(program, opset=opset), cases, exported, results))
    return replace(min(found, key=lambda one: _ORDER.index(one.outcome)), files=len(found))


_ORDER = (*OURS, "assumed", "declared", "upstream", "reference", "skipped", "ok", "refused")


class _Results:
    """Eager's results at each case, computed once for all files; None where eager fails."""

    def __init__(self, program: Program, cases: Sequence[Case]) -> None:
        self._program, self._cases = program, cases
        self._kept: dict[int, list[torch.Tensor] | Exception] = {}

    def of(self, index: int) -> list[torch.Tensor]:
        """Those at one case.

        Raises:
            Exception: eager's.
        """
        if index not in self._kept:
            try:
                self._kept[index] = runs.eager(self._program, self._cases[index].values)
            except Exception as error:
                self._kept[index] = error
        found = self._kept[index]
        if isinstance(found, Exception):
            raise found
        return found


def _further(program: Program, cases: Sequence[Case], exported: runs.Export, results: _Results) -> Finding:
    """What becomes of the capture at another opset."""
    try:
        other = runs.again(exported, program.opset)
    except OnnxExporterError as error:
        return Finding("refused", f"{type(error).__name__}: {error.operator or _words(error)}", _line(error))
    except Exception as error:
        return Finding("raw error", _words(error), _line(error), opset=program.opset)
    return _file(program, cases, other, results, False)


def _file(
    program: Program, cases: Sequence[Case], exported: runs.Export, results: _Results, reference: bool
) -> Finding:
    """One file at all cases."""
    files = runs.Files(exported)
    try:
        files.check()
    except Exception as error:
        return Finding("invalid", _words(error), _line(error), opset=program.opset)
    judged = [_at(program, case, index, exported, files, results, reference) for index, case in enumerate(cases)]
    found = min(judged, key=lambda one: _ORDER.index(one.outcome))
    return replace(found, opset=program.opset) if found.outcome != "skipped" else Finding("ok", opset=program.opset)


def _at(
    program: Program,
    case: Case,
    index: int,
    exported: runs.Export,
    files: runs.Files,
    results: _Results,
    reference: bool,
) -> Finding:
    if not holds(exported.restrictions, case.sizes):
        return Finding("skipped", "outside its guards", case=index)
    try:
        expected = results.of(index)
    except Exception as error:
        return Finding("skipped", _words(error), case=index)
    try:
        mapped = runs.places(program, exported)
    except ValueError as error:
        return Finding("silent", "count", f"outputs that are not the program's: {error}", index)
    wanted = [expected[place] for place in mapped]
    found: dict[str, Any] = {}
    for runtime in (runs.OPTIMISED, runs.PLAIN):
        found[runtime] = _differs(files, runtime, program, case, wanted, None)
    differing = {name: one for name, one in found.items() if one is not None}
    if not differing:
        if reference and isinstance(one := _differs(files, runs.REFERENCE, program, case, wanted, None), tuple):
            return Finding("reference", one[1].kind, one[1].detail, index, one[0])
        return Finding("ok", case=index)
    return _blamed(program, case, index, exported, files, expected, mapped, differing)


def _blamed(
    program: Program,
    case: Case,
    index: int,
    exported: runs.Export,
    files: runs.Files,
    expected: list[torch.Tensor],
    mapped: list[int],
    differing: Mapping[str, Any],
) -> Finding:
    """Whether a difference stands once eager's own rounding is known, and whose it is."""
    allowances = allowances_of(program, case, expected)
    if allowances is None:
        return Finding("skipped", "undefined", case=index)
    allowed = [allowances[place] for place in mapped]
    wanted = [expected[place] for place in mapped]
    again = {name: _differs(files, name, program, case, wanted, allowed) for name in differing}
    left = {name: one for name, one in again.items() if one is not None}
    if not left:
        return Finding("ok", case=index)
    where = next(iter(left)) + (f" ({', '.join(left)})" if len(left) > 1 else "")
    failed = [one for one in left.values() if isinstance(one, Exception)]
    only = "optimised only: " if list(left) == [runs.OPTIMISED] else ""
    if failed:
        upstream = not only and _fails_of_other_numbers(files, program, case, wanted, allowed)
        return Finding(
            "upstream" if upstream else "assumed" if exported.assumed else "not running",
            only + _words(failed[0]),
            f"{where}: {_line(failed[0])}",
            index,
        )
    excuses = Excuses(program, exported, files, case.values)
    reasons: list[str] = []
    standing: tuple[int, Difference] | None = None
    for name in left:
        actual = files.run(name, program, case.values)
        rest: list[Difference | None] = []
        for place, (eager, given) in enumerate(zip(wanted, actual, strict=True)):
            allowance, why = excuses.of(place, mapped[place], eager, given, allowed[place])
            rest.append(difference(eager, given, allowance))
            reasons += [reason for reason in why if reason not in reasons]
        standing = standing or worst(rest)
    output, one = standing or next(found for found in left.values() if isinstance(found, tuple))
    detail = f"{where}, output {output}, {case.mode} values at {dict(case.sizes) or 'the sizes'}: {one.detail}"
    if standing is None:
        declared = [reason for reason in reasons if reason != UPSTREAM]
        if not declared:
            return Finding("upstream", only + one.kind, detail, index, output)
        return Finding("declared", f"{', '.join(declared)}: {one.kind}", detail, index, output)
    if one.kind == ZERO_SIGN:
        if _zeros_move(program, case, expected):
            return Finding("ok", case=index)
        return Finding("zero sign", one.kind, detail, index, output)
    if excuses.in_parts(wanted[output], files.run(next(iter(left)), program, case.values)[output]):
        return Finding("declared", f"complex numbers part by part: {one.kind}", detail, index, output)
    detail += excuses.silence() + (SPECIAL_ON_THE_WAY if excuses.special else "")
    outcome = "assumed" if exported.assumed else "warned" if exported.warned else "silent"
    return Finding(outcome, one.kind, detail, index, output)


def _fails_of_other_numbers(
    files: runs.Files, program: Program, case: Case, wanted: list[torch.Tensor], allowed: list[Allowance]
) -> bool:
    """Whether a node fails only at numbers that another kernel got wrong.

    That is so where every node runs alone in onnxruntime on the right numbers, and these make eager's results.
    """
    try:
        right = files.ideal(program, case.values, alone=True)
    except Exception:  # a node does not run
        return False
    return all(difference(*three) is None for three in zip(wanted, right, allowed, strict=True))


def _zeros_move(program: Program, case: Case, expected: list[torch.Tensor]) -> bool:
    """Whether among many runs with other signs of zeros one has others in its results too."""
    try:
        moved = sensitivity.run(program, case.values, expected, runs.collected, _TIMES_FOR_ZEROS)
    except Exception:  # control flow refuses dispatch modes
        return False
    return any(one is None or bool(one.any()) for one in moved.loose)


def _differs(
    files: runs.Files,
    runtime: str,
    program: Program,
    case: Case,
    wanted: list[torch.Tensor],
    allowed: list[Allowance] | None,
) -> tuple[int, Difference] | Exception | None:
    """The worst difference of a runtime's results, or the error in which it ended."""
    try:
        actual = files.run(runtime, program, case.values)
    except Exception as error:
        return error
    if len(actual) != len(wanted):
        return 0, Difference("count", f"{len(actual)} outputs instead of {len(wanted)}")
    excused: Sequence[Allowance | None] = allowed or [None] * len(wanted)
    return worst([difference(*three) for three in zip(wanted, actual, excused, strict=True)])


def allowances_of(program: Program, case: Case, expected: list[torch.Tensor]) -> list[Allowance] | None:
    """What eager's own sensitivity excuses; None where the program does what nobody defines."""
    try:
        exact: list[Any] = list(runs.eager(program, case.values, float64=True))
    except Exception:  # the program may name what float64 lacks; then nothing is excused by it
        exact = [None] * len(expected)
    try:
        moved = sensitivity.run(program, case.values, expected, runs.collected)
    except Exception:  # control flow refuses dispatch modes
        moved = sensitivity.of_inputs(program, case.values, expected, runs.collected)
    if moved.undefined:
        return None
    last = torch.finfo(torch.float64).eps * _largest(case.values)  # what a kernel may lose beside its largest input
    return [
        Allowance(
            None if slack is None else slack + last,
            loose,
            value if value is not None and value.is_floating_point() else None,
        )
        for slack, loose, value in zip(moved.slack, moved.loose, exact, strict=True)
    ]


def _largest(values: Tensors) -> float:
    """The largest number of a case, 1000 at most."""
    floats = [one.double().abs() for one in values.values() if one.is_floating_point() and one.numel()]
    return min(1e3, max((float(one.nan_to_num(0.0, 0.0, 0.0).max()) for one in floats), default=1.0))


def holds(conditions: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether the sizes are among those for which the file was exported with guards."""
    for condition in conditions:
        try:
            if not eval(condition, {"Max": max, "Min": min, "Mod": lambda a, b: a % b}, dict(sizes)):
                return False
        except Exception:  # a condition in words of torch's own
            return False
    return True


def _line(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def _words(error: Exception) -> str:
    """The error without its numbers and names, so that equal causes read alike."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+", "_", _line(error))
    text = re.sub(r"Name:\S+|[a-z_]*\d+\w*", "_", text)
    return _NUMBER.sub("_", text)[:150]
