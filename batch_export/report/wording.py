"""How numbers and outcomes are spelt in tables: short, the same everywhere. Values go in, text comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from batch_export.record import Outcome, Record, holds_for, untried_sizes
from batch_export.words import one_line

GLYPHS: dict[str, str] = {
    "pass": "✓",
    "fail": "✗",
    "skip": "–",  # noqa: RUF001
    "xfail": "x",
    "xpass": "!",
    "flaky": "≈",
    "missing": "?",
}
ASCII_GLYPHS: dict[str, str] = {
    "pass": "+",
    "fail": "F",
    "skip": "-",
    "xfail": "x",
    "xpass": "!",
    "flaky": "~",
    "missing": "?",
}
STYLES: dict[str, str] = {
    "pass": "green",
    "fail": "bold red",
    "skip": "dim",
    "xfail": "yellow",
    "xpass": "bold magenta",
    "flaky": "bold yellow",
    "missing": "bold red",
}
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "skip", "xfail", "xpass", "flaky", "missing")
ACCEPTED: tuple[Outcome, ...] = ("pass", "xpass", "flaky")
"""Outcomes of cells whose numbers agree with eager's."""
UNEXPECTED: tuple[Outcome, ...] = ("fail", "xpass", "flaky", "missing")

DISTRIBUTION_MARK = "*"
DISTRIBUTION_LEGEND = f"{DISTRIBUTION_MARK} random model: judged by distribution, within eight times eager's own noise"
TIES_MARK = "="
TIES_LEGEND = (
    f"{TIES_MARK} chose otherwise than eager among equal scores; agrees with eager that makes the same choices"
)
RANGE_MARK = "^"
UNTRIED_MARK = "#"
_MOST_RANGES = 5
_MOST_TIES = 3


def legends(records: Sequence[Record]) -> list[str]:
    """Lines that explain the marks of accepted cells, no more than these records need."""
    found = [DISTRIBUTION_LEGEND] if any(record.by_distribution for record in records) else []
    found += [TIES_LEGEND] if any(record.by_ties and record.verdict in ACCEPTED for record in records) else []
    limited = _listed([record for record in records if is_restricted(record)], holds_for)
    found += [f"{RANGE_MARK} not at every size of its free axes: {limited}"] if limited else []
    untried = _listed([record for record in records if is_untried(record)], untried_sizes)
    return (
        [*found, f"{UNTRIED_MARK} of a free axis only the example's size was compared: {untried}"] if untried else found
    )


def _listed(records: Sequence[Record], sentence: Callable[[Record], str]) -> str:
    """The models and settings of records, those of which the same is said together."""
    groups: dict[str, list[str]] = {}
    for record in records:
        groups.setdefault(sentence(record), []).append(f"{record.cell.model} {record.cell.dynamic}")
    told = [f"{', '.join(dict.fromkeys(names))} {text}" for text, names in list(groups.items())[:_MOST_RANGES]]
    more = f"; and {len(groups) - _MOST_RANGES} more" if len(groups) > _MOST_RANGES else ""
    return f"{'; '.join(told)}{more}"


def is_restricted(record: Record) -> bool:
    """Whether a cell's numbers agree, and its file holds for some sizes of its free axes only."""
    return record.verdict in ACCEPTED and bool(holds_for(record))


def is_untried(record: Record) -> bool:
    """Whether a cell's numbers agree, and nothing shows that they do at another size of some free axis."""
    return record.verdict in ACCEPTED and bool(untried_sizes(record))


def by_distribution_text(record: Record) -> str:
    """What is said of a cell whose values were not judged one by one; empty for the others."""
    if not record.by_distribution:
        return ""
    return f"judged by distribution: {record.extra.get('nondeterministic', 'eager is not deterministic')}"


def by_ties_text(record: Record) -> str:
    """What is said of a cell whose file chose otherwise among equal scores; empty for the others."""
    if not record.by_ties:
        return ""
    told = list(dict.fromkeys(sentence for run in record.runs for sentence in run.ties))
    more = f"; and {len(told) - _MOST_TIES} more" if len(told) > _MOST_TIES else ""
    places = f": {'; '.join(told[:_MOST_TIES])}{more}" if told else ""
    return f"chose otherwise than eager among equal scores{places}"


def error_text(value: float | None) -> str:
    """One significant digit, at most five characters: `2e-6`, `0`, `nan`."""
    if value is None:
        return ""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def latency_text(milliseconds: float | None) -> str:
    """At most four characters: `12us`, then `1.23`, `12.3`, `123` in milliseconds, then `1.2s`, `12s`."""
    if milliseconds is None:
        return ""
    if milliseconds < 0.0995:
        return f"{milliseconds * 1000:.0f}us"
    for limit, digits in ((9.995, 2), (99.95, 1), (999.5, 0)):
        if milliseconds < limit:
            return f"{milliseconds:.{digits}f}"
    seconds = milliseconds / 1000
    return f"{seconds:.1f}s" if seconds < 9.95 else f"{seconds:.0f}s"


def latency_ms(milliseconds: float | None) -> str:
    """The same with its unit, for sentences: `12 us`, `1.23 ms`, `1.2 s`; empty when it is not known."""
    text = latency_text(milliseconds)
    for unit in ("us", "s"):
        if text.endswith(unit):
            return f"{text.removesuffix(unit)} {unit}"
    return f"{text} ms" if text else ""


def cell_text(record: Record, glyphs: dict[str, str], mark: str = "") -> str:
    """Eleven characters or so: `✓ 2e-6 1.23`; a tilde before the latency says that the machine was busy, an asterisk
    after the error that the model is random, a `=` that scores tie, a `^` that the file holds for some sizes only, a
    `#` that no other was tried.

    `mark` (`new`, `fixed`, `still`: what a comparison says) takes the place of the rest; a failure keeps its stage, and
    one that was there before has no mark.
    """
    glyph = glyphs[record.verdict]
    if record.verdict in ("fail", "xfail"):
        return " ".join(filter(None, (glyph, mark if mark != "still" else "", one_line(record.stage))))
    if mark:
        return f"{glyph} {mark}"
    if record.verdict in ("skip", "missing"):
        return f"{glyph} {record.verdict}"
    latency = record.latency_ms
    between = "~" if latency is not None and latency.contended else " "
    right = between + latency_text(latency.median) if latency is not None else ""
    random = DISTRIBUTION_MARK if record.by_distribution else ""
    tied = TIES_MARK if record.by_ties else ""
    limited = RANGE_MARK if is_restricted(record) else ""
    untried = UNTRIED_MARK if is_untried(record) else ""
    return f"{glyph} {error_text(record.max_abs) or '-'}{random}{tied}{limited}{untried}{right}"


def speed_up(record: Record) -> float | None:
    """Eager PyTorch's time over the file's, or None when one of them was not measured."""
    if record.latency_ms is None or record.eager_ms is None or record.latency_ms.median <= 0:
        return None
    return record.eager_ms / record.latency_ms.median
