"""`expect suggest [RUN]`: the entries of `conf/expect` that declare today's failures, as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_outputs, offered_runs
from batch_export.report import run_folder as files
from batch_export.report.expectations import suggest, yaml_text
from batch_export.report.runs import records_of, resolve_run


def run(arguments: list[str]) -> int:
    """Prints the entries, or writes them to a file."""
    parser = VerbParser("expect", "Suggests expectations for the failures of a run; correct their reasons.")
    parser.add_argument("what", choices=["suggest"])
    parser.add_argument("run", nargs="?", default="latest", help="the run (default: latest)")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write there instead of printing")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    text = yaml_text(suggest(records_of(resolve_run(asked.run, asked.outputs))))
    if asked.to is None:
        print(text, end="")
    else:
        files.write_asked(asked.to, text.encode(), "--to")
    return 0


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return offered_runs(before) if before == ["suggest"] else () if before else ["suggest"]
