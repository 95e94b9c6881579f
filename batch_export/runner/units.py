"""Units of work: which cells go to one child, and which unit is started first. Planned cells in, units out; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from batch_export.digest import digest_bytes
from batch_export.plan.matrix import PlannedCell

_LOG_NAME_BYTES = 200
_WORD = r"(?:[^\W_]|[.+-])+"
_ORDINARY = re.compile(rf"[\w.+-]+/(?:measure|{_WORD}/(?!(?:measure|opset\d+)$){_WORD}(?:/opset\d+)?)")
"""Names of units that stay different where underscores stand for slashes: only a model's has any of its own."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The cells that one child works on: a capture group, or a part of one.

    Attributes:
        name: of the capture (`model/dynamic/exporter`), with the opset where a group was split.
        part_of: the name of the group that was split; empty for a whole one.
    """

    name: str
    cells: tuple[PlannedCell, ...]
    part_of: str = ""

    @property
    def log_name(self) -> str:
        """The name of the unit's log, which no other unit has: with a digest where the plain name may be another's."""
        plain = re.sub(r"[^\w.+-]", "_", self.name)
        if _ORDINARY.fullmatch(self.name) is None or len(plain.encode()) > _LOG_NAME_BYTES:
            plain = f"{plain[: _LOG_NAME_BYTES // 4]}-{digest_bytes(self.name.encode('utf-8', 'surrogatepass'))[:16]}"
        return plain + ".log"


def group(
    cells: Iterable[PlannedCell],
    workers: int,
    seconds: Mapping[str, float] | None = None,
    split: Collection[str] | None = None,
) -> list[Unit]:
    """Groups cells by capture; splits groups by opset where workers would wait.

    Those are all groups when there are fewer of them than workers, and groups that take longer than a worker's fair
    share of the whole, as far as that is known. Splitting is not free: each part captures the program for itself.

    Args:
        cells: what there is to do.
        workers: how many units run at once.
        seconds: of units when they were last executed, by name.
        split: names of the groups to be split, as an earlier process of the same run decided.
    """
    groups: defaultdict[str, list[PlannedCell]] = defaultdict(list)
    for planned in cells:
        groups[planned.cell.capture].append(planned)
    if split is None:
        split = set(groups) if len(groups) < workers else _too_long(groups, workers, seconds or {})
    units: list[Unit] = []
    for name, members in groups.items():
        if name not in split:
            units.append(Unit(name, tuple(members)))
            continue
        parts: defaultdict[int, list[PlannedCell]] = defaultdict(list)
        for planned in members:
            parts[planned.cell.opset].append(planned)
        units += [Unit(f"{name}/opset{opset}", tuple(part), name) for opset, part in parts.items()]
    return units


def _too_long(groups: Mapping[str, Sequence[PlannedCell]], workers: int, seconds: Mapping[str, float]) -> set[str]:
    known = {name: seconds[name] for name in groups if name in seconds}
    share = sum(known.values()) / workers * len(groups) / max(1, len(known))
    return {name for name, taken in known.items() if taken > share}


def split_groups(units: Iterable[Unit]) -> tuple[str, ...]:
    """Returns the names of the groups that `group` split."""
    return tuple(dict.fromkeys(unit.part_of for unit in units if unit.part_of))


def in_order(units: Iterable[Unit], seconds: Mapping[str, float]) -> list[Unit]:
    """Returns the units in the order in which they should start.

    The first unit of every model comes before the second of any, since units of one model wait for the same reference.
    Among those the longest first (`seconds` by unit name), unknown ones before all, in the order given.
    """
    seen: defaultdict[str, int] = defaultdict(int)
    ranked: list[tuple[int, float, int, Unit]] = []
    for position, unit in enumerate(sorted(units, key=lambda unit: -seconds.get(unit.name, float("inf")))):
        model = unit.cells[0].cell.model
        ranked.append((seen[model], -seconds.get(unit.name, float("inf")), position, unit))
        seen[model] += 1
    return [unit for *_, unit in sorted(ranked, key=lambda item: item[:3])]


def by_model(cells: Iterable[PlannedCell]) -> list[Unit]:
    """Groups cells by model and by the environment that they run in, for the exclusive lane."""
    groups: defaultdict[tuple[str, ...], list[PlannedCell]] = defaultdict(list)
    for planned in cells:
        groups[planned.cell.model, *planned.environment].append(planned)
    named = ("/".join((model, *([" ".join(within)] if within else []))) for model, *within in groups)
    return [Unit(f"{name}/measure", tuple(members)) for name, members in zip(named, groups.values(), strict=True)]
