"""Arguments of verbs: argparse, whose complaints become a `UsageError` in one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from batch_export.errors import UsageError


class VerbParser(argparse.ArgumentParser):
    """A parser for one verb; `--help` prints and ends with exit code 0 as usual."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(prog=f"python -m batch_export {verb}", description=description, allow_abbrev=False)
        self._verb = verb

    def error(self, message: str) -> NoReturn:
        """Raises instead of ending the process."""
        raise UsageError(f"{self._verb}: {message}. Next step: `{self.prog} --help`")


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Adds `--outputs`, where `latest` and the history are looked for."""
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
