"""The user's own config folders: `--config-dir`, as often as it is given, and `hydra.searchpath`.

Flags and overrides arrive, places on Hydra's search path leave: the user's come before the shipped one, so that a
config of the user's hides the shipped one of its name. The primary config alone stays the shipped one. Nothing is
composed here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import OverrideParseException
from hydra.plugins.config_source import ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin

from batch_export.errors import UsageError
from batch_export.sources.places import conf_dir

PRIMARY = "config"
"""The shipped config that everything is composed from; one of this name in a user's folder is not read."""

_FLAGS = ("--config-dir", "-cd")
_KEY = "hydra.searchpath"
_OWN = "own"
_NOT_OWN = ("hydra", "main", "schema")
"""Hydra's words for its own configs, the application's and the structured ones."""

_present: ContextVar[tuple[str, ...]] = ContextVar("folders of the present command line", default=())


class _UserFolder(FileConfigSource):
    """A folder on the disk without the primary config."""

    @staticmethod
    def scheme() -> str:
        return "folder"

    def is_config(self, config_path: str) -> bool:
        return not _is_primary(config_path) and super().is_config(config_path)


class _UserPackage(ImportlibResourcesConfigSource):
    """A folder of an importable package without the primary config."""

    @staticmethod
    def scheme() -> str:
        return "package"

    def is_config(self, config_path: str) -> bool:
        return not _is_primary(config_path) and super().is_config(config_path)


class _OwnFolders(SearchPathPlugin):
    """Puts the present folders before the shipped one."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in _present.get():
            search_path.prepend(_OWN, folder, anchor=SearchPathQuery(provider="main"))


def is_own(provider: str) -> bool:
    """Whether a place on the search path is the user's, by what Hydra calls who gave it."""
    return provider not in _NOT_OWN


def taken_out(flags: Sequence[str], overrides: Sequence[str]) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Parts the folders from flags and overrides.

    Returns:
        The other flags, the other overrides, and the folders as places on the search path, each once.

    Raises:
        UsageError: a folder does not exist, or holds configs where none is looked for.
    """
    found: list[str] = []
    kept_flags: list[str] = []
    rest = list(flags)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            found.append(_place(value if equals else rest.pop(0), name))
        else:
            kept_flags.append(word)
    kept_overrides: list[str] = []
    for word in overrides:
        entries = _entries(word)
        if entries is None:
            kept_overrides.append(word)
        else:
            found.extend(_place(entry, _KEY) for entry in entries)
    shipped = f"{_UserFolder.scheme()}://{conf_dir().resolve()}"
    return kept_flags, kept_overrides, tuple(place for place in dict.fromkeys(found) if place != shipped)


@contextmanager
def on_search_path(places: tuple[str, ...]) -> Iterator[None]:
    """Has Hydra look at these places first, for as long as the context lasts; modules that lie there are importable.

    Raises:
        UsageError: two of them have a config of the same name.
    """
    Plugins.instance().register(_OwnFolders)
    refuse_doubles([_source(place) for place in places])
    token = _present.set(places)
    added = [folder for folder in map(_modules_of, places) if folder and folder not in sys.path]
    sys.path += added  # behind all others: what is importable already stays what it is
    try:
        yield
    finally:
        _present.reset(token)
        for folder in added:
            sys.path.remove(folder)


def _modules_of(place: str) -> str:
    """The folder of a place that holds modules of Python; empty where it holds none."""
    scheme, _, path = place.partition("://")
    return path if scheme == _UserFolder.scheme() and next(Path(path).glob("*.py"), None) is not None else ""


def refuse_doubles(sources: Sequence[ConfigSource]) -> None:
    """Two configs of one name would make it a matter of order which one is meant.

    Raises:
        UsageError: there are such; the sentence names both files.
    """
    if len(sources) < 2:
        return
    first: dict[str, ConfigSource] = {}
    for source in sources:
        for name in (name for group in _groups() if source.is_group(group) for name in _names(source, group)):
            other = first.setdefault(name, source)
            if other is not source:
                group, _, config = name.rpartition("/")
                raise UsageError(
                    f"Two of your folders have a {group} called {config!r}: {file_of(other, name)} and "
                    f"{file_of(source, name)}. Next step: rename one of them, or leave one folder out"
                )


def register_schemes() -> None:
    """Makes the kinds of places known to Hydra."""
    for kind in (_UserFolder, _UserPackage):
        SourcesRegistry.instance().register(kind)


def is_folder(source: ConfigSource) -> bool:
    """Whether a source is a folder on the disk; Hydra loads its classes anew, so that `isinstance` does not tell."""
    return source.scheme() in (FileConfigSource.scheme(), _UserFolder.scheme())


def file_of(source: ConfigSource, name: str) -> str:
    """Where a source has a config, for people: a path, or a package's name before it."""
    if is_folder(source):
        return str(Path(source.path) / f"{name}.yaml")
    return f"{source.scheme()}://{source.path}/{name}.yaml"


def unread_primary(source: ConfigSource) -> str:
    """The file of a user's folder that would be the primary config if it were read; empty when there is none."""
    path = Path(source.path) / f"{PRIMARY}.yaml"
    return str(path) if source.scheme() == _UserFolder.scheme() and path.is_file() else ""


def _source(place: str) -> ConfigSource:
    register_schemes()
    return SourcesRegistry.instance().resolve(place.partition("://")[0])(_OWN, place)


def _names(source: ConfigSource, group: str) -> Iterator[str]:
    for name in source.list(group, ObjectType.CONFIG):
        yield f"{group}/{name}"
    for name in source.list(group, ObjectType.GROUP):
        yield from _names(source, f"{group}/{name}")


def _groups() -> list[str]:
    return sorted(entry.name for entry in conf_dir().iterdir() if entry.is_dir())


def _place(entry: str, given_by: str) -> str:
    """A folder as a place on the search path; other schemes than Hydra's own two are left to their plug-ins."""
    scheme, separator, path = entry.partition("://")
    if separator and scheme == "pkg":
        return f"{_UserPackage.scheme()}://{path}"
    if separator and scheme != "file":
        return entry
    folder = Path(path if separator else entry).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(
            f"{given_by}: the folder '{folder}' not found. Next step: name one that holds model/NAME.yaml or the like"
        )
    misnamed = next((file for group in _groups() for file in sorted(folder.glob(f"{group}/*.yml"))), None)
    if misnamed is not None:
        raise UsageError(f"{given_by}: {misnamed} is not read. Next step: let its name end in .yaml")
    loose = next((file.name for file in sorted(folder.glob("*.yaml")) if file.stem != PRIMARY), "")
    if loose and next(folder.glob("*/*.yaml"), None) is None:
        instead = f"name {folder.parent}" if folder.name in _groups() else f"move it to {folder / 'model' / loose}"
        raise UsageError(
            f"{given_by}: {loose} in '{folder}' lies in no group, so nothing can choose it. Next step: {instead}"
        )
    return f"{_UserFolder.scheme()}://{folder}"


def _entries(override: str) -> list[str] | None:
    """What an override adds to the search path; None for other overrides, and for what Hydra will refuse."""
    if override.lstrip("+").partition("=")[0] != _KEY:
        return None
    try:
        value = OverridesParser.create().parse_override(override).value()
    except OverrideParseException:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return None
    return [str(item) for item in value]


def _is_primary(config_path: str) -> bool:
    return config_path.removesuffix(".yaml") == PRIMARY
