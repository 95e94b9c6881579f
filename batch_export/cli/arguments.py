"""Arguments of verbs: argparse, whose complaints become a `UsageError` in one sentence; and what a shell may offer
for those that name a run or a cell.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from batch_export.errors import BatchExportError, UsageError
from batch_export.report import run_folder
from batch_export.report.runs import all_runs, resolve_run

SHOW_PARSER = "--show-parser"
"""The word at which a verb's parser ends the verb by raising itself, for whoever wants to know its flags."""


class ShownParser(Exception):  # noqa: N818  # nothing went wrong
    """Carries the parser of a verb."""

    def __init__(self, parser: VerbParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


class _Show(argparse.Action):
    """Raises the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        assert isinstance(parser, VerbParser)
        raise ShownParser(parser)


class VerbParser(argparse.ArgumentParser):
    """A parser for one verb; `--help` prints and ends with exit code 0 as usual."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(prog=f"python -m batch_export {verb}", description=description, allow_abbrev=False)
        self._verb = verb
        self.add_argument(SHOW_PARSER, action=_Show, nargs=0, help=argparse.SUPPRESS)

    def flags(self) -> dict[str, argparse.Action]:
        """Returns the flags that help tells of, with what each takes."""
        shown = [one for one in self._actions if one.help is not argparse.SUPPRESS]
        return {flag: action for action in shown for flag in action.option_strings}

    def error(self, message: str) -> NoReturn:
        """Raises instead of ending the process."""
        raise UsageError(f"{self._verb}: {message}. Next step: `{self.prog} --help`")


def a_factor(text: str) -> float:
    """Returns a factor of growth that a flag gives: 1 or more; argparse says what else there is."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not factor >= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor of growth, which is 1 or more")
    return factor


def a_count(text: str) -> int:
    """Returns a number of things that a flag gives: 1 or more; argparse says what else there is."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return count


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Adds `--outputs`, where `latest` and the history are looked for."""
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")


def add_config_dirs(parser: argparse.ArgumentParser) -> None:
    """Adds `--config-dir`, which may stand anywhere and as often as is wanted; see `config_words`."""
    parser.add_argument(
        *("--config-dir", "-cd"),
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with configs of your own, which come before the shipped ones; may be given several times",
    )


def config_words(asked: argparse.Namespace) -> list[str]:
    """Returns the config folders that were given, as words of a command line."""
    return [word for folder in asked.config_dir for word in ("--config-dir", folder)]


def offered_runs(before: Sequence[str]) -> list[str]:
    """Returns the runs that a command line may name; `--outputs` among the words before counts."""
    outputs = _outputs(before)
    return ["latest", "latest~1", *(str(folder) for folder in reversed(all_runs(outputs)))]


def offered_cells(before: Sequence[str]) -> list[str]:
    """Returns the cells of the run that the words before name, by default the newest; none when it cannot be read."""
    named = [after for flag, after in pairwise(before) if flag == "--run"]
    run = named[-1] if named else "latest"
    try:
        return [planned.cell.name for planned in run_folder.read_run(resolve_run(run, _outputs(before))).planned]
    except (BatchExportError, OSError):
        return []


def _outputs(before: Sequence[str]) -> Path:
    named = [after for flag, after in pairwise(before) if flag == "--outputs"]
    return Path(named[-1] if named else "outputs")
