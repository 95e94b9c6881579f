"""`list [models|tags|sweeps|cells|...]`: what there is to choose from, a line each, the word to type first.

Overrides and `--config-dir` as for a sweep arrive, and patterns as `matrix.models` takes them (`list models 'timm:*'`);
plain columns leave, for `grep` and `cut`; on a terminal, what does not fit goes on below its name. A config that cannot
be read has its name in the list and a sentence on standard error, a pattern that chooses nothing the sentence alone;
the exit code is then 2.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from batch_export.cli.arguments import VerbParser, add_config_dirs, add_outputs, config_words
from batch_export.cli.known import verbs
from batch_export.config.chosen import is_of_collection, of_collection
from batch_export.config.compose import Composed, compose_and_call
from batch_export.config.groups import TAG
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs
from batch_export.report.wording import OUTCOMES
from batch_export.sweeps.planned import planned_cells

Columns = Callable[[Mapping[str, Any]], Sequence[str]]


def _model(config: Mapping[str, Any]) -> Sequence[str]:
    tags = config.get("tags") or ()
    listed = (tags,) if isinstance(tags, str) else tags
    return ",".join(f"{TAG}{tag}" for tag in listed), str(config.get("_target_", ""))


def _sweep(config: Mapping[str, Any]) -> Sequence[str]:
    matrix = config.get("matrix") or {}
    return [f"{name}={_joined(matrix[name])}" for name in matrix]


def _provider(config: Mapping[str, Any]) -> Sequence[str]:
    env = ", ".join(map(str, config.get("env") or ()))
    return str(config.get("kind", "")), str(config.get("execution_provider", "")), env


def _exporter(config: Mapping[str, Any]) -> Sequence[str]:
    return (str(config.get("_target_", "")),)


_GROUPS: dict[str, tuple[str, Columns]] = {
    "models": ("model", _model),
    "sweeps": ("sweep", _sweep),
    "providers": ("provider", _provider),
    "exporters": ("exporter", _exporter),
}
"""What is listed of config groups: the group, and what is shown of a config beside its name."""

WORDS = ("models", "tags", "sweeps", "cells", "providers", "exporters", "runs", "verbs")
_MOST_NAMES = 6
_NARROWEST = 20
_INDENT = "    "


def run(arguments: list[str]) -> int:
    """Prints the list; 0 when all of it could be read."""
    parser = VerbParser("list", "Lists what there is to choose from. Overrides and --config-dir DIR may follow.")
    parser.add_argument("what", nargs="?", choices=WORDS, help="without it, a line for each of these")
    add_outputs(parser)
    add_config_dirs(parser)
    asked, rest = parser.parse_known_args(arguments)
    patterns = [word for word in rest if "=" not in word and word[:1] not in "-+~"]
    if patterns and asked.what not in _GROUPS:
        what = ", ".join(_GROUPS)
        raise UsageError(
            f"list {asked.what or ''}: {patterns[0]!r} is no override (key=value); patterns go with {what}"
        )
    words = [*(word for word in rest if word not in patterns), *config_words(asked)]
    if asked.what == "verbs":
        _print([(verb.usage, verb.summary) for verb in verbs().values()])
        return 0
    if asked.what == "runs":
        _print(_runs(asked.outputs))
        return 0
    if asked.what == "cells":
        return compose_and_call(_cells, words, leave_no_trace=True)
    if asked.what == "tags":
        return compose_and_call(_tags, words, leave_no_trace=True)
    if asked.what is None:
        return compose_and_call(lambda composed: _overview(composed, asked.outputs), words, leave_no_trace=True)
    group, columns = _GROUPS[asked.what]
    return compose_and_call(lambda composed: _list(composed, group, columns, patterns), words, leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else WORDS


def _list(composed: Composed, group: str, columns: Columns, patterns: Sequence[str]) -> int:
    rows: list[Sequence[str]] = []
    complaints: list[str] = []
    names = [] if patterns else composed.groups.all_names(group)
    for pattern in patterns:
        try:
            if group == "model" and is_of_collection(pattern):
                rows += [(name, _tagged(name, tags)) for name, tags in of_collection(pattern).items()]
            else:
                names += composed.groups.select(group, [pattern])
        except UsageError as error:
            complaints.append(str(error))
    for name in dict.fromkeys(names):
        try:
            rows.append((name, *columns(composed.groups.load(group, name))))
        except UsageError as error:
            rows.append((name,))
            complaints.append(str(error))
    _print(rows)
    return _told(complaints)


def _tagged(name: str, tags: Sequence[str]) -> str:
    """The tags of a collection's model, as `matrix.models` takes them."""
    return ",".join(f"{name.partition(':')[0]}:{TAG}{tag}" for tag in tags)


