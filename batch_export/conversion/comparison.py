"""A file before and after a conversion, run on the same inputs.

Arrives: two paths with their opsets, and the inputs. Leaves: which runtime judged each, and how far the results are
apart. A file that no runtime here runs is not verified, and the reason is said.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from batch_export.conversion import sampling
from batch_export.numbers.compare import compare
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.values import Value
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import leaves
from batch_export.words import one_line

_JUDGES = (
    ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", opsets=(7, 27)),
    ProviderSpec("reference", "reference", opsets=(1, 28)),
)
_SIZES = (2, 3, 1)
_SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Compared:
    """What became of a comparison.

    Attributes:
        judges: the runtimes, with their versions, that ran the file before and the file after.
        runs: how many sets of inputs were compared.
        largest: the largest absolute difference.
        worse: a sentence for each output that differs by more than its dtype's tolerance.
        unverified: why nothing was compared; empty where something was.
    """

    judges: tuple[str, str] = ("", "")
    runs: int = 0
    largest: float = 0.0
    worse: tuple[str, ...] = ()
    unverified: str = ""


def compared(before: Path, after: Path, opsets: tuple[int, int], inputs: Sequence[ir.Value]) -> Compared:
    """Runs both files and compares their outputs.

    Args:
        before: the file that was given.
        after: the file at the new opset.
        opsets: of both.
        inputs: the inputs of the graph, weights left out.
    """
    sizes = _SIZES if sampling.has_free_axes(inputs) else _SIZES[:1]
    runs, largest, worse, judges, why = 0, 0.0, [], ("", ""), ""
    for size in sizes:
        for seed in _SEEDS:
            try:
                fed = sampling.feeds(inputs, size, seed)
            except ValueError as error:
                return Compared(unverified=str(error))
            old_judge, old, why_not = _run(before, opsets[0], fed)
            if old is None:
                why = why or f"the file given does not run here: {why_not}"
                continue
            new_judge, new, why_not = _run(after, opsets[1], fed)
            if new is None:
                return Compared((old_judge, ""), worse=(f"the file does not run any more: {why_not}",))
            judges, runs = (old_judge, new_judge), runs + 1
            for place, (one, other) in enumerate(zip(old, new, strict=True)):
                facts = compare(f"output {place}", one, other)
                largest = max(largest, facts.max_abs or 0.0)
                worse += _objections(facts)
    return Compared(judges, runs, largest, tuple(dict.fromkeys(worse)), "" if runs else why)


def _run(path: Path, opset: int, fed: dict[str, Value]) -> tuple[str, list[Value] | None, str]:
    """The runtime that ran a file, its outputs, and why there are none."""
    why = f"no runtime reads opset {opset}"
    for judge in _JUDGES:
        runtime = RUNTIMES[judge.kind]
        if not judge.opsets[0] <= opset <= judge.opsets[1] or runtime.absence(judge):
            continue
        try:
            session = open_session(path, judge)
            outputs = leaves(session.run(fed))
            session.close()
        except Exception as error:
            why = f"{runtime.called}: {one_line(str(error))}"
            continue
        return f"{runtime.called} {importlib.metadata.version(runtime.packages[0])}", outputs, ""
    return "", None, why


def _objections(facts: OutputFacts) -> list[str]:
    """What is wrong with an output, in a sentence."""
    if facts.expected_dtype != facts.actual_dtype or facts.expected_shape != facts.actual_shape:
        was, now = (
            f"{dtype}{list(shape)}"
            for dtype, shape in (
                (facts.expected_dtype, facts.expected_shape),
                (facts.actual_dtype, facts.actual_shape),
            )
        )
        return [f"{facts.name} was {was} and is {now}"]
    if facts.outside:
        was, now = facts.worst_values or ("", "")
        return [f"{facts.name} differs in {facts.outside} of {facts.count} elements, at worst {was} and {now}"]
    return []
