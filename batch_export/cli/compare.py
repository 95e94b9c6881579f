"""`compare BASE NEW`: what is worse, fixed, still failing. Exit code 1 when something is worse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from batch_export.cli.arguments import VerbParser, a_factor, add_outputs, offered_runs
from batch_export.report import run_folder as files
from batch_export.report.compare import Thresholds
from batch_export.report.compare_text import comparison_json, comparison_markdown, tell_comparison
from batch_export.report.runs import Side, read_side
from batch_export.sweeps.conclude import compared


def run(arguments: list[str]) -> int:
    """Compares, prints, and writes what was asked for."""
    asked = _parser().parse_args(arguments)
    base, new = read_side(asked.base, asked.outputs), read_side(asked.new, asked.outputs)
    if asked.common:
        base = _only(base, new)
    limits = Thresholds(asked.error, asked.latency, asked.size, asked.nodes, asked.export)
    comparison = compared(
        base,
        new,
        files.read_run(new.folder).spec if new.folder is not None else None,
        thresholds=limits,
        measure=not asked.no_measure,
        busy=asked.busy,
        say=lambda text: print(text, file=sys.stderr),
    )
    tell_comparison(Console(), comparison)
    if asked.markdown is not None:
        files.write_asked(asked.markdown, comparison_markdown(comparison).encode(), "--markdown")
    if asked.json is not None:
        data = msgspec.json.format(msgspec.json.encode(comparison_json(comparison))) + b"\n"
        files.write_asked(asked.json, data, "--json")
    return comparison.exit_code


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return offered_runs(before) if len(before) < 2 else ()


def _only(base: Side, new: Side) -> Side:
    there = {record.cell for record in new.records}
    return replace(base, records=tuple(record for record in base.records if record.cell in there))


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser("compare", "Compares two runs: a folder, latest, latest~1, or a baseline file each.")
    limits = Thresholds()
    parser.add_argument("base", help="the run or baseline of old")
    parser.add_argument("new", help="the new run")
    add_outputs(parser)
    parser.add_argument("--common", action="store_true", help="look only at cells that both sides have")
    parser.add_argument("--no-measure", action="store_true", help="do not measure cells again that look slower")
    parser.add_argument(
        "--busy", action="store_true", help="measure again what looks slower and was measured on a busy machine, too"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the comparison as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison as JSON")
    for name, what in (
        ("error", "growth of the largest absolute error"),
        ("latency", "slowdown that the whole confidence interval must exceed"),
        ("size", "growth of the file"),
        ("nodes", "growth of the node count"),
        ("export", "growth of the export's duration (reported, never a failure)"),
    ):
        parser.add_argument(
            f"--{name}", type=a_factor, default=getattr(limits, name), metavar="FACTOR", help=f"{what} (%(default)s)"
        )
    return parser
