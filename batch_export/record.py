"""Cells and what became of them: the facts of one cell as one JSON line, and the words for outcomes.

Frozen plain data; `schema_version` is in every stored record. Verdicts are derived from facts (`verdict.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from batch_export.numbers.facts import OutputFacts
from batch_export.runtime.measuring import LatencyFacts

SCHEMA_VERSION = 1
"""Raised when a record changes incompatibly. 1 (2026-11): first.

2026-11-22: records have `by_distribution`, models in run.json `allow_nonfinite`, summary.json `stale_exclusions`,
`nothing_tested` and `by_distribution`; records have `by_ties`, their runs `ties`; all may be missing in older files.
2026-11-29: run.json has `matrix.env`, of a shard `matrix.chosen` too, records have `seen`; all may be missing likewise.
"""

Outcome = Literal["pass", "fail", "skip", "xfail", "xpass", "flaky", "missing"]
Stage = Literal[
    "capture",
    "translate",
    "opset",
    "dynamic",
    "check",
    "load",
    "run",
    "mismatch",
    "crash",
    "timeout",
    "memory",
    "environment",
    "model",
]
PROCESS_STAGES: tuple[Stage, ...] = ("crash", "timeout", "memory")
"""Failures that end the process itself."""
UNCACHED_STAGES: frozenset[str] = frozenset({*PROCESS_STAGES, "environment"})
"""Failures that say something about the machine and the moment: recorded, never served from the cache."""
RETRIED_STAGES: frozenset[str] = frozenset(PROCESS_STAGES)
"""Failures after which an action is tried again, as often as `runner.retries` says."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One point of the matrix."""

    # These fields are the axes: whatever goes over axes goes over them. An axis is a word, or a number, which a cell's
    # name has after the axis' own (`opset20`); `key` is the key of the matrix that lists its values.
    model: str = field(metadata={"key": "models"})
    dynamic: str = field(metadata={"key": "dynamic"})
    opset: int = field(metadata={"key": "opsets"})
    provider: str = field(metadata={"key": "providers"})
    exporter: str = field(metadata={"key": "exporters"})

    @classmethod
    def axes(cls) -> dict[str, str]:
        """Returns the axes in order, with the key of the matrix that lists each one's values."""
        return {axis.name: axis.metadata["key"] for axis in fields(cls)}

    @property
    def words(self) -> dict[str, str]:
        """The value on each axis as a word, as globs are matched with it."""
        return {axis: str(value) for axis, value in self._values()}

    @property
    def path(self) -> dict[str, str]:
        """The value on each axis as the cell's name has it."""
        return {axis: f"{axis}{value}" if isinstance(value, int) else value for axis, value in self._values()}

    @property
    def name(self) -> str:
        """`model/dynamic/opset20/provider/exporter`, as it is typed on the command line."""
        words = []
        for axis in self.__dataclass_fields__:  # asked for often: no dict is made for it
            value = getattr(self, axis)
            words.append(f"{axis}{value}" if isinstance(value, int) else value)
        return "/".join(words)

    @property
    def table(self) -> tuple[str, ...]:
        """The axes that are neither a row nor a column of a table: cells that agree on them share one."""
        return tuple(word for axis, word in self.path.items() if axis not in _OF_A_TABLE)

    @property
    def capture(self) -> str:
        """`model/dynamic/exporter`: the cells that agree on it share a capture."""
        return "/".join(word for axis, word in self.path.items() if axis not in _AFTER_CAPTURE)

    @property
    def file(self) -> str:
        """`model/dynamic/opset20/exporter`: the cells that agree on it share an ONNX file."""
        return "/".join(word for axis, word in self.path.items() if axis != "provider")

    @classmethod
    def form(cls) -> str:
        """Returns what a cell's name looks like."""
        return "/".join(f"{axis.name}N" if axis.type == "int" else axis.name for axis in fields(cls))

    @classmethod
    def parse(cls, name: str) -> Self:
        """Returns the cell that a name stands for.

        Raises:
            ValueError: it is not such a name.
        """
        parts, axes = name.split("/"), fields(cls)
        if len(parts) == len(axes):
            values = [_value(axis.name, axis.type, part) for axis, part in zip(axes, parts, strict=True)]
            if None not in values:
                return cls(*values)
        raise ValueError(f"{name!r} is not the name of a cell, which is {cls.form()}")

    @property
    def values(self) -> tuple[str | int, ...]:
        """The value on each axis, in order."""
        return tuple(value for _, value in self._values())

    def _values(self) -> Iterator[tuple[str, Any]]:
        return ((axis, getattr(self, axis)) for axis in self.__dataclass_fields__)


