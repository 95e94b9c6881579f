"""Counts of a run and the exit code that follows from them. Records and planned cells go in, plain data comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from batch_export.judge.vote import Disagreement
from batch_export.nouns import counted
from batch_export.plan.matrix import PlannedCell
from batch_export.record import SCHEMA_VERSION, Cell, Record
from batch_export.report.disagreements import plain
from batch_export.report.wording import ACCEPTED, OUTCOMES, UNEXPECTED, speed_up
from batch_export.words import one_line


@dataclass(frozen=True, slots=True)
class Counts:
    """What the records cannot tell about a run.

    Attributes:
        wall_s: seconds from the start of the run to its end.
        ran, cached: actions that were executed in this run, and actions served from the cache.
        rerun_failures: actions that failed in a way that is never cached, so that they are executed in every run.
    """

    wall_s: float = 0.0
    ran: int = 0
    cached: int = 0
    rerun_failures: int = 0
    interrupted: bool = False

    def uncached_text(self) -> str:
        """`, 2 failures of a kind that is never cached`; empty where there are none."""
        return f", {counted(self.rerun_failures, 'failure')} of a kind that is never cached" * bool(self.rerun_failures)


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run came to.

    Attributes:
        outcomes: how many cells have each outcome; they add up to `planned`.
        speed_up: median over passing cells of eager's time over the file's.
        skip_reasons: how many cells were skipped for each reason, most first.
        xfail_reasons: how many cells failed as declared for each reason, most first.
        allow_flaky: whether cells that passed on a retry only are as expected (`runner.allow_flaky`).
        stale_expectations: sentences about expectations that match nothing, or nothing that fails.
        stale_exclusions: sentences about entries of `matrix.exclude` that match nothing.
        disagreements: files that not every provider makes the same of, and what the vote says (`judge.vote`).
        by_distribution: cells that passed and whose model is random, see `Record.by_distribution`.
        by_ties: cells that passed and chose otherwise among equal scores, see `Record.by_ties`.
        comparison: with the baseline, as plain data (`compare_text.comparison_json`); None without one.
    """

    planned: int
    outcomes: dict[str, int]
    counts: Counts
    command: str
    speed_up: float | None = None
    skip_reasons: dict[str, int] = field(default_factory=dict)
    xfail_reasons: dict[str, int] = field(default_factory=dict)
    allow_flaky: bool = False
    stale_expectations: tuple[str, ...] = ()
    stale_exclusions: tuple[str, ...] = ()
    by_distribution: int = 0
    by_ties: int = 0
    disagreements: tuple[Disagreement, ...] = ()
    comparison: dict[str, Any] | None = None

    @property
    def unexpected(self) -> int:
        """Cells that did not end as expected."""
        return sum(self.outcomes[outcome] for outcome in UNEXPECTED if not (outcome == "flaky" and self.allow_flaky))

    @property
    def nothing_tested(self) -> str:
        """The sentence about a run of which every cell was skipped; empty when at least one was not."""
        if not self.planned or self.outcomes["skip"] < self.planned:
            return ""
        skipped = "the only cell was" if self.planned == 1 else f"all {self.planned} cells were"
        return f"nothing was tested: {skipped} skipped"

    @property
    def exit_code(self) -> int:
        """130 when interrupted, 1 with unexpected results or when nothing was tested, otherwise 0."""
        if self.counts.interrupted:
            return 130
        return 1 if self.unexpected or self.nothing_tested else 0

    def as_json(self) -> dict[str, Any]:
        """The content of summary.json; see docs/results.md."""
        return {
            "schema_version": SCHEMA_VERSION,
            "planned": self.planned,
            **{outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "wall_s": round(self.counts.wall_s, 3),
            "cached": self.counts.cached,
            "ran": self.counts.ran,
            "rerun_failures": self.counts.rerun_failures,
            "interrupted": self.counts.interrupted,
            "speed_up": self.speed_up,
            "command": self.command,
            "skip_reasons": self.skip_reasons,
            "xfail_reasons": self.xfail_reasons,
            "stale_expectations": list(self.stale_expectations),
            "stale_exclusions": list(self.stale_exclusions),
            "nothing_tested": bool(self.nothing_tested),
            "by_distribution": self.by_distribution,
            "by_ties": self.by_ties,
            "disagreements": plain(self.disagreements),
            "comparison": self.comparison,
        }


def complete(planned: Sequence[PlannedCell], records: Iterable[Record]) -> tuple[Record, ...]:
    """Returns one record per planned cell, in the plan's order: skips have their reason, and cells without a record are
    `missing`."""
    by_cell: dict[Cell, Record] = {record.cell: record for record in records}
    return tuple(by_cell.get(item.cell) or _without_record(item) for item in planned)


def completed(planned: Sequence[PlannedCell], records: Iterable[Record]) -> Iterator[Record]:
    """Yields what `complete` returns, one at a time; the records are in the plan's order."""
    left = iter(records)
    found = next(left, None)
    for item in planned:
        if found is not None and found.cell == item.cell:
            yield found
            found = next(left, None)
        else:
            yield _without_record(item)


def summarise(records: Sequence[Record], counts: Counts, command: str = "", *, allow_flaky: bool = False) -> Summary:
    """Counts the records of a completed run (see `complete`)."""
    outcomes = Counter(record.verdict for record in records)
    ratios = [ratio for record in records if record.verdict == "pass" and (ratio := speed_up(record)) is not None]
    reasons = Counter(one_line(record.message) for record in records if record.verdict == "skip")
    expected = Counter(_expectation(record) for record in records if record.verdict == "xfail")
    return Summary(
        planned=len(records),
        outcomes={outcome: outcomes[outcome] for outcome in OUTCOMES},
        counts=counts,
        command=command,
        speed_up=round(median(ratios), 3) if ratios else None,
        skip_reasons=dict(reasons.most_common()),
        xfail_reasons=dict(expected.most_common()),
        allow_flaky=allow_flaky,
        by_distribution=sum(record.by_distribution and record.verdict in ACCEPTED for record in records),
        by_ties=sum(record.by_ties and record.verdict in ACCEPTED for record in records),
    )


def _expectation(record: Record) -> str:
    reason, link = record.extra.get("reason", ""), record.extra.get("link", "")
    return one_line(f"{reason} ({link})" if link else str(reason or record.message))


def _without_record(item: PlannedCell) -> Record:
    if item.skip:
        return Record(cell=item.cell, verdict="skip", message=item.skip)
    return Record(cell=item.cell, verdict="missing", message="the run ended before this cell had a record")
