"""A config with those within it, by the path of fields that leads to each, and arguments changed at such a path.

Plain data arrives and leaves: the arguments that make a config are nested mappings, as `shrinking.shrink` returns them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from batch_export.collections.small_models.configs import nested

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Another value for a field of a config.

    Attributes:
        path: the fields that lead to the config; none for the outermost.
        name: of the field.
        value: what JSON can hold.
    """

    path: Path
    name: str
    value: Any


def places(config: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields a config and those within it, the outermost first."""
    yield path, config
    for name, inner in nested(config):
        yield from places(inner, (*path, name))


def fields(config: Any) -> dict[str, Any]:
    """The fields of a config that are no configs."""
    inner = dict(nested(config))
    return {name: value for name, value in vars(config).items() if name[:1] != "_" and name not in inner}


def overlaid(config: Any, arguments: Mapping[str, Any]) -> Any:
    """Returns a copy of a config with fields as arguments have them, which its class may refuse."""
    found = copy.deepcopy(config)
    inner = dict(nested(found))
    for name, value in arguments.items():
        vars(found)[name] = overlaid(inner[name], value) if name in inner and isinstance(value, Mapping) else value
    return found


def changed(arguments: Mapping[str, Any], changes: list[Change]) -> dict[str, Any]:
    """Returns arguments with these changes; those given are left alone."""
    found = dict(arguments)
    for change in changes:
        found = _at(found, change.path, change)
    return found


def _at(arguments: Mapping[str, Any], path: Path, change: Change) -> dict[str, Any]:
    found = dict(arguments)
    if not path:
        found[change.name] = change.value
        return found
    inner = found.get(path[0])
    found[path[0]] = _at(inner if isinstance(inner, Mapping) else {}, path[1:], change)
    return found
