"""Sizes that inputs follow, found in a config and in the configs within it: patches, channels, bins, vocabularies.

A config arrives and numbers leave. What a modality has of its own is looked for in that modality's config first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batch_export.collections.small_models.configs import nested, value_of
from batch_export.collections.small_models.leaves import EXAMPLES


class ConfigSizes:
    """The sizes in one config.

    Args:
        config: a config, made small.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.vision = self._holder("patch_size", "image_size", prefer=("vision_config", "image_encoder", "encoder"))
        self.sound = self._holder("num_mel_bins", "n_mel_bins", "feature_size", prefer=("audio_config", "encoder"))

    def image_size(self) -> int:
        """Returns the side of an image, 512 at most."""
        for holder in (self.vision, self.config):
            size = value_of(holder, "image_size")
            if isinstance(size, list | tuple) and size:
                size = size[0]
            if isinstance(size, Mapping):
                size = size.get("height")
            if isinstance(size, int) and 0 < size <= 512:
                return size
        patch = self.patch()
        return patch * 4 if 7 <= patch <= 40 else EXAMPLES["height"]

    def patch(self) -> int:
        """Returns the side of a patch; 16 where none is stated."""
        size = value_of(self.vision, "patch_size")
        if isinstance(size, list | tuple):
            size = size[-1]
        return size if isinstance(size, int) else 16

    def channels(self) -> int:
        """Returns an image's channels; 3 where none are stated."""
        for holder in (self.vision, self.config):
            for name in ("num_channels", "in_channels", "in_chans", "num_input_channels"):
                value = value_of(holder, name)
                if isinstance(value, int):
                    return value
        return 3

    def bins(self) -> int:
        """Returns a sound's features a frame; 80 where none are stated."""
        for name in ("num_mel_bins", "n_mel_bins", "feature_size", "input_feat_per_channel", "input_dim", "mel_bins"):
            value = value_of(self.sound, name)
            if isinstance(value, int):
                return value
        return self.number("num_mel_bins", "feature_size", "input_dim") or 80

    def vocabulary(self, *prefer: str) -> int:
        """Returns the number of ids, from the configs of these names first; 32 where none is stated."""
        found = [value_of(one, "vocab_size") for one in self._configs(prefer or ("text_config",))]
        known = [value for value in found if isinstance(value, int) and value > 1]
        return known[0] if known else 32

    def hidden(self) -> int:
        """Returns the width of the config, or of one within it; 64 where none is stated."""
        for name in ("hidden_size", "d_model", "embed_dim", "dim"):
            value = value_of(self.config, name)
            if isinstance(value, int):
                return value
        return next((value for one in self._configs(()) if isinstance(value := value_of(one, "hidden_size"), int)), 64)

    def token(self, what: str) -> int | None:
        """Returns the id of a modality's token."""
        for name in (f"{what}_token_id", f"{what}_token_index"):
            value = value_of(self.config, name)
            if isinstance(value, int):
                return value
        return None

    def number(self, *names: str) -> int | None:
        """Returns the first whole number under one of these names, in any of the configs."""
        for name in names:
            for one in self._configs(()):
                value = value_of(one, name)
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return None

    def _holder(self, *names: str, prefer: Sequence[str]) -> Any:
        for name in names:
            for one in self._configs(prefer):
                if value_of(one, name) is not None:
                    return one
        return self.config

    def _configs(self, prefer: Sequence[str]) -> list[Any]:
        """The config and those within it, the preferred ones first, at any depth."""
        inner = dict(nested(self.config))
        first = [inner[name] for name in prefer if name in inner]
        found = [*first, self.config]
        for one in found:
            found.extend(value for _, value in nested(one) if not any(value is other for other in found))
        return found
