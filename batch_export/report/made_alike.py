"""Whether runs were made with the same, so that their cells may stand in one run: versions, our sources, the sources
and files of the models and exporters that they have in common, and environments.

What runs wrote down of themselves (`environment.json`) arrives, differences leave, and what one run made of several
would have written down. The machine may be another one; nothing is refused here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from batch_export.runner.surroundings import Surroundings, changes
from batch_export.sources.toolchain import Layer, Toolchain

_NOBODY_KNOWS = ("not made yet", "unavailable: ")
"""How what an environment holds begins where there is none: its cells were skipped, with the reason."""
_OF_MACHINES = ("host", "roots", "layer")
"""Fields of a toolchain that say where a run ran, or that no run's own toolchain has."""


def unlike(one: Surroundings, other: Surroundings) -> list[str]:
    """Returns in what two runs differ of all that both of them know, one short text each; empty where in nothing."""
    first, second = one.toolchain, other.toolchain
    mine_kept: dict[str, Any] = {"host": {}}
    theirs_kept: dict[str, Any] = {"host": {}}
    for name in _compared():
        mine, theirs = getattr(first, name), getattr(second, name)
        both = [key for key in mine if key in theirs and _known(mine[key]) and _known(theirs[key])]
        mine_kept[name], theirs_kept[name] = {key: mine[key] for key in both}, {key: theirs[key] for key in both}
    return changes(Toolchain(**mine_kept), Toolchain(**theirs_kept))


def other_commits(one: Surroundings, other: Surroundings) -> tuple[str, str] | None:
    """Returns the commits that two runs' models are of, where these are known and not the same."""
    differ = one.commit and other.commit and one.commit != other.commit
    return (one.commit, other.commit) if differ else None


def joined(made: Sequence[Surroundings]) -> Surroundings:
    """Returns what a run that is made of several, at least one, was made with.

    Versions that are not the same are named one behind the other; of all else that is not, nothing is said.
    """
    toolchains = [one.toolchain for one in made]
    agreed: dict[str, Any] = {
        name: _agreed([getattr(one, name) for one in toolchains]) for name in (*_compared(), "host")
    }
    versions: dict[str, dict[str, None]] = {}
    for toolchain in toolchains:
        for name, version in toolchain.versions.items():
            versions.setdefault(name, {})[version] = None
    return Surroundings(
        uuid.uuid4().hex,
        replace(Toolchain(**agreed), versions={name: ", ".join(each) for name, each in versions.items()}),
        started=min(one.started for one in made),
        commit=_same(one.commit for one in made),
        own_commit=_same(one.own_commit for one in made),
    )


def _compared() -> list[str]:
    return [item.name for item in fields(Toolchain) if item.name not in _OF_MACHINES]


def _known(value: str | Layer) -> bool:
    return not (value.content if isinstance(value, Layer) else value).startswith(_NOBODY_KNOWS)


def _agreed(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all that name it say alike."""
    found: dict[str, Any] = {}
    other: set[str] = set()
    for one in each:
        for name, value in one.items():
            if found.setdefault(name, value) != value:
                other.add(name)
    return {name: value for name, value in found.items() if name not in other}


def _same(words: Iterable[str]) -> str:
    each = set(words)
    return each.pop() if len(each) == 1 else ""
