"""Which other examples are not worth a capture, since what it gives would be refused as an earlier one was.

Arrives: programs that were refused because they are not the model beyond some of their guards. Leaves: whether one
captured from other sizes takes the same way to such a guard, or whether both ways at one line were refused. Nothing is
captured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from batch_export.exporter.capture import guard_points
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guard_symbols import Symbols
from batch_export.exporter.capture.guards import Guard, environment_of


@dataclass(frozen=True, slots=True)
class Refused:
    """A program that was refused.

    Attributes:
        conditions: what torch guarded on, in the order in which the model asked.
        harmful: the guards beyond which the program is not the model.
        symbols: torch's symbols in terms of the axes.
        sizes: of the axes in the example that it was captured from.
    """

    conditions: tuple[object, ...]
    harmful: tuple[Guard, ...]
    symbols: Symbols
    sizes: Mapping[str, int]

    def is_repeated_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether a capture at other sizes comes to one of the harmful guards, and to the same answer there."""
        harmful = [guard.expression for guard in self.harmful]
        for condition in self.conditions:
            if not guard_points.all_hold([condition], self.symbols, sizes):
                return False
            if condition in harmful:
                return True
        return False

    def is_opposed_by(self, other: Refused) -> bool:
        """Whether another program was refused for what the model asks at a line where this one has the other answer."""
        lines = {guard.source for guard in other.harmful if guard.source}
        asked = [guard.expression for guard in self.harmful if guard.source in lines]
        return any(not guard_points.all_hold([one], self.symbols, other.sizes) for one in asked)


def refused_for(captured: Captured, example: Mapping[str, int]) -> Iterator[Refused]:
    """Yields what is to be known of a program that is refused; nothing where torch's environment is not at hand.

    Args:
        captured: the program, its guards tried.
        example: variables of its axes -> their sizes in the example.
    """
    environment, symbols = environment_of(captured.traced), captured.symbols
    if environment is None or symbols is None:
        return
    conditions = tuple(dict.fromkeys(guard.expr for guard in environment.guards))
    sizes = {symbols.text(name): size for name, size in example.items()}
    yield Refused(conditions, tuple(captured.harmful), symbols, sizes)


def is_in_vain(refused: Sequence[Refused], sizes: Mapping[str, int]) -> bool:
    """Whether a program captured at these sizes would be refused, too."""
    if any(one.is_repeated_at(sizes) for one in refused):
        return True
    return any(one.is_opposed_by(other) for one in refused for other in refused if one is not other)
