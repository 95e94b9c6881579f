"""What a capture made, and what its user should know of it.

Arrives: an exported program with what the capture found out about it. Leaves: the answers that the rest of the exporter
needs (restrictions, free axes), and warnings. Nothing is captured here.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch

from batch_export.calling.users_line import users_level
from batch_export.errors import ExportWarning
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.block_expansion import expanded
from batch_export.exporter.capture.blocks import Block
from batch_export.exporter.capture.guard_symbols import Symbols
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.strategies import TRACE, Assumption


@dataclass(slots=True)
class Attempt:
    """One strategy that was tried: its name, how long it took in seconds, and why it failed (empty when it did not)."""

    strategy: str
    seconds: float
    error: str = ""
    exception: BaseException | None = None


@dataclass(slots=True)
class Captured:
    """What capture made.

    Attributes:
        traced: torch's exported program, in which one node may stand for a whole block.
        axis_names: torch's symbol -> the axis name that was asked for.
        derived_names: an expression of axes -> the name that was asked for it.
        guards: conditions under which the program holds; those that restrict an axis first.
        attempts: every strategy tried, the successful one last.
        assumptions: what the program takes for granted about the data.
        both_ways: decisions by data that were captured both ways: the line, and its place.
        raising: decisions by data after which the model raises an error, and the program goes on the other way.
        not_one: sizes at which eager would drop an axis that the file keeps.
        fixed: guards because of which axes left to the exporter are fixed.
        made_numbers: other axes left to the exporter that are fixed and that the model has at other sizes, in words.
        blocks: kinds of repeated blocks, and for which of them one's nodes were written again for another.
        changed_attributes: plain attributes of the module that forward changes, and the program does not.
        lost_assignments: which buffers are assigned what, where the program does not follow it.
        drawn: modules from whose generators forward drew random numbers, in place of torch's.
        read: what forward reads of clocks and of the operating system's random bytes, with the lines.
        seeded: what seeds torch's random numbers in forward, in words.
        tied: axes without names that the program ties together and the model does not, in words.
        symbols: torch's symbols in terms of the axes asked for; None where torch's environment is not at hand.
        other_names: a name that the file does not have -> that of the axis which it is in the program.
        asked_if_captured: lines at which the model was told that it is being captured, with who told it.
        asked_for_layout: lines at which the model asked how a tensor lies in memory, with the method it called.
        writes: whether the model, on any way through it, writes to something in place.
        has_both_sides: whether lines at which sizes decide were written anew, to hold at every size.
        prepared: what translation keeps of it for further opsets.
    """

    traced: torch.export.ExportedProgram
    axis_names: dict[str, str] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    derived_names: dict[str, str] = field(default_factory=dict)
    assumptions: list[Assumption] = field(default_factory=list)
    changed_attributes: list[str] = field(default_factory=list)
    lost_assignments: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    seeded: list[str] = field(default_factory=list)
    tied: list[str] = field(default_factory=list)
    both_ways: list[str] = field(default_factory=list)
    raising: list[str] = field(default_factory=list)
    not_one: list[Guard] = field(default_factory=list)
    fixed: list[Guard] = field(default_factory=list)
    made_numbers: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    symbols: Symbols | None = None
    other_names: dict[str, str] = field(default_factory=dict)
    asked_if_captured: dict[str, str] = field(default_factory=dict)
    asked_for_layout: dict[str, str] = field(default_factory=dict)
    writes: bool = False
    has_both_sides: bool = False
    prepared: dict[Hashable, list[object]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def program(self) -> torch.export.ExportedProgram:
        """Torch's exported program with every block written out."""
        return expanded(self.traced)

    @property
    def lowest(self) -> dict[str, int]:
        """Torch's symbol -> the least size that was declared for the axis."""
        return {} if self.symbols is None else {symbol: axis.lowest for symbol, axis in self.symbols.axes.items()}

    @property
    def harmful(self) -> list[Guard]:
        """The restrictions beyond which the program gives something else than the model, or nothing is known."""
        return [guard for guard in self.restrictions if not guard.is_limit]

    @property
    def united(self) -> list[Guard]:
        """The guards that make one axis of two names."""
        return [guard for guard in self.guards if guard.unites]

    def one_axis(self) -> list[tuple[str, str, str]]:
        """The names that give way to another one, with the name that the file has and the line that makes them equal.

        However many axes are one, each name gives way to that of the file.
        """
        sources = {other: guard.source for guard in self.united for other in guard.unites}
        pairs = [*(guard.unites for guard in self.united), *((kept, other) for other, kept in self.other_names.items())]
        groups: list[set[str]] = []
        for pair in pairs:
            joined = [group for group in groups if group & set(pair)]
            groups = [group for group in groups if group not in joined] + [set(pair).union(*joined)]
        found: list[tuple[str, str, str]] = []
        for group in groups:
            kept = next((name for name in self.axis_names.values() if name in group), min(group))
            found += [(other, kept, sources.get(other, "")) for other in sorted(group - {kept})]
        return found

    @property
    def restrictions(self) -> list[Guard]:
        """The guards that take sizes away from an axis that was asked for as dynamic."""
        return [guard for guard in self.guards if guard.restricts]

    @property
    def strategy(self) -> str:
        """The strategy that succeeded."""
        return self.attempts[-1].strategy if self.attempts else "ExportedProgram"

    def free_axes(self) -> int:
        """How many axes of the inputs are free."""
        return sum(
            isinstance(size, torch.SymInt) and not size.node.expr.is_number
            for _, fake in shapes.user_tensors(self.traced)
            for size in _sizes(fake)
        )

    def narrowed(self, asked: shapes.DynamicShapes) -> bool:
        """Whether the program has fewer free axes than were asked for, or holds for some of their sizes only."""
        return bool(self.restrictions) or self.free_axes() < len(asked.axes)

    def is_freer_than(self, other: Captured | None) -> bool:
        """Whether more axes are free here, or as many with fewer guards or constants; true when there is no other."""
        return other is None or self._freedom() > other._freedom()

    def _freedom(self) -> tuple[int, int, int]:
        return (self.free_axes(), -len(self.restrictions), -sum(guard.fixes_number for guard in self.guards))

    def holds_numbers(self) -> bool:
        """Whether integers that were converted from sizes are constants of the program."""
        return any(guard.fixes_number for guard in self.guards)


