"""How latency is measured, and what came of it: frozen plain data, read by the runtime and by records alike."""

from __future__ import annotations

from dataclasses import dataclass


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
class MeasureSpec:
    """Latency: `budget_s` seconds at most a cell.

    `refresh` is `missing` (use the cache), `contended` (measure again what was measured on a busy machine) or `always`.
    """

    enabled: bool = True
    budget_s: float = 5.0
    min_s: float = 0.2
    min_runs: int = 20
    threads: int = 1
    refresh: str = "missing"
