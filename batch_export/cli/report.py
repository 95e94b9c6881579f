"""`report RUN [--format ...]`: an old run judged again; all its files anew, or one format to a file or the terminal.

`report merge RUN RUN --to FOLDER` puts shards together, `report world RUN` makes the table of architectures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from batch_export.cli.arguments import VerbParser, add_outputs, offered_runs
from batch_export.cli.report_many import merge, world
from batch_export.errors import UsageError
from batch_export.record import Record
from batch_export.report import run_folder as files
from batch_export.report.compare import Comparison
from batch_export.report.disagreements import disagreements
from batch_export.report.expectations import stale, stale_exclusions
from batch_export.report.formats import FORMATS, REPORTS, SUMMARIES, Subject, write
from batch_export.report.runs import Side, read_side, records_of, resolve_run
from batch_export.report.since import since_when
from batch_export.report.summary import summarise
from batch_export.report.terminal import tell
from batch_export.spec import RunSpec
from batch_export.sweeps.conclude import compared
from batch_export.words import nearest

_WORDS = {"merge": merge, "world": world}


def run(arguments: list[str]) -> int:
    """Renders; the exit code is that of the run's results, or of the rendering where a file was asked for."""
    if not arguments:
        raise UsageError("report takes the folder of one run, e.g. `report outputs/latest`")
    if arguments[0] in _WORDS:
        return _WORDS[arguments[0]](arguments[1:])
    try:
        asked = _parser().parse_args(arguments)
        folder = resolve_run(asked.run, asked.outputs)
    except UsageError:
        _refuse_mistyped(arguments[0])
        raise
    form = asked.format or _meant(asked.output)
    stored = files.read_run(folder)
    records = records_of(folder)
    comparison = _comparison(asked.baseline, asked.outputs, folder, records, stored.spec)
    summary = replace(
        summarise(records, files.read_counts(folder), stored.command, allow_flaky=stored.spec.runner.allow_flaky),
        stale_expectations=stale(stored.spec, records),
        stale_exclusions=stale_exclusions(stored.spec),
        disagreements=disagreements(records),
        comparison=files.read_comparison(folder),
    )
    subject = Subject(folder, records, summary, comparison, since=since_when(folder, records))
    if asked.format is None:
        write(subject, (*SUMMARIES, *REPORTS))
    _one(form, asked.output, subject, brief=asked.quiet)
    if asked.output is not None and not asked.exit_code:
        return 0
    return 1 if summary.unexpected or summary.nothing_tested else 0


def _refuse_mistyped(word: str) -> None:
    """Says so where what was taken for a run is nearly a word of `report`.

    Raises:
        UsageError: it is.
    """
    near = nearest(word, _WORDS, 1)
    if near and not Path(word).expanduser().exists():
        raise UsageError(
            f"report: {word!r} is neither the folder of a run nor one of {', '.join(_WORDS)}. "
            f"Next step: did you mean `report {near[0]}`?"
        )


def _meant(output: Path | None) -> str:
    """The format that a file's name asks for; the table for people where it has no suffix.

    Raises:
        UsageError: no format is written to files that end so.
    """
    if output is None or not output.suffix:
        return "text"
    by_suffix = {Path(form.file).suffix: name for name, form in reversed(FORMATS.items())}
    if output.suffix.lower() not in by_suffix:
        raise UsageError(
            f"-o {output}: no report ends in {output.suffix}; there are {', '.join(sorted(by_suffix))}. "
            f"Next step: name such a file, or the format with --format {'|'.join(FORMATS)}"
        )
    return by_suffix[output.suffix.lower()]


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else offered_runs(before)


def _one(name: str, output: Path | None, subject: Subject, *, brief: bool) -> None:
    form = FORMATS[name]
    if output is not None:
        files.write_asked(output, form.render(replace(subject, place=output.absolute().parent)), "-o")
    elif not form.shown:
        write(subject, [name])
        print(subject.folder / form.file)
    elif name == "text":  # as wide and as coloured as the terminal is
        tell(
            Console(),
            subject.records,
            subject.summary,
            subject.folder,
            subject.comparison,
            brief=brief,
            since=subject.since,
        )
    else:
        sys.stdout.write(form.render(subject).decode())


def _comparison(
    word: str, outputs: Path, folder: Path, records: tuple[Record, ...], spec: RunSpec
) -> Comparison | None:
    """With the baseline named, or with the file that the run itself was compared with, if that is still there."""
    named = bool(word)
    if not named and spec.baseline and not spec.baseline.startswith("latest"):
        word = spec.baseline
    if not word:
        return None
    try:
        base = read_side(word, outputs)
    except UsageError:
        if named:
            raise
        return None
    return compared(base, Side(folder.name, records, folder), spec, measure=False)


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser("report", "Judges an old run again and renders it; without --format all its files anew.")
    parser.add_argument("run", help="the run's folder, latest, or latest~1")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), help="one format only (default with -o: what the file's ending says)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to (default: the terminal)")
    parser.add_argument("-q", "--quiet", action="store_true", help="on the terminal, only what is not as expected")
    parser.add_argument(
        "--exit-code", action="store_true", help="with -o too, end with the exit code of the run's results"
    )
    parser.add_argument("--baseline", default="", metavar="RUN|FILE", help="compare with a run or a baseline file")
    add_outputs(parser)
    return parser