def _value(axis: str, kind: Any, part: str) -> Any:
    if kind != "int":
        return part or None
    number = part.removeprefix(axis)
    return int(number) if number != part and number.isdecimal() else None


_OF_A_TABLE = ("model", "dynamic", "opset")
_AFTER_CAPTURE = ("opset", "provider")
AXES: tuple[str, ...] = tuple(Cell.axes())
"""The axes of the matrix, in order."""
NUMERIC: frozenset[str] = frozenset(axis.name for axis in fields(Cell) if axis.type == "int")
"""Those of them whose values are numbers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an action or a cell did not end well.

    Attributes:
        stage: where.
        error_class: the exception's class name, or the finding's (`NameMismatch`, `StaticAxis`, `SIGSEGV`, ...).
        message: one line.
        details: the rest: a traceback, a stack dump, a list of findings.
        source: `file:line` in the user's model, if known.
        node: the FX or ONNX node, if known.
        operator: its operator, if known.
    """

    stage: Stage
    error_class: str
    message: str
    details: str = ""
    source: str | None = None
    node: str | None = None
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One execution of a file at one set of axis sizes.

    Attributes:
        sizes: axis name -> size.
        outputs: comparison of each output with eager, in order; empty when the run failed.
        error: the runtime's message, if it refused to run at these sizes.
        rejected: eager's message, if the model itself refused these sizes; nothing was run then.
        variant: which values the inputs had: empty for the ordinary ones, else `seed1`, `zeros`, `large`, ...
        ties: where the file chose otherwise among equal scores than eager, a sentence each; the outputs are then
            compared with eager that makes the file's choices there.
    """

    sizes: dict[str, int]
    outputs: tuple[OutputFacts, ...] = ()
    error: str = ""
    rejected: str = ""
    variant: str = ""
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OnnxFacts:
    """The file of a cell: where it lies (relative to the store), its sha256, size in bytes, opset and node count."""

    path: str
    sha256: str
    bytes: int
    opset: int
    nodes: int


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """What a cell cost: one of its actions, whether it was executed in this run or came from the cache."""

    mnemonic: str
    key: str
    origin: Literal["ran", "cached"]
    seconds: float


@dataclass(frozen=True, slots=True)
class Record:
    """The facts of one cell, and the verdict that they gave when the record was written.

    `runs`, `failure` and `findings` are facts; `verdict`, `stage`, `error_class`, `message`, `max_abs` and `max_rel`
    are derived from them and the run's tolerances and expectations (`verdict.judge`). `attempts` are the failures of
    earlier tries of the cell's actions: a cell that passes all the same is `flaky`. `by_distribution`, derived as well,
    says that eager differs from itself by more than the tolerance covers, so that values are not judged one by one;
    `by_ties`, that the file chose otherwise than eager among equal scores, and agrees with eager that does so too.
    `seen` has short digests of the files, folders and packages that the actions were seen to use, by short digests of
    their names: what is another there explains another outcome.
    """

    cell: Cell
    verdict: Outcome
    stage: str = ""
    error_class: str = ""
    message: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    latency_ms: LatencyFacts | None = None
    eager_ms: float | None = None
    onnx: OnnxFacts | None = None
    actions: tuple[ActionFacts, ...] = ()
    failure: Failure | None = None
    findings: tuple[Failure, ...] = ()
    runs: tuple[RunFacts, ...] = ()
    placement: dict[str, int] = field(default_factory=dict)
    log: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    attempts: tuple[Failure, ...] = ()
    by_distribution: bool = False
    by_ties: bool = False
    seen: dict[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION


def holds_for(record: Record) -> str:
    """Says for which sizes of its free axes a file holds, where those are not all: `holds for: batch <= 100`."""
    guards = record.extra.get("guards")
    return f"holds for: {', '.join(map(str, guards))}" if isinstance(guards, list | tuple) and guards else ""


def untried_sizes(record: Record) -> str:
    """Names the free axes of which no second size was compared: `not tried at another size: batch`."""
    names = record.extra.get("untried_axes")
    return (
        f"not tried at another size: {', '.join(map(str, names))}" if isinstance(names, list | tuple) and names else ""
    )
