"""Configs of a group (`model`, `provider`, `exporter`) along Hydra's search path: the user's folders, then the shipped
one.

A group and a name go in, a plain dict comes out. Hydra composes one option per group; the matrix needs many, so they
are read here. Nothing is instantiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from batch_export.config import brought_exporters
from batch_export.config.folders import file_of, is_folder, is_own, refuse_doubles, register_schemes, unread_primary
from batch_export.config.variables import unset_variable
from batch_export.errors import UsageError
from batch_export.words import error_line, nearest

TAG = "tag:"
OWN = "own"
"""Chooses what lies in the user's folders; a config cannot be chosen by this name."""

_MOST_NAMES = 8


class ConfigGroups:
    """Reads the configs of a group.

    Args:
        sources: `(provider, path)` of the search path, as in `hydra.runtime.config_sources`; the user's come first here
            even where Hydra put them last.

    Raises:
        UsageError: two of the user's folders have a config of the same name.
    """

    def __init__(self, sources: Iterable[tuple[str, str]]) -> None:
        register_schemes()
        path = ConfigSearchPathImpl()
        for provider, address in sorted(sources, key=lambda source: not is_own(source[0])):
            path.append(provider, address)
        self._repository = ConfigRepository(path)
        places = self._repository.get_sources()
        self._own = [place for place in places if is_own(place.provider)]
        self._shipped = [place for place in places if not is_own(place.provider)]
        refuse_doubles(self._own)
        self._loaded: dict[str, dict[str, Any]] = {}
        self._includes: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def names(self, group: str) -> list[str]:
        """Names of the group's configs, sorted."""
        options: list[str] = self._repository.get_group_options(group, ObjectType.CONFIG)
        return sorted(set(options))

    def all_names(self, group: str) -> list[str]:
        """Those names, and those that installed packages bring, sorted."""
        brought = brought_exporters.names() if group == brought_exporters.CONFIG_GROUP else []
        return sorted({*self.names(group), *brought})

    def own(self, group: str) -> list[str]:
        """Names of those that lie in the user's folders, sorted."""
        return [name for name in self.names(group) if self._owner(group, name) is not None]

    def own_folders(self) -> list[Path]:
        """The user's config folders on the disk."""
        return [Path(place.path) for place in self._own if is_folder(place)]

    def files(self, group: str, name: str) -> list[Path]:
        """The files that a config was read from, its own first; what lies in a package has none."""
        found = []
        for pair in self._with_included([(group, name)]):
            where = "/".join(pair)
            place = next((place for place in (*self._own, *self._shipped) if place.is_config(where)), None)
            if place is not None and is_folder(place):
                found.append(Path(file_of(place, where)))
        return found

    def hidden(self, used: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Sentences, one a folder and group, about configs in use that hide the shipped ones of their names.

        Args:
            used: groups and names; what these include by `defaults` is looked at too, as far as it was loaded.
        """
        found: dict[tuple[str, str], dict[str, None]] = {}
        for group, name in self._with_included(used):
            where = f"{group}/{name}"
            owner = self._owner(group, name)
            if owner is not None and any(place.is_config(where) for place in self._shipped):
                found.setdefault((group, owner.path), {})[name] = None
        unread = [file for place in self._own if (file := unread_primary(place))]
        return (
            *(_hiding(group, folder, list(names)) for (group, folder), names in found.items()),
            *(f"{file} is not read: what every run starts from is the shipped one" for file in unread),
        )

    def load(self, group: str, name: str) -> dict[str, Any]:
        """The config as a plain dict, with `defaults: [other]` of the same group merged in and interpolations resolved.

        Raises:
            UsageError: there is no such config, or its YAML is malformed.
        """
        where = f"{group}/{name}"
        if where in self._loaded:
            return dict(self._loaded[where])
        try:
            merged = self._merged(group, name, ())
            resolved = OmegaConf.to_container(merged, resolve=True)
        except YAMLError as error:
            raise UsageError(not_yaml(where, error)) from error
        except UnicodeDecodeError as error:
            raise UsageError(
                f"The config {where}.yaml is not text in UTF-8 (byte {error.start}). Next step: save it as UTF-8"
            ) from error
        except OSError as error:
            raise UsageError(f"The config {where}.yaml cannot be read ({error.strerror})") from error
        except RecursionError as error:
            raise UsageError(f"The config {where}.yaml is nested too deeply, or refers to itself") from error
        except OmegaConfBaseException as error:
            said = f"{error.full_key}: {unset_variable(error)}" if unset_variable(error) else error_line(error)
            raise UsageError(f"The config {where}.yaml cannot be resolved: {said}") from error
        assert isinstance(resolved, dict)
        self._loaded[where] = {str(key): value for key, value in resolved.items()}
        return dict(self._loaded[where])

    def select(self, group: str, patterns: Sequence[str]) -> list[str]:
        """Names that the patterns choose: names, globs, `tag:<word>`, `own`; in the patterns' order, each once.

        Raises:
            UsageError: a pattern chooses nothing; the sentence has the nearest names.
        """
        names = self.names(group)
        if not all(word in names or word == OWN or word.startswith(TAG) for word in patterns):
            names = self.all_names(group)  # asking every installed package takes time
        tags: dict[str, list[str]] = {}
        if any(pattern.startswith(TAG) for pattern in patterns):
            for name in names:
                listed = self.load(group, name).get("tags") or ()
                for tag in (listed,) if isinstance(listed, str) else listed:
                    tags.setdefault(str(tag), []).append(name)
        chosen: dict[str, None] = {}
        for pattern in patterns:
            if pattern == OWN:
                found, known = self._all_own(group), []
            elif pattern.startswith(TAG):
                found = tags.get(pattern.removeprefix(TAG), [])
                known = [TAG + tag for tag in sorted(tags)]
            else:
                found = [name for name in names if fnmatchcase(name, pattern)]
                own = frozenset(() if found else self.own(group))
                known = sorted(names, key=lambda name: name not in own)  # the user's first, of which few may be shown
            if not found:
                raise UsageError(unknown(group, pattern, known))
            chosen.update(dict.fromkeys(found))
        return list(chosen)

    def _all_own(self, group: str) -> list[str]:
        names = self.own(group)
        if OWN in self.names(group):
            raise UsageError(
                f"{'An' if group[0] in 'aeiou' else 'A'} {group} cannot be called {OWN!r}, which stands for all those "
                "of your folders. "
                f"Next step: rename {group}/{OWN}.yaml"
            )
        if not names:
            folders = " and ".join(place.path for place in self._own)
            there = f"{folders} has none" if folders else "no folder is given"
            raise UsageError(
                f"{OWN!r} stands for each {group} of your folders, and {there}. "
                f"Next step: --config-dir DIR, where DIR holds {group}/NAME.yaml"
            )
        return names

    def _with_included(self, used: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        found = list(dict.fromkeys(used))
        for pair in found:
            found.extend(other for other in self._includes.get(pair, ()) if other not in found)
        return found

    def _owner(self, group: str, name: str) -> ConfigSource | None:
        return next((place for place in self._own if place.is_config(f"{group}/{name}")), None)

    def _merged(self, group: str, name: str, seen: tuple[str, ...]) -> DictConfig:
        where = f"{group}/{name}"
        if name in seen:
            raise UsageError(f"The config {where}.yaml includes itself: {' -> '.join((*seen, name))}")
        try:
            result = self._repository.load_config(where)
        except UnicodeDecodeError:
            raise
        except ValueError as error:  # of a `defaults` that is no list of names
            raise UsageError(f"The config {where}.yaml cannot be read: {error}") from None
        if result is None:
            brought = brought_exporters.config(name) if group == brought_exporters.CONFIG_GROUP else None
            if brought is None:
                raise UsageError(unknown(group, name, self.all_names(group)))
            return OmegaConf.create(brought)
        own = result.config
        if not isinstance(own, DictConfig):
            raise UsageError(f"The config {where}.yaml must be a mapping of keys to values, not a list")
        base = OmegaConf.create({})
        own_last = True
        for entry in result.defaults_list or ():
            option = getattr(entry, "value", None)
            if getattr(entry, "path", None) == "_self_":
                base = _merge(base, own)
                own_last = False
            else:
                included = option if isinstance(option, str) else getattr(entry, "path", None)
                if not isinstance(included, str) or _group_of(entry) not in ("", group):
                    raise UsageError(
                        f"The config {where}.yaml: `defaults` may list configs of the group {group} only, by name "
                        f"(`defaults: [other]`). Next step: write what they have into a {group} config of its own"
                    )
                included = included.rpartition("/")[2]
                self._includes.setdefault((group, name), []).append((group, included))
                base = _merge(base, self._merged(group, included, (*seen, name)))
        return _merge(base, own) if own_last else base


def _group_of(entry: object) -> str:
    """The group that an entry of `defaults` names; empty where it names none."""
    return str(getattr(entry, "group", None) or "").strip("/")


def not_yaml(where: str, error: YAMLError) -> str:
    """The sentence for a config that is not valid YAML; `where` is its group and name, empty where nobody says it."""
    return f"The config {where + '.yaml ' if where else ''}is not valid YAML: {' '.join(str(error).split())}"


def unknown(what: str, word: str, known: Sequence[str]) -> str:
    """The sentence for a name that does not exist, with the nearest ones, or all when they are few."""
    near = nearest(word, known)
    if near:
        hint = f"nearest: {', '.join(near)}"
    elif not known:
        hint = f"there is no {what} config on the search path"
    else:
        shown = list(known[:12])
        hint = f"known: {', '.join(shown)}" + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return f"Unknown {what} {word!r} ({hint})"


def _hiding(group: str, folder: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    if len(names) == 1:
        return f"{group} {shown} is the one of {folder}, which hides the shipped one"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{group}s {shown}{more} are those of {folder}, which hide the shipped ones"


def _merge(left: DictConfig, right: DictConfig) -> DictConfig:
    merged = OmegaConf.merge(left, right)
    assert not isinstance(merged, ListConfig)
    assert isinstance(merged, DictConfig)
    return merged
