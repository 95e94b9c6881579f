"""Which inputs a model may be called with, guessed from the names of its parameters and the sizes in its config.

A config and a signature arrive; attempts leave, the fullest first. An attempt is a guess: `describing.py` calls the
model with it and keeps the first that eager takes. A name that is not known here is guessed by its ending.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batch_export.collections.transformers.shrinking import IDENTITIES, nested, value_of

Entry = int | str

EXAMPLES = {"batch": 2, "seq": 9, "target": 6, "height": 64, "width": 64, "frames": 24, "samples": 1600, "past": 32}
"""Example sizes of axes, where the config asks for no others."""

_MOST_PRODUCTS = 24

_SOUND_MASKS = ("input_features_mask", "feature_attention_mask", "audio_attention_mask")

GRIDS = {
    "image_grid_thw": (0, 1, 1),
    "grid_thw": (0, 1, 1),
    "grid_thws": (0, 1, 1),
    "image_grid_hws": (1, 1),
    "grid_hws": (1, 1),
    "image_grids": (1, 1),
}
"""Parameters that say how many patches an image has along time (0: one), height and width; one image is given."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor: as `InputSpec`, without its path."""

    dtype: str
    shape: tuple[Entry, ...]
    low: int | None = None
    high: int | None = None
    fill: int | None = None

    def config(self) -> dict[str, Any]:
        """The leaf as a model's configuration writes it."""
        written: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        if self.high is not None:
            written["range"] = [self.low or 0, self.high]
        if self.fill is not None:
            written["fill"] = self.fill
        return written


@dataclass(frozen=True, slots=True)
class Attempt:
    """A guess at a model's inputs.

    Attributes:
        leaves: by parameter.
        sizes: example sizes of the axes that the leaves name.
        fixed: arguments that no input gives, see `building.Completed`.
        modality: `image` or `audio` where places for its features go before the text.
    """

    leaves: Mapping[str, Leaf]
    sizes: Mapping[str, int]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    modality: str = ""


