"""Which inputs a model may be called with, guessed from the names of its parameters and the sizes in its config.

A config and a signature arrive; attempts leave, the fullest first. An attempt is a guess: `describing.py` calls the
model with it and keeps the first that eager takes.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batch_export.collections.small_models.configs import value_of
from batch_export.collections.small_models.leaves import Attempt, Leaf
from batch_export.collections.transformers.config_sizes import ConfigSizes
from batch_export.collections.transformers.shapes_by_doc import shapes_by_doc
from batch_export.collections.transformers.shapes_by_name import GRIDS, MERGED, SIDES, ShapesByName

_MOST_PRODUCTS = 24
_FEW_PRODUCTS = 8
"""Of the shapes of one choice of parameters; a persistent search tries few of each choice before more of the first."""

_DRAWN = ("sample", "do_sample", "add_noise", "sample_posterior")
"""Switches of a forward that draws random numbers."""
_WELL_KNOWN = ("pixel_values", "input_features", "input_values")
"""Inputs whose shape by their name is tried before the one that a docstring gives."""
_SOUND_MASKS = ("input_features_mask", "feature_attention_mask", "audio_attention_mask")


class Guesser:
    """Guesses for one model.

    Args:
        config: its config, made small.
        parameters: of its forward, without `self`.
        main: what the class calls its main input.
        doc: the docstring of its forward, whose shapes are tried before those that names suggest. It is given where
            nothing was found without it: masks fit what they mask, and drawing at random is switched off then.
    """

    def __init__(
        self, config: Any, parameters: Mapping[str, inspect.Parameter], main: str, doc: str | None = None
    ) -> None:
        self.parameters = parameters
        self.main = main
        self.found = ConfigSizes(config)
        self.shapes = ShapesByName(self.found, parameters)
        self.persistent = doc is not None
        self.documented = shapes_by_doc(doc or "", self.found)

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
        needed = [name for name in needed if name not in (*GRIDS, *SIDES, *MERGED)]
        chosen = list(dict.fromkeys([*([self.main] if self.main in names else []), *needed, *also]))
        text = [name for name in ("input_ids",) if name in names]
        seen = [name for name in ("pixel_values", "input_features", "input_values") if name in names]
        decoder = [name for name in ("decoder_input_ids", "decoder_input_values") if name in names]
        masks = [name for name in _SOUND_MASKS if name in names]
        places = [name for name in ("bbox",) if name in names and text]
        every = [*chosen, *text, *places, *seen, *decoder]
        bases = _distinct(
            [
                every,
                [*every, *masks],
                [*needed, *also, *seen],
                [*chosen, *decoder],
                [*chosen, *masks],
                [*chosen, *text, *places],
                [*chosen, *text],
                chosen,
            ]
        )
        step = _FEW_PRODUCTS if self.persistent else _MOST_PRODUCTS
        for start in range(0, _MOST_PRODUCTS, step):
            for base in bases:
                yield from self._of(base, needed, start, start + step)
        ends = value_of(self.found.config, "eos_token_id")
        if "decoder_input_ids" in names and text and isinstance(ends, int):
            # What is read where a text ends; the decoder's text is made of the encoder's.
            ids = self.shapes.options("input_ids", text)[0]
            for attempt in self._completed({"input_ids": ids}):
                yield replace(attempt, prefix=(ends,))

    def _of(self, base: Sequence[str], needed: Sequence[str], start: int, stop: int) -> Iterator[Attempt]:
        """Guesses that give these parameters, from one place among the products of their shapes to another."""
        base = [name for name in self.parameters if name in base]
        if "input_ids" in base and "inputs_embeds" in base and "inputs_embeds" not in needed:
            base.remove("inputs_embeds")
        if not base:
            return
        options = [self._options(name, base) for name in base]
        products = (dict(zip(base, picked, strict=True)) for picked in itertools.product(*options))
        fitting = filter(_masks_fit, products) if self.persistent else products
        for picked in itertools.islice(fitting, start, stop):
            yield from self._completed(picked)

    def _options(self, name: str, base: Sequence[str]) -> list[Leaf]:
        """Shapes by name and by the docstring, which comes first but for ids, whose range the config has."""
        found = self.shapes.options(name, base)
        if self.persistent and name.endswith("_attention_mask") and name not in self.documented:
            found = [*found, Leaf("int64", ("batch", 1), fill=1)]
        said = self.documented.get(name)
        if said is None or name.endswith("input_ids"):
            return found
        if said.dtype == "int64" and said.shape == ("batch",):
            found = [replace(said, shape=("batch", 1)), *found]
        return [said, *found] if name not in _WELL_KNOWN else [found[0], said, *found[1:]]

    def _completed(self, leaves: dict[str, Leaf]) -> Iterator[Attempt]:
        ids = leaves.get("input_ids")
        if (
            ids is not None
            and "position_ids" in self.parameters
            and any(name in self.parameters for name in (*GRIDS, *SIDES))
        ):
            # Else some models compute them of where the mask is 1, which is a decision by data.
            yield from self._with_constants({**leaves, "position_ids": Leaf("int64", (3, *ids.shape), 0, 9)})
        yield from self._with_constants(leaves)

    def _with_constants(self, leaves: dict[str, Leaf]) -> Iterator[Attempt]:
        fixed: dict[str, Any] = {}
        ids = leaves.get("input_ids")
        if ids is not None and "attention_mask" in self.parameters and len(ids.shape) == 2:
            leaves = {**leaves, "attention_mask": leaves.get("attention_mask", Leaf("int64", ids.shape, fill=1))}
        modality = ""
        if "input_ids" in leaves and "pixel_values" in leaves and self.found.token("image") is not None:
            modality = "image"
        elif "input_ids" in leaves and self.found.token("audio") is not None:
            modality = "audio" if {"input_features", "input_values"} & set(leaves) else ""
        patches = leaves.get("pixel_values") or leaves.get("hidden_states")
        if patches is not None and isinstance(patches.shape[0], int):
            fixed |= self._grid(patches)
            if "input_ids" in leaves:  # one grid is one image, so that it is one row
                leaves = {name: leaf.one_row() for name, leaf in leaves.items()}
        if any(name in self.parameters for name in SIDES) and "pixel_values" in leaves:
            leaves = {name: leaf.one_row() for name, leaf in leaves.items()}
            fixed |= {name: [[4, 4]] for name in SIDES if name in self.parameters}
            if "pixel_attention_mask" in self.parameters:
                leaves["pixel_attention_mask"] = Leaf("int64", (1, 16), fill=1)
        yield self._attempt(leaves, fixed, modality)
        if "image_sizes" in self.parameters and "pixel_values" in leaves:
            sized = {**fixed, "image_sizes": [[self.found.image_size(), self.found.image_size()]]}
            yield self._attempt({name: leaf.one_row() for name, leaf in leaves.items()}, sized, modality)

    def _attempt(self, leaves: Mapping[str, Leaf], fixed: Mapping[str, Any], modality: str) -> Attempt:
        ordered = {name: leaves[name] for name in self.parameters if name in leaves}
        named = {term for leaf in ordered.values() for term in leaf.shape if isinstance(term, str)}
        return Attempt(
            ordered,
            {name: size for name, size in self.shapes.sizes.items() if name in named},
            fixed,
            modality,
            constants=self._drawn_nothing() if self.persistent else {},
        )

    def _drawn_nothing(self) -> dict[str, bool]:
        return {name: False for name in _DRAWN if name in self.parameters and self.parameters[name].default is True}

    def _grid(self, patches: Leaf) -> dict[str, Any]:
        side = math.isqrt(int(patches.shape[0]))
        for name, grid in GRIDS.items():
            if name in self.parameters:
                merged = {name: [2] for name in MERGED if name in self.parameters}
                return {name: [[side if entry else 1 for entry in grid]], **merged}
        return {}


def _masks_fit(leaves: Mapping[str, Leaf]) -> bool:
    """Whether each mask of another input has an axis of it beside the rows."""
    for name, leaf in leaves.items():
        masked = leaves.get(name.removesuffix("_mask"))
        if masked is not None and masked is not leaf and len(leaf.shape) > 1 and leaf.shape[1] not in masked.shape:
            return False
    return True


def _distinct(lists: Sequence[Sequence[str]]) -> list[list[str]]:
    kept: dict[frozenset[str], list[str]] = {}
    for names in lists:
        kept.setdefault(frozenset(names), list(names))
    return list(kept.values())
