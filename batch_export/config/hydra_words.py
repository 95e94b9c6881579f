"""Words of Hydra's that would be taken for arguments: `???` for a value that has to be given, and what its
`instantiate` reads beside the outermost `_target_`, for which it is not used here.

The mapping of a config arrives, half a sentence leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OF_INSTANTIATE = ("_args_", "_partial_", "_recursive_", "_convert_")
_NOT_GIVEN = "???"


def unmeant(config: Mapping[str, Any]) -> str:
    """Returns what is wrong with the first such word of a config of a model, a provider or an exporter; empty: none."""
    for word in _OF_INSTANTIATE:
        if word in config:
            return (
                f"{word!r} is a word of Hydra's instantiate, which is not used here: '_target_' is called with the "
                "other keys as arguments by name; remove it"
            )
    for key in _left_open(config, ""):
        return f"{key!r} is ???, a value that has to be given; set it here, or in a config that starts from this one"
    return ""


def _left_open(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _left_open(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _left_open(inner, f"{key}[{index}]")
    elif value == _NOT_GIVEN:
        yield key
