"""`baseline accept [RUN] --to FILE`: keeps a run as what later ones are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_outputs, offered_runs
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.record import Record
from batch_export.report.baseline import baseline_of, write_baseline
from batch_export.report.runs import records_of, resolve_run
from batch_export.report.terminal import folder_text
from batch_export.report.wording import OUTCOMES, UNEXPECTED
from batch_export.runner.surroundings import circumstances
from batch_export.sweeps.conclude import run_name

_MOST_NAMED = 5


def run(arguments: list[str]) -> int:
    """Writes the baseline and says how many cells it has."""
    parser = VerbParser("baseline", "Accepts a run as the baseline of later ones.")
    parser.add_argument("what", choices=["accept"])
    parser.add_argument("run", nargs="?", default="latest", help="the run (default: latest)")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the baseline, a reviewable JSON file")
    parser.add_argument("--with-failures", action="store_true", help="accept cells that did not end as expected, too")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    folder = resolve_run(asked.run, asked.outputs)
    commit = circumstances(folder).commit
    made_from = run_name(asked.outputs.resolve(), folder) + (f" at {commit}" if commit else "")
    records = records_of(folder)
    bad = [record for record in records if record.verdict in UNEXPECTED]
    if bad and not asked.with_failures:
        raise UsageError(
            f"{folder_text(folder)} has {counted(len(bad), 'cell')} that did not end as expected ({_named(bad)}); in a "
            "baseline they would be no news any more. Next step: mend them, or accept them with --with-failures"
        )
    baseline = baseline_of(records, made_from)
    write_baseline(asked.to, baseline)
    counts = Counter(cell.verdict for cell in baseline.cells.values())
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    print(f"{folder_text(asked.to)}: {counted(len(baseline.cells), 'cell')} of {made_from}: {said}")
    if bad:
        print(f"accepted as they are: {_named(bad)}")
    return 0


def _named(records: Sequence[Record]) -> str:
    more = f" and {len(records) - _MOST_NAMED} more" if len(records) > _MOST_NAMED else ""
    return ", ".join(f"{record.verdict} {record.cell.name}" for record in records[:_MOST_NAMED]) + more


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return offered_runs(before) if before == ["accept"] else () if before else ["accept"]
