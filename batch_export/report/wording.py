"""How numbers and outcomes are spelt in tables: short, the same everywhere. Values go in, text comes out."""

from __future__ import annotations

import math

from batch_export.record import Outcome, Record

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
UNEXPECTED: tuple[Outcome, ...] = ("fail", "xpass", "flaky", "missing")


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


def cell_text(record: Record, glyphs: dict[str, str], mark: str = "") -> str:
    """Eleven characters or so: `✓ 2e-6 1.23`; a tilde before the latency says that the machine was busy.

    `mark` (`new`, `fixed`, `still`: what a comparison says) takes the place of the rest.
    """
    glyph = glyphs[record.verdict]
    if mark:
        return f"{glyph} {mark}"
    if record.verdict in ("fail", "xfail"):
        return f"{glyph} {one_line(record.stage)}".rstrip()
    if record.verdict in ("skip", "missing"):
        return f"{glyph} {record.verdict}"
    latency = record.latency_ms
    between = "~" if latency is not None and latency.contended else " "
    right = between + latency_text(latency.median) if latency is not None else ""
    return f"{glyph} {error_text(record.max_abs) or '-'}{right}"


def speed_up(record: Record) -> float | None:
    """Eager PyTorch's time over the file's, or None when one of them was not measured."""
    if record.latency_ms is None or record.eager_ms is None or record.latency_ms.median <= 0:
        return None
    return record.eager_ms / record.latency_ms.median


def one_line(text: str) -> str:
    """The text's first line that is not blank, without control characters."""
    for line in text.splitlines():
        cleaned = "".join(character if character.isprintable() else " " for character in line).strip()
        if cleaned:
            return cleaned
    return ""
