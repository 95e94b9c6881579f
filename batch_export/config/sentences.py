"""One sentence out of what Hydra and omegaconf raise: which key or name, and the nearest right one.

An exception goes in, text comes out; nothing is raised or printed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException, SearchPathException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError, YAMLError

from batch_export.config.groups import not_yaml, unknown
from batch_export.config.schema import known_keys
from batch_export.config.variables import unset_variable
from batch_export.words import first_line, nearest

GROUPS_NOT_CHOSEN = {"model": "matrix.models", "provider": "matrix.providers", "exporter": "matrix.exporters"}
"""Groups that Hydra would offer as `model=...`, and the keys with which the matrix chooses from them."""

_IN_QUOTES = """Next step: put a value with quotes, brackets or commas of its own into quotes: 'key=["a, b"]'"""
_QUOTED = re.compile(r"'([^']+)'")


def explain(error: BaseException, overrides: Sequence[str] = ()) -> str:
    """Returns one sentence for an error of the configuration; `overrides` are the command line's."""
    if isinstance(error, OverrideParseException):
        return _malformed(overrides)
    if isinstance(error, YAMLError):
        return not_yaml(_file_of(error), error)
    chain = _chain(error)
    for link in chain:
        if isinstance(link, MissingConfigException) and link.missing_cfg_file and link.options is not None:
            group, _, name = link.missing_cfg_file.rpartition("/")
            return unknown(group or "config", name, list(link.options))
    for link in chain:
        if isinstance(link, SearchPathException):
            return " ".join(str(link).split())
    for link in chain:
        if isinstance(link, ConfigAttributeError | ConfigKeyError):
            return _unknown_key(link, str(error))
    for link in chain:
        if isinstance(link, OmegaConfBaseException):
            key = link.full_key or _overridden(str(error))
            file = _quoted(str(error)) if str(error).startswith("In ") else ""
            where = (f"{file}: " if file else "") + (f"{key}: " if key else "")
            return f"{where}{unset_variable(link) or first_line(link.msg or str(link))}"
    text = str(error)
    if "No match in the defaults list" in text:
        return _not_in_defaults(text)
    return first_line(text) or "the configuration could not be read"


def _file_of(error: YAMLError) -> str:
    """Group and name of the config that an error tells of; empty where it does not say."""
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    place = PurePath(mark.name if mark is not None else str(getattr(error, "name", "")))
    return "/".join(place.with_suffix("").parts[-2:]) if place.suffix else ""


def _unknown_key(error: OmegaConfBaseException, outer: str) -> str:
    key = error.full_key or str(error.key or "")
    written = _overridden(outer)
    if outer.startswith("In ") and written.startswith(f"{key}/"):  # Hydra puts a file's keys under its folder's name
        return f"{written}.yaml says {key}.*, and there is no such key: write `# @package _global_` as its first line"
    if written and not written.startswith(key) and error.object_type is not None and is_dataclass(error.object_type):
        known = tuple(item.name for item in fields(error.object_type))
        near = nearest(key.rpartition(".")[2], known, 1)
        return f"Unknown key {key!r} in {written} ({f'nearest: {near[0]}' if near else 'known: ' + ', '.join(known)})"
    return unknown_key(written if written.startswith(key) else key)


def unknown_key(key: str) -> str:
    """The sentence for a key that the configuration does not have."""
    parent, _, leaf = key.rpartition(".")
    siblings = tuple(known for known in known_keys() if known.rpartition(".")[0] == parent)
    if parent and siblings and not nearest(leaf, tuple(name.rpartition(".")[2] for name in siblings)):
        return f"Unknown key {key!r} ({parent} has {', '.join(name.rpartition('.')[2] for name in siblings)})"
    near = nearest(key, siblings or known_keys(), 1) or _same_leaf(key)
    hint = f"nearest: {near[0]}" if near else "`--cfg job` lists them all"
    return f"Unknown key {key!r} ({hint})"


def _same_leaf(key: str) -> list[str]:
    leaf = key.rpartition(".")[2]
    by_leaf = {known.rpartition(".")[2]: known for known in known_keys()}
    return [by_leaf[word] for word in nearest(leaf, tuple(by_leaf), 1)]


def _not_in_defaults(text: str) -> str:
    group = _overridden(text)
    if group in GROUPS_NOT_CHOSEN:
        return f"{group}=... chooses nothing: write {GROUPS_NOT_CHOSEN[group]}=[...]"
    if group == "sweep":
        return "A sweep is added with a plus: write +sweep=<name>"
    return f"Unknown config group {group!r}; `--help` lists the groups, and +{group}=<name> adds one"


def _malformed(overrides: Sequence[str]) -> str:
    parser = OverridesParser.create()
    for override in overrides:
        try:
            parser.parse_override(override)
        except HydraException:
            return (
                f"The override {override!r} is malformed; overrides look like key=value or key=[a,b], "
                f"in single quotes where the shell would read the characters itself. {_IN_QUOTES}"
            )
    return f"An override is malformed; overrides look like key=value or key=[a,b]. {_IN_QUOTES}"


def _overridden(text: str) -> str:
    """The key in `Could not override 'x'` or `Error merging override x=1`."""
    first = first_line(text)
    found = re.search(r"merging override \+*~?([\w.@/-]+)", first) or _QUOTED.search(first)
    return found.group(1) if found else ""


def _quoted(text: str) -> str:
    found = _QUOTED.search(text)
    return found.group(1) if found else ""


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in links:
        links.append(current)
        current = current.__cause__ or current.__context__  # Hydra does not always name the cause
    return links
