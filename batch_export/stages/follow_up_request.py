"""What is asked of a child after a run: where a cell goes wrong, or the smallest thing that fails as it does.

Frozen plain data, one JSON file in each direction; nothing is imported here that is not needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from batch_export.numbers.tolerances import Tolerance
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record

Question = Literal["bisect", "repro"]


@dataclass(frozen=True, slots=True)
class Request:
    """A question about one cell.

    Attributes:
        question: `bisect` or `repro`.
        planned: the cell with its specs.
        record: what is known of it.
        sizes: sizes of the axes at which it fails.
        variant: which values the inputs have there.
        onnx: path of its stored file; empty when there is none.
        folder: where a repro goes.
        tolerances: the run's, with the model's over them.
        timeout_s: when an attempt counts as an endless loop.
        memory_bytes: private memory of an attempt, as the run limits it.
        for_runtime: whether a repro is for the developers of the provider's runtime.
    """

    question: Question
    planned: PlannedCell
    record: Record
    sizes: dict[str, int]
    variant: str
    onnx: str
    folder: str
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    timeout_s: float = 120.0
    memory_bytes: int = 0
    for_runtime: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child found.

    Attributes:
        found: whether there is something to show.
        text: for people, one or more lines.
        facts: the same as plain data.
    """

    found: bool
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


def refusal_file(answer: Path) -> Path:
    """Where a child that cannot answer writes why."""
    return answer.with_name("refused.txt")
