"""`baseline accept [RUN] --to FILE`: keeps a run as what later ones are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_outputs, offered_runs
from batch_export.nouns import counted
from batch_export.report.baseline import baseline_of, write_baseline
from batch_export.report.runs import records_of, resolve_run
from batch_export.report.terminal import folder_text
from batch_export.runner.surroundings import circumstances
from batch_export.sweeps.conclude import run_name


def run(arguments: list[str]) -> int:
    """Writes the baseline and says how many cells it has."""
    parser = VerbParser("baseline", "Accepts a run as the baseline of later ones.")
    parser.add_argument("what", choices=["accept"])
    parser.add_argument("run", nargs="?", default="latest", help="the run (default: latest)")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the baseline, a reviewable JSON file")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    folder = resolve_run(asked.run, asked.outputs)
    commit = circumstances(folder).commit
    made_from = run_name(asked.outputs.resolve(), folder) + (f" at {commit}" if commit else "")
    baseline = baseline_of(records_of(folder), made_from)
    write_baseline(asked.to, baseline)
    print(f"{folder_text(asked.to)}: {counted(len(baseline.cells), 'cell')} of {made_from}")
    return 0


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return offered_runs(before) if before == ["accept"] else () if before else ["accept"]