class Guesser:
    """Guesses for one model.

    Args:
        config: its config, made small.
        parameters: of its forward, without `self`.
        main: what the class calls its main input.
    """

    def __init__(self, config: Any, parameters: Mapping[str, inspect.Parameter], main: str) -> None:
        self.config = config
        self.parameters = parameters
        self.main = main
        self.sizes = dict(EXAMPLES)
        self.vision = self._holder("patch_size", "image_size", prefer=("vision_config", "image_encoder", "encoder"))
        self.sound = self._holder("num_mel_bins", "n_mel_bins", "feature_size", prefer=("audio_config", "encoder"))

    def attempts(self, also: Sequence[str] = ()) -> Iterator[Attempt]:
        """Yields guesses, the fullest first.

        Args:
            also: further parameters to give, such as those that an error named.
        """
        names = set(self.parameters)
        needed = [
            name
            for name, parameter in self.parameters.items()
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        ]
        needed = [name for name in needed if name not in GRIDS]
        chosen = list(dict.fromkeys([*([self.main] if self.main in names else []), *needed, *also]))
        text = [name for name in ("input_ids",) if name in names]
        seen = [name for name in ("pixel_values", "input_features", "input_values") if name in names]
        decoder = [name for name in ("decoder_input_ids",) if name in names]
        masks = [name for name in _SOUND_MASKS if name in names]
        places = [name for name in ("bbox",) if name in names and text]
        every = [*chosen, *text, *places, *seen, *decoder]
        for base in _distinct(
            [
                every,
                [*every, *masks],
                [*chosen, *decoder],
                [*chosen, *masks],
                [*chosen, *text, *places],
                [*chosen, *text],
                chosen,
            ]
        ):
            base = [name for name in self.parameters if name in base]
            if "input_ids" in base and "inputs_embeds" in base and "inputs_embeds" not in needed:
                base.remove("inputs_embeds")
            if not base:
                continue
            options = [self.options(name, base) for name in base]
            for picked in itertools.islice(itertools.product(*options), _MOST_PRODUCTS):
                yield from self._completed(dict(zip(base, picked, strict=True)))

    def _completed(self, leaves: dict[str, Leaf]) -> Iterator[Attempt]:
        fixed: dict[str, Any] = {}
        ids = leaves.get("input_ids")
        if ids is not None and "attention_mask" in self.parameters and len(ids.shape) == 2:
            leaves = {**leaves, "attention_mask": leaves.get("attention_mask", Leaf("int64", ids.shape, fill=1))}
        modality = ""
        if "input_ids" in leaves and "pixel_values" in leaves and self._token("image") is not None:
            modality = "image"
        elif "input_ids" in leaves and self._token("audio") is not None:
            modality = "audio" if {"input_features", "input_values"} & set(leaves) else ""
        patches = leaves.get("pixel_values") or leaves.get("hidden_states")
        if patches is not None and isinstance(patches.shape[0], int):
            fixed |= self._grid(patches)
            if "input_ids" in leaves:  # one grid is one image, so that it is one row
                leaves = {name: _one_row(leaf) for name, leaf in leaves.items()}
        yield self._attempt(leaves, fixed, modality)
        if "image_sizes" in self.parameters and "pixel_values" in leaves:
            sized = {**fixed, "image_sizes": [[self._image_size(), self._image_size()]]}
            yield self._attempt({name: _one_row(leaf) for name, leaf in leaves.items()}, sized, modality)

    def _attempt(self, leaves: Mapping[str, Leaf], fixed: Mapping[str, Any], modality: str) -> Attempt:
        ordered = {name: leaves[name] for name in self.parameters if name in leaves}
        named = {term for leaf in ordered.values() for term in leaf.shape if isinstance(term, str)}
        return Attempt(ordered, {name: size for name, size in self.sizes.items() if name in named}, fixed, modality)

    def options(self, name: str, base: Sequence[str]) -> list[Leaf]:
        """The shapes that a parameter of this name may have, the likeliest first."""
        own = getattr(self, f"_{name}", None)
        if own is not None:
            found: list[Leaf] = own(base)
            return found
        row: tuple[Entry, ...] = ("batch", "target" if name.startswith("decoder") else "seq")
        if name.endswith(("_mask", "mask")):
            return [Leaf("int64", row, fill=1), Leaf("bool", row, fill=1), Leaf("float32", row, fill=1)]
        if name.endswith(("_ids", "langs", "tokens", "codes")):
            return [Leaf("int64", row, 0, 2), Leaf("int64", ("batch",), 0, 2), Leaf("int64", (*row, 1), 0, 2)]
        if name in ("timestep", "timesteps", "lengths", "langs"):
            return [Leaf("int64", ("batch",), 1, 8)]
        wide = self._hidden()
        return [
            Leaf("float32", (*row, wide)),
            Leaf("float32", ("batch", wide)),
            Leaf("float32", ("batch", wide, "height", "width")),
            Leaf("float32", ("batch", wide, "frames")),
            Leaf("float32", row),
        ]

    # What is known of names.

    def _input_ids(self, base: Sequence[str]) -> list[Leaf]:
        del base
        high = self._vocabulary()
        low = IDENTITIES if high > 2 * IDENTITIES else 0
        books = self._number("num_codebooks", "n_codebooks", "num_channels") or 1
        plain = Leaf("int64", ("batch", "seq"), low, high)
        if books > 1 and self._number("num_codebooks", "n_codebooks"):
            return [
                Leaf("int64", ("batch", "seq", books), low, high),
                Leaf("int64", ("batch", books, "seq"), low, high),
                plain,
            ]
        return [plain, Leaf("int64", ("batch", 2, "seq"), low, high), Leaf("int64", (1, "seq"), low, high)]

    def _decoder_input_ids(self, base: Sequence[str]) -> list[Leaf]:
        del base
        high = self._vocabulary("decoder", "text_config")
        low = IDENTITIES if high > 2 * IDENTITIES else 0
        books = self._number("num_codebooks", "n_codebooks", "num_channels")
        found = [Leaf("int64", ("batch", "target"), low, high)]
        if books and books > 1:
            found.append(Leaf("int64", ("batch", "target", books), low, high))
            found.append(Leaf("int64", (EXAMPLES["batch"] * books, "target"), low, high))
        return found

    def _inputs_embeds(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", self._hidden()))]

    def _pixel_values(self, base: Sequence[str]) -> list[Leaf]:
        channels = self._channels()
        self._sized()
        patch = self._patch()
        image = Leaf("float32", ("batch", channels, "height", "width"))
        frames = self._number("num_frames", "frames") or 2
        flat = channels * patch * patch
        found = [image]
        if any(name in self.parameters for name in GRIDS):
            temporal = self._number("temporal_patch_size") or 1
            return [Leaf("float32", (16, flat * temporal)), Leaf("float32", (16, channels, patch, patch)), image]
        if "spatial_shapes" in self.parameters:
            return [Leaf("float32", ("batch", 16, flat)), image]
        if "image_position_ids" in self.parameters or "pixel_position_ids" in self.parameters:
            found.insert(0, Leaf("float32", ("batch", 16, flat)))
        found.append(Leaf("float32", ("batch", 1, channels, "height", "width")))
        found.append(Leaf("float32", ("batch", frames, channels, "height", "width")))
        return found

    def _hidden_states(self, base: Sequence[str]) -> list[Leaf]:
        if any(name in self.parameters for name in GRIDS):
            channels, patch = self._channels(), self._patch()
            temporal = self._number("temporal_patch_size") or 1
            return [Leaf("float32", (16, channels * temporal * patch * patch))]
        wide = self._hidden()
        latent = self._number("codebook_dim", "upsample_initial_channel", "latent_channels") or wide
        return [
            Leaf("float32", ("batch", "seq", wide)),
            Leaf("float32", ("batch", wide, "frames")),
            Leaf("float32", ("batch", latent, "frames")),
            Leaf("float32", ("batch", "frames", latent)),
        ]

    def _pixel_values_videos(self, base: Sequence[str]) -> list[Leaf]:
        channels = self._channels()
        self._sized()
        frames = self._number("frames_per_clip", "num_frames") or 2
        return [
            Leaf("float32", ("batch", min(frames, 16), channels, "height", "width")),
            Leaf("float32", ("batch", channels, min(frames, 16), "height", "width")),
        ]

    def _flattened_patches(self, base: Sequence[str]) -> list[Leaf]:
        patch = self._patch()
        return [Leaf("float32", ("batch", 16, 2 + self._channels() * patch * patch), 1, 4)]

    def _pixel_mask(self, base: Sequence[str]) -> list[Leaf]:
        self._sized()
        return [Leaf("int64", ("batch", "height", "width"), fill=1)]

    def _pixel_attention_mask(self, base: Sequence[str]) -> list[Leaf]:
        self._sized()
        return [Leaf("int64", ("batch", 16), fill=1), Leaf("bool", ("batch", 1, "height", "width"), fill=1)]

    def _input_features(self, base: Sequence[str]) -> list[Leaf]:
        bins = self._bins()
        limit = self._number("max_source_positions")
        if limit and limit <= 128:
            self.sizes["frames"] = 2 * limit
        stacked = self._number("feature_projection_input_dim") or bins
        return [
            Leaf("float32", ("batch", bins, "frames")),
            Leaf("float32", ("batch", "frames", stacked)),
            Leaf("float32", ("batch", "frames", 128)),
            Leaf("float32", ("batch", "frames", 4 * bins)),
            Leaf("float32", ("batch", 1, "frames", bins)),
            Leaf("float32", ("batch", "frames", bins, 1)),
        ]

    def _input_values(self, base: Sequence[str]) -> list[Leaf]:
        bins = self._number("num_mel_bins") or 0
        length = self._number("max_length") or 64
        found = [Leaf("float32", ("batch", "samples"))]
        channels = self._number("audio_channels") or 1
        found.append(Leaf("float32", ("batch", channels, "samples")))
        if bins and "frequency_stride" in vars(self.config):
            found.insert(0, Leaf("float32", ("batch", length, bins)))
        elif bins:
            found.append(Leaf("float32", ("batch", "frames", bins)))
        return found

    def _input_features_mask(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("int64", ("batch", "frames"), fill=1), Leaf("bool", ("batch", "frames"), fill=1)]

    _feature_attention_mask = _audio_attention_mask = _input_features_mask

    def _encoder_hidden_states(self, base: Sequence[str]) -> list[Leaf]:
        wide = self._number("encoder_hidden_size", "cross_attention_hidden_size") or self._hidden()
        return [Leaf("float32", ("batch", 5, wide)), Leaf("float32", ("batch", 5, self._hidden()))]

    def _query_embeds(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", 4, self._hidden()))]

    def _states(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", self._number("state_dim") or 1))]

    def _actions(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", self._number("act_dim", "action_dim") or 1))]

    def _rewards(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", 1))]

    _returns_to_go = _rewards

    def _timesteps(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("int64", ("batch", "seq"), 0, 8), Leaf("int64", ("batch",), 0, 8)]

    def _bbox(self, base: Sequence[str]) -> list[Leaf]:
        return [
            Leaf("int64", ("batch", "seq", 4), fill=3),
            Leaf("float32", ("batch", "seq", 4)),
            Leaf("float32", ("batch", "seq", 8)),
        ]

    def _past_values(self, base: Sequence[str]) -> list[Leaf]:
        length = self._number("context_length") or EXAMPLES["past"]
        lags = value_of(self.config, "lags_sequence") or [0]
        channels = self._number("num_input_channels", "input_size") or 1
        return [
            Leaf("float32", ("batch", length + max(lags), channels)),
            Leaf("float32", ("batch", length + max(lags))),
            Leaf("float32", ("batch", "past")),
        ]

    def _past_time_features(self, base: Sequence[str]) -> list[Leaf]:
        length = (self._number("context_length") or EXAMPLES["past"]) + max(
            value_of(self.config, "lags_sequence") or [0]
        )
        return [Leaf("float32", ("batch", length, self._number("num_time_features") or 1))]

    def _past_observed_mask(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", leaf.shape, fill=1) for leaf in self._past_values(base)]

    # Sizes in the config.

    def _grid(self, patches: Leaf) -> dict[str, Any]:
        side = math.isqrt(int(patches.shape[0]))
        for name, grid in GRIDS.items():
            if name in self.parameters:
                return {name: [[side if entry else 1 for entry in grid]]}
        return {}

    def _sized(self) -> None:
        size = self._image_size()
        self.sizes["height"] = self.sizes["width"] = size
        wide = value_of(self.vision, "image_size")
        if isinstance(wide, list | tuple) and len(wide) == 2:
            self.sizes["height"], self.sizes["width"] = int(wide[0]), int(wide[1])

    def _image_size(self) -> int:
        for holder in (self.vision, self.config):
            size = value_of(holder, "image_size")
            if isinstance(size, list | tuple) and size:
                size = size[0]
            if isinstance(size, Mapping):
                size = size.get("height")
            if isinstance(size, int) and 0 < size <= 512:
                return size
        patch = self._patch()
        return patch * 4 if 7 <= patch <= 40 else EXAMPLES["height"]

    def _patch(self) -> int:
        size = value_of(self.vision, "patch_size")
        if isinstance(size, list | tuple):
            size = size[-1]
        return size if isinstance(size, int) else 16

    def _channels(self) -> int:
        for holder in (self.vision, self.config):
            for name in ("num_channels", "in_channels", "in_chans", "num_input_channels"):
                value = value_of(holder, name)
                if isinstance(value, int):
                    return value
        return 3

    def _bins(self) -> int:
        for name in ("num_mel_bins", "n_mel_bins", "feature_size", "input_feat_per_channel", "input_dim", "mel_bins"):
            value = value_of(self.sound, name)
            if isinstance(value, int):
                return value
        return self._number("num_mel_bins", "feature_size", "input_dim") or 80

    def _vocabulary(self, *prefer: str) -> int:
        found = [value_of(one, "vocab_size") for one in self._configs(prefer or ("text_config",))]
        known = [value for value in found if isinstance(value, int) and value > 1]
        return known[0] if known else 32

    def _hidden(self) -> int:
        for name in ("hidden_size", "d_model", "embed_dim", "dim"):
            value = value_of(self.config, name)
            if isinstance(value, int):
                return value
        return next((value for one in self._configs(()) if isinstance(value := value_of(one, "hidden_size"), int)), 64)

    def _token(self, what: str) -> int | None:
        for name in (f"{what}_token_id", f"{what}_token_index"):
            value = value_of(self.config, name)
            if isinstance(value, int):
                return value
        return None

    def _number(self, *names: str) -> int | None:
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


def _one_row(leaf: Leaf) -> Leaf:
    return Leaf(
        leaf.dtype, tuple(1 if entry == "batch" else entry for entry in leaf.shape), leaf.low, leaf.high, leaf.fill
    )


def _distinct(lists: Sequence[Sequence[str]]) -> list[list[str]]:
    kept: dict[frozenset[str], list[str]] = {}
    for names in lists:
        kept.setdefault(frozenset(names), list(names))
    return list(kept.values())
