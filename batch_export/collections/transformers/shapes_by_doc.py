"""The shapes that the docstring of a forward gives its parameters: `x (torch.LongTensor of shape (batch_size, 3))`.

A docstring and the sizes in a config arrive, leaves by parameter leave. What a symbol means is read from its name; a
shape with one that says nothing is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from batch_export.collections.small_models.configs import value_of
from batch_export.collections.small_models.leaves import Entry, Leaf
from batch_export.collections.transformers.config_sizes import ConfigSizes

_SHAPE = re.compile(
    r"^\s*(?P<name>\w+)(?: \(|: an? )`?(?:torch\.)?(?P<kind>\w*Tensor)`? of shape `?"
    r"[(\[](?P<shape>(?:len\([\w.]*\)|[^)\]])*)[)\]]?",
    re.MULTILINE,
)
_COUNTED = re.compile(r"len\((?:self\.)?(?:config\.)?(?P<name>\w+)")
_DTYPES = {"LongTensor": "int64", "IntTensor": "int64", "BoolTensor": "bool"}

_AXES: tuple[tuple[str, Entry], ...] = (
    (r"^batch(_size)?$|^num_audio_samples$", "batch"),
    (r"^(max_)?num_(images|cameras|tiles|crops|audios|videos|objects)$", 1),
    (r"^num_image_tokens$", 4),
    (r"^num_patches$", 16),
    (r"target.*(length|len)$|decoder.*(length|len)$", "target"),
    (r"^(num_)?frames$|feature_length$|audio_length$|^time(_steps)?$|^num_mel_frames$", "frames"),
    (r"^(num_)?samples$|^audio_(samples|len)$|^raw_length$", "samples"),
    (r"(sequence|episode|seq|text|context|token|prompt)_?(length|len)$|number_of_\w*tokens$|^length$", "seq"),
    (r"^(height|image_size|image_height)$", "height"),
    (r"^(width|image_width)$", "width"),
)


def shapes_by_doc(doc: str, found: ConfigSizes) -> Mapping[str, Leaf]:
    """Returns leaves by the names of the parameters whose shapes a docstring gives.

    Args:
        doc: of a forward.
        found: the sizes in its config.
    """
    leaves: dict[str, Leaf] = {}
    for said in _SHAPE.finditer(doc):
        entries = [_entry(one.strip(), said["name"], found) for one in said["shape"].split(",") if one.strip()]
        if entries.count("height") == 2:  # two sides of the same name
            entries[entries.index("height", entries.index("height") + 1)] = "width"
        known = tuple(entry for entry in entries if entry is not None)
        if len(known) == len(entries) and known:
            leaves.setdefault(said["name"], _leaf(said["name"], said["kind"], known))
    return leaves


def _leaf(name: str, kind: str, shape: tuple[Entry, ...]) -> Leaf:
    dtype = _DTYPES.get(kind, "float32")
    if name.endswith("mask"):
        return Leaf("bool" if dtype == "bool" else "int64", shape, fill=1)
    if dtype == "int64":
        return Leaf(dtype, shape, 0, 2)
    return Leaf(dtype, shape, fill=1) if dtype == "bool" else Leaf(dtype, shape)


def _entry(symbol: str, name: str, found: ConfigSizes) -> Entry | None:
    symbol = symbol.strip("`' \n")
    if symbol.isdigit():
        return int(symbol)
    counted = _COUNTED.match(symbol)
    if counted:
        return len(value_of(found.config, counted["name"]) or ()) or None
    if "*" in symbol:
        factors = [_entry(one, name, found) for one in symbol.split("*")]
        known = [one for one in factors if isinstance(one, int)]
        return math.prod(known) if len(known) == len(factors) else None
    for pattern, entry in _AXES:
        if re.search(pattern, symbol):
            return entry
    if symbol in ("num_channels", "channels"):
        return found.channels() if "pixel" in name or "image" in name else (found.number("audio_channels") or 1)
    if symbol in ("num_mel_bins", "mel_bins", "feature_dim", "feature_size", "num_mel_filters"):
        return found.bins()
    if symbol in ("dim", "hidden_size", "embed_dim"):
        return found.hidden()
    return found.number(symbol.removeprefix("config."))