def _sizes(tensor: torch.Tensor) -> list[object]:
    return list(tensor.shape)


def _with_place(guard: Guard) -> str:
    return f"`{guard.condition}`{f' (at {guard.source})' if guard.source else ''}"


def warn(captured: Captured) -> None:
    """Says what the file leaves out or takes for granted."""
    for one in captured.assumptions:
        warnings.warn(
            f"the file holds as long as the data decide as in the example: {one.text}", ExportWarning, users_level()
        )
    for line in captured.raising:
        warnings.warn(
            f"the model raises an error by {line}, and a file cannot: at such data it computes what follows",
            ExportWarning,
            stacklevel=users_level(),
        )
    if captured.strategy == TRACE and not captured.assumptions:
        warnings.warn(
            "the model was captured by torch.jit.trace: what Python decided is decided as for the example inputs",
            ExportWarning,
            stacklevel=users_level(),
        )
    for limit in captured.not_one:
        warnings.warn(
            f"the file holds only while `{limit.condition}`: at 1 the model drops that axis"
            f"{f' (at {limit.source})' if limit.source else ''}, and a file cannot; squeeze axes that are always 1",
            ExportWarning,
            stacklevel=users_level(),
        )
    for guard in captured.fixed:
        verb = "is" if len(guard.axes) == 1 else "are"
        warnings.warn(
            f"{' and '.join(guard.axes)} {verb} fixed in the file: the program holds only while {_with_place(guard)}, "
            "though the model runs at other sizes, too; ask for it by a name or torch.export.Dim.DYNAMIC, for which "
            "more ways are tried, or pass guards='allow' to keep the axis free within that limit",
            ExportWarning,
            stacklevel=users_level(),
        )
    for axis in captured.made_numbers:
        warnings.warn(
            f"{axis}, though it was left to the exporter and the model runs at other sizes, too; change the model so "
            "that it makes no plain number of that size, or ask for torch.export.Dim.STATIC",
            ExportWarning,
            stacklevel=users_level(),
        )
    for other, kept, source in captured.one_axis():
        where = f" (at {source})" if source else ""
        warnings.warn(  # ends in the words that filters made for torch's exporter look for
            f"the model makes the axes {kept} and {other} equal{where}: they are one axis in the file, {kept}. # The "
            f"axis name: {other} will not be used, since it shares the same shape constraints with another axis: "
            f"{kept}",
            ExportWarning,
            stacklevel=users_level(),
        )
    for axes in captured.tied:
        warnings.warn(
            f"{axes}, which have no names of their own, are one axis in the file, or one computed from the other: at "
            "other sizes the model gives something that the file cannot; give them names to be told the line",
            ExportWarning,
            stacklevel=users_level(),
        )
    limits: dict[str, Guard] = {}
    for guard in captured.restrictions:
        if guard.narrows or guard.is_limit:
            limits.setdefault(guard.condition, guard)
    for guard in limits.values():
        warnings.warn(
            f"the file holds only while {_with_place(guard)}, though the model runs at other sizes, too",
            ExportWarning,
            stacklevel=users_level(),
        )
    for lost in captured.lost_assignments:
        warnings.warn(
            f"the buffer {lost}: the new values that the file gives may be without it; write to the buffer (copy_), or "
            "assign a computed tensor of its dtype (clone)",
            ExportWarning,
            stacklevel=users_level(),
        )
    if captured.drawn:
        warnings.warn(
            f"forward draws random numbers from {' and '.join(captured.drawn)}, which a file cannot: it computes with "
            "those of the capture; draw them with torch, or pass them in",
            ExportWarning,
            stacklevel=users_level(),
        )
    if captured.read:
        warnings.warn(
            f"forward computes with {' and '.join(captured.read)}, which a file cannot read: it computes with what the "
            "capture read; pass it in",
            ExportWarning,
            stacklevel=users_level(),
        )
    if captured.seeded:
        warnings.warn(
            f"forward seeds random numbers ({' and '.join(captured.seeded)}), so that eager draws the same in "
            "each call, and a file cannot: it draws others in each run; draw them once and keep them in a buffer, or "
            "pass them in",
            ExportWarning,
            stacklevel=users_level(),
        )
    for name in captured.changed_attributes:
        warnings.warn(
            f"forward changes the attribute {name}, which a file cannot: it computes with the value of the first call; "
            "make it a buffer that holds a tensor, or pass it in and return it",
            ExportWarning,
            stacklevel=users_level(),
        )
