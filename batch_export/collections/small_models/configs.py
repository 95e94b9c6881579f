"""Reading a config of transformers, whose fields have several names for the same thing.

A config arrives and values leave; nothing is changed, and a field that a config raises about is as good as none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

_MISSING = object()


def value_of(config: Any, name: str) -> Any:
    """A field of a config by its own or its standard name; None where it has none, or one of its own in each layer."""
    try:
        return getattr(config, name, None)
    except Exception:  # whatever a config raises about a field that it has no single value for
        return None


def nested(config: Any) -> Iterator[tuple[str, Any]]:
    """Yields the configs within a config, with their fields' names."""
    for name, value in vars(config).items():
        if not name.startswith("_") and hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield name, value


def every(config: Any) -> Iterator[Any]:
    yield config
    for _, inner in nested(config):
        yield from every(inner)


def text_of(config: Any) -> Any:
    """The config of the text within a config, or itself."""
    return next((inner for name, inner in nested(config) if name == "text_config"), config)


def own_width(config: Any) -> int:
    """A config's own width, by its standard name or one of those that stand for it."""
    for name in ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "hidden_dim", "width"):
        value = value_of(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def beside_defaults(config: Any) -> dict[str, Any]:
    """The fields of a config that its class alone would not give it, those that its class does not know among them."""
    default = _defaults(config)
    known = known_fields(config, default)
    found = {
        name: value
        for name, value in vars(config).items()
        if name in known and name[:1] != "_" and _plain(value) and default.get(name, _MISSING) != value
    }
    chosen = chosen_stages(config)
    return {**found, "out_indices": list(chosen)} if chosen and chosen != default.get(_CHOSEN_STAGES) else found


def known_fields(config: Any, default: Mapping[str, Any] | None = None) -> set[str]:
    """The fields that a config's class has, and those beyond them that this config was given."""
    if not dataclasses.is_dataclass(config):
        return set(vars(config))
    default = _defaults(config) if default is None else default
    given = {name for name in vars(config) if name not in default and name[:1] != "_"} if default else set()
    return given | {item.name for item in dataclasses.fields(config)}


def _defaults(config: Any) -> dict[str, Any]:
    try:
        return dict(vars(type(config)()))
    except Exception:  # a class that needs arguments
        return {}


_CHOSEN_STAGES = "_out_indices"


def chosen_stages(config: Any) -> list[int]:
    """Returns the stages that a backbone gives out, where 0 is its stem; none where the config is not a backbone's."""
    found = vars(config).get(_CHOSEN_STAGES)
    return list(found) if isinstance(found, list | tuple) and all(isinstance(one, int) for one in found) else []


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return isinstance(value, str | int | float | bool)