def _cells(composed: Composed) -> int:
    """The cells of the sweep that the overrides describe; those that would be skipped say why."""
    _, cells = planned_cells(composed)
    _print([(item.cell.name, f"skip: {item.skip}") if item.skip else (item.cell.name,) for item in cells])
    return 0


def _tags(composed: Composed) -> int:
    found: dict[str, list[str]] = {}
    complaints: list[str] = []
    for name in composed.groups.names("model"):
        try:
            for tag in filter(None, _model(composed.groups.load("model", name))[0].split(",")):
                found.setdefault(tag, []).append(name)
        except UsageError as error:
            complaints.append(str(error))
    _print([(tag, counted(len(names), "model"), _shortened(names)) for tag, names in sorted(found.items())])
    return _told(complaints)


def _runs(outputs: Path) -> list[Sequence[str]]:
    """The runs below the outputs, the newest first, with what they came to."""
    rows: list[Sequence[str]] = []
    for folder in reversed(all_runs(outputs)):
        summary = files.read_summary(folder)
        said = (
            ", ".join(f"{summary[outcome]} {outcome}" for outcome in OUTCOMES if summary.get(outcome))
            if summary
            else ""
        )
        rows.append((str(folder), said or "not finished", str((summary or {}).get("command", ""))))
    return rows


def _overview(composed: Composed, outputs: Path) -> int:
    """A line for each thing that can be listed: how many there are, and the first of them."""
    rows: list[Sequence[str]] = []
    for what, (group, _) in _GROUPS.items():
        names = composed.groups.all_names(group)
        rows.append((f"list {what}", str(len(names)), _shortened(names)))
    runs = [str(folder) for folder in reversed(all_runs(outputs))]
    rows += [
        ("list tags", "", "tags of models, for matrix.models=['tag:...']; a collection's: list models 'timm:*'"),
        ("list cells", "", "cells that a sweep would run; +sweep=NAME and other overrides may follow"),
        ("list runs", str(len(runs)), _shortened(runs[:_MOST_NAMES])),
        ("list verbs", str(len(verbs())), _shortened(list(verbs()))),
    ]
    _print(rows)
    return 0


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


def _told(complaints: Sequence[str]) -> int:
    for complaint in complaints:
        print(f"error: {complaint}", file=sys.stderr)
    return UsageError.exit_code if complaints else 0


def _print(rows: Sequence[Sequence[str]]) -> None:
    """Columns two spaces apart, each as wide as its widest entry; an empty entry is a dash, so that none is lost.

    On a terminal a row that is too wide has its further entries below its first one.
    """
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    table = [[entry or "-" for entry in row] for row in rows]
    count = max((len(row) for row in table), default=0)
    widths = [max((len(row[index]) for row in table if index < len(row)), default=0) for index in range(count)]
    for row in table:
        line = "  ".join(f"{entry:<{width}}" for entry, width in zip(row, widths, strict=False)).rstrip()
        if 0 < most < len(line):
            width = max(most, _NARROWEST)
            below = [
                part
                for entry in row[1:]
                for part in textwrap.wrap(entry, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
            ]
            line = "\n".join([row[0], *below])
        print(line)


def _joined(value: object) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
