"""Configs of a group (`model`, `provider`, `exporter`) along Hydra's search path: ours, `--config-dir`,
hydra.searchpath.

A group and a name go in, a plain dict comes out. Hydra composes one option per group; the matrix needs many, so they
are read here. Nothing is instantiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from batch_export.config_schema import nearest
from batch_export.errors import UsageError

TAG = "tag:"


class ConfigGroups:
    """Reads the configs of a group.

    Args:
        sources: `(provider, path)` of the search path, first found wins; as in `hydra.runtime.config_sources`.
    """

    def __init__(self, sources: Iterable[tuple[str, str]]) -> None:
        path = ConfigSearchPathImpl()
        for provider, address in sources:
            path.append(provider, address)
        self._repository = ConfigRepository(path)
        self._loaded: dict[str, dict[str, Any]] = {}

    def names(self, group: str) -> list[str]:
        """Names of the group's configs, sorted."""
        options: list[str] = self._repository.get_group_options(group, ObjectType.CONFIG)
        return sorted(set(options))

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
            place = " ".join(str(error).split())
            raise UsageError(f"The config {where}.yaml is not valid YAML: {place}") from error
        except RecursionError as error:
            raise UsageError(f"The config {where}.yaml is nested too deeply, or refers to itself") from error
        except OmegaConfBaseException as error:
            raise UsageError(f"The config {where}.yaml cannot be resolved: {str(error).splitlines()[0]}") from error
        assert isinstance(resolved, dict)
        self._loaded[where] = {str(key): value for key, value in resolved.items()}
        return dict(self._loaded[where])

    def select(self, group: str, patterns: Sequence[str]) -> list[str]:
        """Names that the patterns choose: plain names, globs and `tag:<word>`; in the patterns' order, each once.

        Raises:
            UsageError: a pattern chooses nothing; the sentence has the nearest names.
        """
        names = self.names(group)
        tags: dict[str, list[str]] = {}
        if any(pattern.startswith(TAG) for pattern in patterns):
            for name in names:
                listed = self.load(group, name).get("tags") or ()
                for tag in (listed,) if isinstance(listed, str) else listed:
                    tags.setdefault(str(tag), []).append(name)
        chosen: dict[str, None] = {}
        for pattern in patterns:
            if pattern.startswith(TAG):
                found = tags.get(pattern.removeprefix(TAG), [])
                known = [TAG + tag for tag in sorted(tags)]
            else:
                found = [name for name in names if fnmatchcase(name, pattern)]
                known = names
            if not found:
                raise UsageError(unknown(group, pattern, known))
            chosen.update(dict.fromkeys(found))
        return list(chosen)

    def _merged(self, group: str, name: str, seen: tuple[str, ...]) -> DictConfig:
        where = f"{group}/{name}"
        if name in seen:
            raise UsageError(f"The config {where}.yaml includes itself: {' -> '.join((*seen, name))}")
        result = self._repository.load_config(where)
        if result is None:
            raise UsageError(unknown(group, name, self.names(group)))
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
                if not isinstance(included, str):
                    raise UsageError(f"The config {where}.yaml: `defaults` may list configs of the group {group} only")
                base = _merge(base, self._merged(group, included.rpartition("/")[2], (*seen, name)))
        return _merge(base, own) if own_last else base


def unknown(what: str, word: str, known: Sequence[str]) -> str:
    """The sentence for a name that does not exist, with the nearest ones, or all when they are few."""
    near = nearest(word, list(known))
    if near:
        hint = f"nearest: {', '.join(near)}"
    elif not known:
        hint = f"there is no {what} config on the search path"
    else:
        shown = list(known[:12])
        hint = f"known: {', '.join(shown)}" + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    return f"Unknown {what} {word!r} ({hint})"


def _merge(left: DictConfig, right: DictConfig) -> DictConfig:
    merged = OmegaConf.merge(left, right)
    assert not isinstance(merged, ListConfig)
    assert isinstance(merged, DictConfig)
    return merged
