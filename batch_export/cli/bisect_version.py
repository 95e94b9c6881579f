"""`bisect-version PACKAGE RANGE CELL`: the release of a package that broke a cell, or mended it.

A package, a range of its releases (`5.20..5.23`) and a cell's name arrive; a table of what was probed, the release at
which the cell's outcome changes and a command for it leave. Config folders and settings are those of the newest run
that has the cell, or of the one named; overrides that follow come after them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from batch_export.cli.arguments import VerbParser, add_config_dirs, add_outputs, config_words, offered_cells
from batch_export.cli.one_cell import words_for
from batch_export.config.compose import Composed, compose_and_call
from batch_export.config.run import run_spec
from batch_export.environments.releases import RANGE, releases_between
from batch_export.environments.request import replaced
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.record import Cell
from batch_export.report import run_folder as files
from batch_export.sweeps.release_probe import probe
from batch_export.sweeps.release_search import Found, Tried, search

_OURS = "batch_export"
_SHOWN_CHARACTERS = 200


def run(arguments: list[str]) -> int:
    """Searches; 0 when the release was found, 1 when the cell comes out alike at both ends, or nothing can be said."""
    parser = VerbParser(
        "bisect-version",
        "Finds the release of a package that broke a cell, or mended it: each is tried in an environment of its own "
        "over this one, by halves, and what was tried is kept.",
    )
    parser.add_argument("package", help="as pip's index names it: torch, transformers, onnxruntime, onnxscript, ...")
    parser.add_argument("range", help=f"its releases, both ends included, e.g. {RANGE}; '5.20..' to the newest")
    parser.add_argument("cell", help=f"{Cell.form()}, as `plan` and the reports name it")
    parser.add_argument("--pre", action="store_true", help="releases that are not final as well, e.g. 5.24.0rc1")
    parser.add_argument("--run", help="the run whose config folders and settings count (default: the newest with it)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found as JSON")
    add_outputs(parser)
    add_config_dirs(parser)
    asked, overrides = parser.parse_known_args(arguments)
    if asked.package.replace("-", "_").lower() == _OURS:
        raise UsageError(f"The sources of {_OURS} are searched by `git bisect`; name a package that it stands on")
    wanted = asked.json.absolute() if asked.json is not None else None
    words = words_for(asked.cell, overrides, config_words(asked), asked.run, asked.outputs)
    return compose_and_call(lambda composed: _search(composed, asked, words, wanted), words, leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    if not before:
        return sorted({one.name for one in importlib.metadata.distributions()})
    return offered_cells(before) if len(before) == 2 else ()


def _search(composed: Composed, asked: argparse.Namespace, words: Sequence[str], wanted: Path | None) -> int:
    spec = run_spec(composed.config, composed.groups, output_path=composed.run_folder, overrides=composed.overrides)
    files.require_writable(Path(spec.store_path), "store.path")
    package = asked.package
    releases = releases_between(package, asked.range, pre=asked.pre)
    most = min(len(releases), 2 + math.ceil(math.log2(len(releases))))
    _say(f"{counted(len(releases), 'release')} of {package}, {releases[0]} to {releases[-1]}; at most {most} to try")

    def attempt(version: str) -> Tried:
        tried = probe(spec, asked.cell, package, version)
        _say(f"{package} {version}: {tried.word} ({tried.seconds:.1f} s{', as kept' if _is_kept(tried) else ''})")
        return tried

    try:
        found = search(releases, attempt)
    except KeyboardInterrupt:
        _say("what was tried is kept; the same command goes on from there")
        raise
    print("\n".join(_table(found.tried)))
    print("\n".join(_conclusion(found, asked, words, list(composed.config.matrix.env))))
    if wanted is not None:
        files.write_asked(wanted, msgspec.json.format(msgspec.json.encode(found)) + b"\n", "--json")
    return 0 if found.first is not None else 1


def _table(tried: Sequence[Tried]) -> list[str]:
    rows = [("release", "outcome", "seconds", "ran", "what it says")]
    rows += [(one.version, one.word, f"{one.seconds:.1f}", str(one.ran), _short(one.said)) for one in tried]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    left, right = str.ljust, str.rjust
    places = (left, left, right, right)
    return [
        "  ".join(
            [*(place(text, width) for place, text, width in zip(places, row, widths, strict=False)), row[4]]
        ).rstrip()
        for row in rows
    ]


def _conclusion(found: Found, asked: argparse.Namespace, words: Sequence[str], asked_for: Sequence[str]) -> list[str]:
    package, cell = asked.package, asked.cell
    answers = [one for one in found.tried if one.good is not None]
    if found.first is None or found.before is None:
        if len(answers) < 2:
            left = f"{counted(len(answers), 'release')} of {package} in {asked.range} could be tried"
            return [f"{left}, which is too few to compare. Next step: give a wider range"]
        first, last = answers[0], answers[-1]
        word = "passes" if first.good else "fails"
        return [
            f"{cell} {word} with {package} {first.version} and with {last.version}, so no release between them is "
            "searched for. Next step: give a range whose ends differ"
        ]
    now = "passes" if found.first.good else "fails"
    then = "passes" if found.before.good else "fails"
    lines = [
        f"first release of {package} with which {cell} {now}: {found.first.version} ({found.before.version} {then})"
    ]
    if found.unsure:
        lines.append(f"left out between them, so that one of these may be the first: {', '.join(found.unsure)}")
    lines += [f"  {_command(words, asked_for, package, one.version)}" for one in (found.first, found.before)]
    return lines


def _command(words: Sequence[str], asked_for: Sequence[str], package: str, version: str) -> str:
    """A sweep of the cell with that release; `asked_for` is the matrix' own `env`."""
    environment = ",".join(replaced(asked_for, [f"{package}=={version}"]))
    others = [word for word in words if not word.lstrip("+").startswith("matrix.env=")]
    return shlex.join(["python", "-m", "batch_export", *others, f"matrix.env=[{environment}]"])


def _is_kept(tried: Tried) -> bool:
    return tried.good is not None and not tried.ran


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 3]}..."


def _say(text: str) -> None:
    print(text, file=sys.stderr)
