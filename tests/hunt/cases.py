"""The cases at which a generated program is judged: its sizes, with ordinary and with special values."""

from __future__ import annotations

from hunt import values
from hunt.generate import Hunted
from hunt.judge import Case

_AT_OTHER_SIZES = ("special", "limits")


def cases(hunted: Hunted) -> list[Case]:
    """The example first."""
    found = []
    for place, sizes in enumerate(hunted.assignments):
        if place and not sizes:
            break
        modes = values.MODES if place == 0 else ("plain", _AT_OTHER_SIZES[place % 2])
        for mode in modes:
            found.append(Case(values.case(hunted.program, sizes, mode, hunted.seed), sizes, mode))
    return found
