"""Flags of a sweep that are not Hydra's: `-q` prints only what is not as expected, `--last-failed[=RUN]` runs it again.

The words of a command line without a verb arrive; what is left for Hydra, and what the flags mean, leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batch_export.cli.known import BRIEF, LAST_FAILED, is_last_failed

if TYPE_CHECKING:
    from batch_export.record import Cell


@dataclass(frozen=True, slots=True)
class SweepFlags:
    """What was asked for beside the configuration.

    Attributes:
        words: overrides and Hydra's flags.
        brief: only what is not as expected is told.
        only: the cells to run; all when None.
        nothing_to_do: the sentence about a last run without a failure; empty otherwise.
        exit_code: what is returned with it.
    """

    words: tuple[str, ...]
    brief: bool = False
    only: frozenset[Cell] | None = None
    nothing_to_do: str = ""
    exit_code: int = 0

    @property
    def typed(self) -> tuple[str, ...]:
        """The words as a command line that does the same."""
        return self.words if self.only is None else (*self.words, LAST_FAILED[0])


def taken_out(arguments: Sequence[str]) -> SweepFlags:
    """Parts the flags of a sweep from the rest.

    With `--last-failed` and nothing else the last run's own command line is taken up again, in the folder that it was
    started in. `--last-failed=RUN` names the run: a folder, `latest~1`, or these in another folder of runs.

    Raises:
        UsageError: there is no last run, or no such one.
    """
    words = tuple(word for word in arguments if word not in BRIEF and not is_last_failed(word))
    brief = any(word in BRIEF for word in arguments)
    asked = [word.partition("=")[2] for word in arguments if is_last_failed(word)]
    if not asked:
        return SweepFlags(words, brief)
    from batch_export.cli import last_failed  # lazy: it reads folders of runs, and no other flag needs them

    again = last_failed.run_again(asked[-1], words)
    return SweepFlags(again.words, brief, again.cells, again.sentence, again.exit_code)
