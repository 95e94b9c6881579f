"""The shapes that a parameter of forward may have, by its name, the likeliest first.

A name that is not known here is guessed by its ending. Nothing is called: `inputs.py` makes whole guesses of these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from batch_export.collections.small_models.configs import value_of
from batch_export.collections.small_models.leaves import EXAMPLES, Entry, Leaf
from batch_export.collections.small_models.shrinking import IDENTITIES
from batch_export.collections.transformers.config_sizes import ConfigSizes

GRIDS = {
    "image_grid_thw": (0, 1, 1),
    "grid_thw": (0, 1, 1),
    "grid_thws": (0, 1, 1),
    "image_grid_hws": (1, 1),
    "grid_hws": (1, 1),
    "image_grids": (1, 1),
}
"""Parameters that say how many patches an image has along time (0: one), height and width; one image is given."""

MERGED = ("merge_sizes",)
"""Parameters that say how many patches of each image become one, along a side."""

SIDES = ("spatial_shapes", "target_sizes")
"""Parameters that say how many patches each image has along height and width; one image is given."""


class ShapesByName:
    """Shapes for one model's parameters.

    Args:
        found: the sizes in its config.
        parameters: names of the parameters of its forward.
    """

    def __init__(self, found: ConfigSizes, parameters: Collection[str]) -> None:
        self.found = found
        self.parameters = parameters
        self.sizes = dict(EXAMPLES)
        """Example sizes of axes; a shape that needs others changes them."""

    def options(self, name: str, base: Sequence[str]) -> list[Leaf]:
        """The shapes that a parameter of this name may have, the likeliest first."""
        own = getattr(self, f"_{name}", None)
        if own is not None:
            found: list[Leaf] = own(base)
            return found
        if name.endswith("_pixel_values") or (name.endswith("_masks") and "pixel_values" in self.parameters):
            return self._pixel_values(base)
        row: tuple[Entry, ...] = ("batch", "target" if name.startswith("decoder") else "seq")
        if name.endswith(("_mask", "mask")):
            return [Leaf("int64", row, fill=1), Leaf("bool", row, fill=1), Leaf("float32", row, fill=1)]
        if name.endswith(("_ids", "langs", "tokens", "codes")):
            return [Leaf("int64", row, 0, 2), Leaf("int64", ("batch",), 0, 2), Leaf("int64", (*row, 1), 0, 2)]
        if name in ("timestep", "timesteps", "lengths", "langs"):
            return [Leaf("int64", ("batch",), 1, 8)]
        wide = self.found.hidden()
        return [
            Leaf("float32", (*row, wide)),
            Leaf("float32", ("batch", wide)),
            Leaf("float32", ("batch", wide, "height", "width")),
            Leaf("float32", ("batch", wide, "frames")),
            Leaf("float32", row),
        ]

    def _input_ids(self, base: Sequence[str]) -> list[Leaf]:
        del base
        high = self.found.vocabulary()
        low = IDENTITIES if high > 2 * IDENTITIES else 0
        books = self.found.number("num_codebooks", "n_codebooks", "num_channels") or 1
        plain = Leaf("int64", ("batch", "seq"), low, high)
        if books > 1 and self.found.number("num_codebooks", "n_codebooks"):
            return [
                Leaf("int64", ("batch", "seq", books), low, high),
                Leaf("int64", ("batch", books, "seq"), low, high),
                plain,
            ]
        return [plain, Leaf("int64", ("batch", 2, "seq"), low, high), Leaf("int64", (1, "seq"), low, high)]

    def _decoder_input_ids(self, base: Sequence[str]) -> list[Leaf]:
        del base
        high = self.found.vocabulary("decoder", "text_config")
        low = IDENTITIES if high > 2 * IDENTITIES else 0
        books = self.found.number("num_codebooks", "n_codebooks", "num_channels")
        found = [Leaf("int64", ("batch", "target"), low, high)]
        if books and books > 1:
            found.append(Leaf("int64", ("batch", "target", books), low, high))
            found.append(Leaf("int64", (EXAMPLES["batch"] * books, "target"), low, high))
        return found

    def _inputs_embeds(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", self.found.hidden()))]

    def _pixel_values(self, base: Sequence[str]) -> list[Leaf]:
        channels = self.found.channels()
        self._sized()
        patch = self.found.patch()
        image = Leaf("float32", ("batch", channels, "height", "width"))
        frames = self.found.number("num_frames", "frames") or 2
        flat = channels * patch * patch
        found = [image]
        if any(name in self.parameters for name in GRIDS):
            temporal = self.found.number("temporal_patch_size") or 1
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
            channels, patch = self.found.channels(), self.found.patch()
            temporal = self.found.number("temporal_patch_size") or 1
            return [Leaf("float32", (16, channels * temporal * patch * patch))]
        wide = self.found.hidden()
        latent = self.found.number("codebook_dim", "upsample_initial_channel", "latent_channels") or wide
        return [
            Leaf("float32", ("batch", "seq", wide)),
            Leaf("float32", ("batch", wide, "frames")),
            Leaf("float32", ("batch", latent, "frames")),
            Leaf("float32", ("batch", "frames", latent)),
        ]

    def _pixel_values_videos(self, base: Sequence[str]) -> list[Leaf]:
        channels = self.found.channels()
        self._sized()
        frames = self.found.number("frames_per_clip", "num_frames") or 2
        return [
            Leaf("float32", ("batch", min(frames, 16), channels, "height", "width")),
            Leaf("float32", ("batch", channels, min(frames, 16), "height", "width")),
        ]

    def _flattened_patches(self, base: Sequence[str]) -> list[Leaf]:
        patch = self.found.patch()
        return [Leaf("float32", ("batch", 16, 2 + self.found.channels() * patch * patch), 1, 4)]

    def _pixel_mask(self, base: Sequence[str]) -> list[Leaf]:
        self._sized()
        return [Leaf("int64", ("batch", "height", "width"), fill=1)]

    def _pixel_attention_mask(self, base: Sequence[str]) -> list[Leaf]:
        self._sized()
        return [Leaf("int64", ("batch", 16), fill=1), Leaf("bool", ("batch", 1, "height", "width"), fill=1)]

    def _input_features(self, base: Sequence[str]) -> list[Leaf]:
        bins = self.found.bins()
        limit = self.found.number("max_source_positions")
        if limit and limit <= 128:
            self.sizes["frames"] = 2 * limit
        stacked = self.found.number("feature_projection_input_dim") or bins
        return [
            Leaf("float32", ("batch", bins, "frames")),
            Leaf("float32", ("batch", "frames", stacked)),
            Leaf("float32", ("batch", "frames", 128)),
            Leaf("float32", ("batch", "frames", 4 * bins)),
            Leaf("float32", ("batch", 1, "frames", bins)),
            Leaf("float32", ("batch", "frames", bins, 1)),
        ]

    def _input_values(self, base: Sequence[str]) -> list[Leaf]:
        bins = self.found.number("num_mel_bins") or 0
        length = self.found.number("max_length") or 64
        found = [Leaf("float32", ("batch", "samples"))]
        channels = self.found.number("audio_channels") or 1
        found.append(Leaf("float32", ("batch", channels, "samples")))
        if bins and "frequency_stride" in vars(self.found.config):
            found.insert(0, Leaf("float32", ("batch", length, bins)))
        elif bins:
            found.append(Leaf("float32", ("batch", "frames", bins)))
        return found

    def _input_features_mask(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("int64", ("batch", "frames"), fill=1), Leaf("bool", ("batch", "frames"), fill=1)]

    _feature_attention_mask = _audio_attention_mask = _input_features_mask

    def _encoder_hidden_states(self, base: Sequence[str]) -> list[Leaf]:
        wide = self.found.number("encoder_hidden_size", "cross_attention_hidden_size") or self.found.hidden()
        return [Leaf("float32", ("batch", 5, wide)), Leaf("float32", ("batch", 5, self.found.hidden()))]

    def _query_embeds(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", 4, self.found.hidden()))]

    def _states(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", self.found.number("state_dim") or 1))]

    def _actions(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", "seq", self.found.number("act_dim", "action_dim") or 1))]

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

    def _visual_feats(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", 5, self.found.number("visual_feat_dim", "visual_embedding_dim") or 4))]

    _visual_embeds = _visual_feats

    def _task_inputs(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", self.found.number("task_seq_len") or 8))]

    def _visual_pos(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", ("batch", 5, self.found.number("visual_pos_dim") or 4))]

    def _pixel_position_ids(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("int64", ("batch", 16, 2), 0, 4)]

    _image_position_ids = _pixel_position_ids

    def _image_embeds_position_mask(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("int64", ("batch", "seq"), fill=1)]

    def _past_values(self, base: Sequence[str]) -> list[Leaf]:
        length = self.found.number("context_length") or EXAMPLES["past"]
        lags = value_of(self.found.config, "lags_sequence") or [0]
        channels = self.found.number("num_input_channels", "input_size") or 1
        return [
            Leaf("float32", ("batch", length + max(lags), channels)),
            Leaf("float32", ("batch", length + max(lags))),
            Leaf("float32", ("batch", "past")),
        ]

    def _past_time_features(self, base: Sequence[str]) -> list[Leaf]:
        length = (self.found.number("context_length") or EXAMPLES["past"]) + max(
            value_of(self.found.config, "lags_sequence") or [0]
        )
        return [Leaf("float32", ("batch", length, self.found.number("num_time_features") or 1))]

    def _past_observed_mask(self, base: Sequence[str]) -> list[Leaf]:
        return [Leaf("float32", leaf.shape, fill=1) for leaf in self._past_values(base)]

    def _sized(self) -> None:
        size = self.found.image_size()
        self.sizes["height"] = self.sizes["width"] = size
        wide = value_of(self.found.vision, "image_size")
        if isinstance(wide, list | tuple) and len(wide) == 2:
            self.sizes["height"], self.sizes["width"] = int(wide[0]), int(wide[1])
