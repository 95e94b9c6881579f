"""What all units of a run share, and how whoever works on one says how far it is. Plain values, no behaviour."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batch_export.action import Mnemonic
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import PlanSettings
from batch_export.record import Cell, Failure
from batch_export.runner.launcher import Launcher
from batch_export.runner.results import Results, View
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import RunnerSpec
from batch_export.store import Store

Settle = Callable[[PlannedCell, View, str, Failure | None], bool]
"""`settle(cell, results, log, failure)` records the cell if nothing is left to do for it, or a failure is given, and
says whether it did."""

Watch = Callable[[str, Cell, Mnemonic | Literal[""]], None]
"""`watch(unit, cell, mnemonic)` is told where the unit's child is, see `Reporter.working`."""


def ignore(unit: str, cell: Cell, mnemonic: str) -> None:
    """A `Watch` for whoever does not want to know."""


@dataclass(frozen=True, slots=True)
class Site:
    """What all units of a run share: where children come from, what they are told, what is known, and when to stop.

    Attributes:
        warn: told of what goes wrong without harm to a cell.
    """

    store: Store
    launcher: Launcher
    toolchain: Toolchain
    settings: PlanSettings
    runner: RunnerSpec
    logs: Path
    stages: Mapping[str, str]
    results: Results
    stop: threading.Event
    warn: Callable[[str], None]
