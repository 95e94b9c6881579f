"""The collections that there are: the shipped ones, and those of installed packages.

A package adds one by an entry point of the group `batch_export.models` whose name is what stands before the colon and
whose object is a `kinds.Collection`. A plug-in's module is imported only when a pattern names it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from functools import cache, partial

from batch_export.collections.kinds import Collection
from batch_export.errors import UsageError
from batch_export.words import did_you_mean, error_line

GROUP = "batch_export.models"


def _names(owner: str) -> Mapping[str, tuple[str, ...]]:
    """What the room of a shipped collection lists; it is imported where a pattern names the collection."""
    listed: Mapping[str, tuple[str, ...]] = importlib.import_module(f"batch_export.collections.{owner}.names").names()
    return listed


def _shipped(owner: str, *packages: str) -> Collection:
    room = f"batch_export.collections.{owner}.describing"
    return Collection(
        name=owner,
        library=owner,
        packages=(*packages, "torch", "numpy"),
        names=partial(_names, owner),
        describe=f"{room}:describe_named",
        prepare=f"{room}:prepare",
    )


COLLECTIONS: dict[str, Collection] = {
    "transformers": _shipped("transformers", "transformers", "torchvision"),
    "timm": _shipped("timm", "timm", "torchvision"),
    "diffusers": _shipped("diffusers", "diffusers", "transformers", "torchvision"),
    "torch_geometric": _shipped("torch_geometric", "torch_geometric"),
    "monai": _shipped("monai", "monai", "torchvision"),
}
"""The shipped ones by name."""


def collections() -> tuple[str, ...]:
    """Returns the name of every collection; no plug-in is imported."""
    return tuple(dict.fromkeys((*COLLECTIONS, *(point.name for point in plugins()))))


def collection(name: str) -> Collection:
    """Returns a collection.

    Raises:
        UsageError: there is none of this name, its library is not installed, or a plug-in's object is none; one
            sentence that names the package.
    """
    points = [point for point in plugins() if point.name == name]
    owners = [_owner(point) for point in points] + (["batch_export"] if name in COLLECTIONS else [])
    if len(owners) > 1:
        raise UsageError(
            f"The collection {name!r} is brought by {' and by '.join(owners)}. Next step: uninstall all but one"
        )
    if not owners:
        known = collections()
        raise UsageError(f"No collection is called {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}")
    found = COLLECTIONS[name] if name in COLLECTIONS else _brought(points[0])
    if not _installed(found.library):
        raise UsageError(
            f"The collection {name!r} needs the package {found.library}, which is not installed. "
            f"Next step: pip install {found.library}, or leave {name}: out of matrix.models"
        )
    return found


def _brought(point: importlib.metadata.EntryPoint) -> Collection:
    owner = _owner(point)
    try:
        brought = point.load()
    except Exception as error:
        raise UsageError(
            f"The collection {point.name!r} of the package {owner} cannot be imported: {type(error).__name__}: "
            f"{error_line(error)}. Next step: reinstall {owner}, or uninstall it"
        ) from error
    if not isinstance(brought, Collection) or brought.name != point.name:
        named = isinstance(brought, Collection)
        what = f"a Collection named {brought.name!r}" if named else f"a {type(brought).__name__}"
        raise UsageError(
            f"The entry point {point.name!r} ({GROUP}) of the package {owner} is {what}; it must be a "
            f"batch_export.collections.kinds.Collection named {point.name!r}"
        )
    return brought


def _installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except (ImportError, ValueError):
        return False


@cache
def plugins() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Returns the entry points of installed packages; nothing of theirs is imported."""
    return tuple(importlib.metadata.entry_points(group=GROUP))


def _owner(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
