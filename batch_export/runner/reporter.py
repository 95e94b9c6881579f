"""What the runner tells whoever is watching. Records and short texts go out; nothing comes back or is printed here.

The implementations are in `report/progress.py`; tests pass one that remembers what it was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from batch_export.record import Cell, Record


@dataclass(frozen=True, slots=True)
class Lane:
    """Units that are about to run, `workers` at once.

    Attributes:
        units: names and the seconds that each took when it last ran (None: it never did), in starting order.
    """

    units: tuple[tuple[str, float | None], ...]
    workers: int


class Reporter(Protocol):
    """Called from the runner's supervising threads, one call at a time or many at once: implementations lock."""

    def started(self, cells: Sequence[Cell]) -> None:
        """The run begins; `cells` are all that a record will come for."""

    def scheduled(self, lanes: Sequence[Lane]) -> None:
        """What is left to run, lane after lane; it takes the place of what was said before. For estimates."""

    def group_started(self, name: str) -> None:
        """A unit of work begins in a child, e.g. `bert_tiny/full/core`."""

    def working(self, name: str, cell: Cell, mnemonic: str) -> None:
        """The unit's child is at this cell, and executes this action; an empty one: it looks results up, or waits for
        another unit that makes the same.
        """

    def group_finished(self, name: str) -> None:
        """Nothing of that unit runs any more, however it ended."""

    def verified(self, cell: Cell) -> None:
        """A cell ended well as far as it came, and waits for being timed; its record comes later."""

    def record(self, record: Record) -> None:
        """A cell has its record (or its record came from the cache)."""

    def message(self, text: str) -> None:
        """One line for the reader, such as what an exclusive lane waits for."""

    def finished(self) -> None:
        """No more calls follow; whatever was drawn is left in a final state."""
