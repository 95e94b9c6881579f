"""Spans of time as people write them: `90s`, `10m`, `1.5h`, `30d`, `2w`. Texts in, seconds out."""

from __future__ import annotations

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)


def span(text: str) -> float | None:
    """Returns the seconds; None when it is no span."""
    found = _SPAN.fullmatch(text.strip())
    return float(found.group(1)) * _SECONDS[found.group(2).lower()] if found else None


def seconds_of(text: str) -> float:
    """Returns the seconds of a span, of `0` and of nothing.

    Raises:
        ValueError: it is none.
    """
    seconds = 0.0 if text.strip() in ("", "0") else span(text)
    if seconds is None:
        raise ValueError(f"{text!r} is not a span of time; write a number with s, m, h, d or w, such as 10m")
    return seconds
