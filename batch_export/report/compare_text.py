"""A comparison as Markdown, as plain data and as lines on a terminal. A `Comparison` goes in, text comes out."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from batch_export.nouns import counted
from batch_export.record import Cell
from batch_export.report.compare import KINDS, SUSPECTED, TITLES, WORSE, Change, Comparison, Kind
from batch_export.report.markdown import escape
from batch_export.report.redact import shorten

COMPARISON_VERSION = 1
"""Raised when the JSON of a comparison changes incompatibly. 1 (2026-11): first."""

_MOST_LINES = 30
_QUIET: tuple[Kind, ...] = ("new",)
_FAILING: tuple[Kind, ...] = ("broke", "still")


def comparison_markdown(comparison: Comparison, *, level: int = 1) -> str:
    """The whole comparison; long lists are folded."""
    mark = "#" * level
    lines = [
        f"{mark} {escape(comparison.story())}",
        "",
        f"{escape(shorten(comparison.new))} against {escape(shorten(comparison.base))}, "
        f"{counted(comparison.common, 'cell')} in common.",
        "",
    ]
    if comparison.contended:
        lines += [f"{not_compared(comparison)}.", ""]
    if comparison.of("busy"):
        lines += [f"What decides: `{deciding(comparison)}`", ""]
    for kind in KINDS:
        changes = comparison.of(kind)
        if not changes:
            continue
        lines += [f"{mark}# {TITLES[kind]} ({len(changes)})", ""]
        if len(changes) > _MOST_LINES or kind in _QUIET:
            lines += ["<details><summary>Show</summary>", "", *map(_item, changes), "", "</details>", ""]
        else:
            lines += [*map(_item, changes), ""]
    return "\n".join(lines)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data; what summary.json and `compare --json` hold."""
    return {
        "schema_version": COMPARISON_VERSION,
        "base": shorten(comparison.base),
        "new": shorten(comparison.new),
        "story": comparison.story(),
        "worse": comparison.worse,
        "common": comparison.common,
        "contended": comparison.contended,
        "latency_ratio": None if comparison.latency is None else round(comparison.latency, 4),
        "counts": {kind: len(comparison.of(kind)) for kind in KINDS},
        "changes": [
            {"kind": change.kind, "cell": change.cell.name, "text": shorten(change.text)}
            for change in comparison.changes
        ],
    }


def tell_comparison(
    console: Console,
    comparison: Comparison,
    most: int = _MOST_LINES,
    *,
    told: Collection[Cell] = (),
    brief: bool = False,
) -> None:
    """Prints what changed, the worst first, and the story last.

    Args:
        console: where to.
        comparison: what to tell.
        most: lines of a kind.
        told: cells whose failures were told already; what is said of their verdicts is left out.
        brief: leaves out what is neither worse nor doubtful.
    """
    for kind in KINDS:
        changes: Sequence[Change] = [
            change for change in comparison.of(kind) if kind not in _FAILING or change.cell not in told
        ]
        if not changes or (brief and kind not in (*WORSE, *SUSPECTED)):
            continue
        style = "bold red" if kind in WORSE else "green" if kind == "fixed" else "yellow"
        console.print(Text(f"{TITLES[kind]} ({len(changes)})", style))
        for change in changes[:most] if kind not in _QUIET else ():
            console.print(Text(f"  {change.cell.name}: {change.text}"), soft_wrap=True)
        if kind not in _QUIET and len(changes) > most:
            console.print(Text(f"  ... and {len(changes) - most} more", "dim"))
        if kind == "busy":
            console.print(Text(f"  what decides: {deciding(comparison)}", "dim"), soft_wrap=True)
    if comparison.contended:
        console.print(Text(not_compared(comparison), "dim"))
    console.print(Text(f"against {shorten(comparison.base)}: {comparison.story()}", "bold"), soft_wrap=True)


def not_compared(comparison: Comparison) -> str:
    """Says of how many cells the latency was not compared; empty when it was of all."""
    if not comparison.contended:
        return ""
    return f"Latency of {counted(comparison.contended, 'cell')} is not compared: the machine was busy"


def deciding(comparison: Comparison) -> str:
    """The command line that measures again what was measured on a busy machine."""
    sides = (shorten(comparison.base), shorten(comparison.new))
    return shlex.join(["python", "-m", "batch_export", "compare", *sides, "--busy"])


def _item(change: Change) -> str:
    return f"- `{change.cell.name}` {escape(shorten(change.text))}"
