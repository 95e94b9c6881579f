"""`list models|sweeps|providers|exporters|verbs`: what there is to choose from, a line each, the word to type first.

Overrides and `--config-dir` as for a sweep arrive; plain columns leave, for people, `grep` and `cut` alike. A config
that cannot be read has its name in the list and a sentence on standard error; the exit code is then 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from batch_export.cli.arguments import VerbParser
from batch_export.cli.known import verbs
from batch_export.config.compose import Composed, compose_and_call
from batch_export.config.groups import TAG
from batch_export.errors import UsageError

Columns = Callable[[Mapping[str, Any]], Sequence[str]]


def _model(config: Mapping[str, Any]) -> Sequence[str]:
    tags = config.get("tags") or ()
    listed = (tags,) if isinstance(tags, str) else tags
    return ",".join(f"{TAG}{tag}" for tag in listed), str(config.get("_target_", ""))


def _sweep(config: Mapping[str, Any]) -> Sequence[str]:
    matrix = config.get("matrix") or {}
    return [f"{name}={_joined(matrix[name])}" for name in matrix]


def _provider(config: Mapping[str, Any]) -> Sequence[str]:
    return str(config.get("kind", "")), str(config.get("execution_provider", ""))


def _exporter(config: Mapping[str, Any]) -> Sequence[str]:
    return (str(config.get("_target_", "")),)


_GROUPS: dict[str, tuple[str, Columns]] = {
    "models": ("model", _model),
    "sweeps": ("sweep", _sweep),
    "providers": ("provider", _provider),
    "exporters": ("exporter", _exporter),
}
"""What can be listed: the config group, and what is shown of a config beside its name."""

WORDS = (*_GROUPS, "verbs")


def run(arguments: list[str]) -> int:
    """Prints the list; 0 when all of it could be read."""
    parser = VerbParser("list", "Lists what there is to choose from. Overrides and --config-dir DIR may follow.")
    parser.add_argument("what", choices=WORDS)
    asked, overrides = parser.parse_known_args(arguments)
    if asked.what == "verbs":
        _print([(verb.usage, verb.summary) for verb in verbs().values()])
        return 0
    return compose_and_call(lambda composed: _list(composed, *_GROUPS[asked.what]), overrides, leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else WORDS


def _list(composed: Composed, group: str, columns: Columns) -> int:
    rows: list[Sequence[str]] = []
    complaints: list[str] = []
    for name in composed.groups.names(group):
        try:
            rows.append((name, *columns(composed.groups.load(group, name))))
        except UsageError as error:
            rows.append((name,))
            complaints.append(str(error))
    _print(rows)
    for complaint in complaints:
        print(f"error: {complaint}", file=sys.stderr)
    return UsageError.exit_code if complaints else 0


def _print(rows: Sequence[Sequence[str]]) -> None:
    """Columns two spaces apart, each as wide as its widest entry; an empty entry is a dash, so that none is lost."""
    table = [[entry or "-" for entry in row] for row in rows]
    count = max((len(row) for row in table), default=0)
    widths = [max((len(row[index]) for row in table if index < len(row)), default=0) for index in range(count)]
    for row in table:
        print("  ".join(f"{entry:<{width}}" for entry, width in zip(row, widths, strict=False)).rstrip())


def _joined(value: object) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
