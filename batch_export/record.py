"""Cells and what became of them: the facts of one cell as one JSON line, and the words for outcomes.

Frozen plain data; `schema_version` is in every stored record. Verdicts are derived from facts (`verdict.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1
"""Raised when a record changes incompatibly. 1 (2026-11): first."""

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
UNCACHED_STAGES: frozenset[str] = frozenset({"crash", "timeout", "memory", "environment"})
"""Failures that say something about the machine and the moment: recorded, never served from the cache."""
RETRIED_STAGES: frozenset[str] = frozenset({"crash", "timeout", "memory"})
"""Failures after which an action is tried again, as often as `runner.retries` says."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One point of the matrix."""

    model: str
    dynamic: str
    opset: int
    provider: str
    exporter: str

    @property
    def name(self) -> str:
        """`model/dynamic/opset20/provider/exporter`, as it is typed on the command line."""
        return f"{self.model}/{self.dynamic}/opset{self.opset}/{self.provider}/{self.exporter}"


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
class OutputFacts:
    """How one output of one run compares with eager.

    Attributes:
        name: the ONNX output's name.
        expected_dtype, actual_dtype: numpy names (`float32`, `bfloat16`, ...).
        expected_shape, actual_shape: sizes.
        hull: upper hull of the points `(|expected|, |error|)` over elements that are finite on both sides, by rising
            `|expected|`: enough to judge `|error| <= atol + rtol * |expected|` for any tolerance.
        max_abs: largest `|error|`, None when dtype or shape differ or nothing is finite.
        max_rel: largest `|error| / max(|expected|, smallest normal of the dtype)`, None likewise.
        non_finite_mismatches: elements that are NaN or Inf (sign included) on one side only.
        unequal: elements that differ at all (for integers, booleans and strings: exactly).
        count: elements compared.
        worst_index: index of the element with the largest `|error|`.
        noise: largest `|difference|` between two eager runs; above zero means that eager is not deterministic.
        worst_values: eager's value and the file's at `worst_index`, as text (JSON has no NaN).
        decades: how many elements have an error of 10^d to 10^(d+1), as `(d, count)` by rising d; equal ones in none.
        max_ulp: largest distance in units in the last place, for floating-point dtypes that differ somewhere.
        outside: elements beyond the default tolerance of their dtype, non-finite mismatches included.
        rounding_hull: as `hull`, of eager against eager in float64: ordinary rounding. Empty without an oracle.
        oracle_hull: as `hull`, of the file against eager in float64.
        has_oracle: whether eager ran in float64 for this output.
    """

    name: str
    expected_dtype: str
    actual_dtype: str
    expected_shape: tuple[int, ...]
    actual_shape: tuple[int, ...]
    hull: tuple[tuple[float, float], ...] = ()
    max_abs: float | None = None
    max_rel: float | None = None
    non_finite_mismatches: int = 0
    unequal: int = 0
    count: int = 0
    worst_index: tuple[int, ...] | None = None
    noise: float = 0.0
    worst_values: tuple[str, str] | None = None
    decades: tuple[tuple[int, int], ...] = ()
    max_ulp: float | None = None
    outside: int = 0
    rounding_hull: tuple[tuple[float, float], ...] = ()
    oracle_hull: tuple[tuple[float, float], ...] = ()
    has_oracle: bool = False


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One execution of a file at one set of axis sizes.

    Attributes:
        sizes: axis name -> size.
        outputs: comparison of each output with eager, in order; empty when the run failed.
        error: the runtime's message, if it refused to run at these sizes.
        rejected: eager's message, if the model itself refused these sizes; nothing was run then.
        variant: which values the inputs had: empty for the ordinary ones, else `seed1`, `zeros`, `large`, ...
    """

    sizes: dict[str, int]
    outputs: tuple[OutputFacts, ...] = ()
    error: str = ""
    rejected: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True)
class LatencyFacts:
    """Milliseconds of one inference; `contended` when wall time exceeded CPU time by more than a tenth."""

    median: float
    p95: float
    ci_low: float
    ci_high: float
    runs: int
    contended: bool


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
    earlier tries of the cell's actions: a cell that passes all the same is `flaky`.
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
    schema_version: int = SCHEMA_VERSION
