"""The table that a run ends with: models and dynamic settings as rows, opsets as columns, one table per provider and
exporter, split where the terminal is narrow.

Records go in, rich renderables come out; nothing is printed here, so tests render into a string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from rich.table import Table
from rich.text import Text

from batch_export.record import Cell, Record
from batch_export.report.wording import ASCII_GLYPHS, GLYPHS, STYLES, cell_text, legends, speed_up
from batch_export.words import one_line

_CELL_WIDTH = 11
_SPEED_UP = "speed-up"
_MIN_NAME_WIDTH = 12
_LEGEND = "✓ largest |error|"
_MEASURED_LEGEND = f"{_LEGEND} and median ms (~ busy machine); speed-up is over eager PyTorch"


def tables(
    records: Sequence[Record], *, width: int, ascii_only: bool = False, marks: Mapping[Cell, str] | None = None
) -> Iterator[Table]:
    """Yields the tables of a run; every line fits `width` columns (80 or more).

    A provider or exporter of which every cell was skipped has no table beside those of others.
    `marks` says `new`, `fixed` or `still` of cells whose verdict a comparison speaks of.
    """
    glyphs = ASCII_GLYPHS if ascii_only else GLYPHS
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.cell.table, []).append(record)
    titled = len(groups) > 1
    if not all(record.verdict == "skip" for record in records):  # a line below says how many were skipped, and why
        groups = {
            name: members for name, members in groups.items() if any(record.verdict != "skip" for record in members)
        }
    for group, members in groups.items():
        title = " · ".join(group) if titled else ""
        cell_width = max(
            _CELL_WIDTH, *(len(cell_text(record, glyphs, (marks or {}).get(record.cell, ""))) for record in members)
        )
        for columns in _split(_opsets(members), members, width, cell_width):
            said = title.replace("·", "-") if ascii_only else title
            yield _table(members, columns, said, glyphs, marks or {}, _room(members, len(columns), width, cell_width))


def legend(
    records: Sequence[Record], *, ascii_only: bool = False, marks: Mapping[Cell, str] | None = None
) -> list[str]:
    """Lines that explain the cells, no more than these records need."""
    said = _MEASURED_LEGEND if any(record.latency_ms for record in records) else _LEGEND
    lines = [said.replace("✓", ASCII_GLYPHS["pass"]) if ascii_only else said]
    if {"new", "fixed"} & set((marks or {}).values()):
        lines.append("new, fixed: against the base")
    return [*lines, *legends(records)]


def _opsets(records: Sequence[Record]) -> list[int]:
    return sorted({record.cell.opset for record in records})


def _split(opsets: Sequence[int], records: Sequence[Record], width: int, cell_width: int) -> Iterator[list[int]]:
    longest = max((len(record.cell.model) for record in records), default=0)
    fitting = max(1, (_room(records, 0, width, cell_width) - min(longest, _MIN_NAME_WIDTH)) // (cell_width + 1))
    for start in range(0, len(opsets), fitting):
        yield list(opsets[start : start + fitting])


def _room(records: Sequence[Record], columns: int, width: int, cell_width: int) -> int:
    """Columns of the terminal that are left for the models' names."""
    dynamic = max((len(record.cell.dynamic) for record in records), default=0)
    return width - max(dynamic, len("dynamic")) - len(_SPEED_UP) - 2 - columns * (cell_width + 1)


def _pieces(name: str, room: int) -> list[str]:
    """Cuts a name that is too long where a word ends, if there is such a place."""
    pieces = []
    while len(name) > room:
        cut = max(name.rfind("_", 0, room), name.rfind("-", 0, room)) + 1 or room
        pieces.append(name[:cut])
        name = name[cut:]
    return [*pieces, name]


def _table(
    records: Sequence[Record],
    opsets: Sequence[int],
    title: str,
    glyphs: dict[str, str],
    marks: Mapping[Cell, str],
    room: int,
) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, title=title or None, title_justify="left")
    table.add_column("model", overflow="fold", style="bold")
    table.add_column("dynamic", no_wrap=True)
    for opset in opsets:
        table.add_column(f"opset {opset}", no_wrap=True, min_width=_CELL_WIDTH)
    timed = any(speed_up(record) is not None for record in records if record.verdict == "pass")
    if timed:
        table.add_column(_SPEED_UP, justify="right", no_wrap=True)
    rows: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        rows.setdefault((record.cell.model, record.cell.dynamic), {})[record.cell.opset] = record
    rows_left = Counter(model for model, _ in rows)
    names: dict[str, list[str]] = {}
    for (model, dynamic), by_opset in rows.items():
        pieces = names.setdefault(model, _pieces(one_line(model), max(room, _MIN_NAME_WIDTH)))
        rows_left[model] -= 1  # a long name goes on in the model's next row; in its last one whatever is left is told
        shown_name = "\n".join(pieces if not rows_left[model] else pieces[:1])
        del pieces[:1]
        shown = [by_opset.get(opset) for opset in opsets]
        cells = [Text(cell_text(r, glyphs, marks.get(r.cell, "")), STYLES[r.verdict]) if r else Text("") for r in shown]
        ratios = [ratio for r in shown if r and r.verdict == "pass" and (ratio := speed_up(r)) is not None]
        ratio_cell = [Text(f"{median(ratios):.2f}x" if ratios else "")] if timed else []
        table.add_row(Text(shown_name), Text(one_line(dynamic)), *cells, *ratio_cell)
    return table
