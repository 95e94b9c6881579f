"""A small config changed by what its model's error says: sizes that have to agree, numbers and fields that it lacks.

The config that was tried, its class' own, and the error arrive; changes to try leave, the likeliest first. They are
guesses: the model is built and run with each, and one that ends in the same errors is given up. No class is known by
its name; what a field is for is read from its name and from the statement that stumbled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batch_export.collections.small_models import field_names
from batch_export.collections.small_models.config_tree import Change, Path, fields, places
from batch_export.collections.small_models.configs import value_of
from batch_export.collections.small_models.field_values import (
    divided,
    head_of,
    holds,
    list_of,
    number_for,
    points_past,
    side,
    with_other,
)
from batch_export.collections.small_models.layers import (
    COUNTS,
    LAYERS,
    is_count_of_layers,
    is_place_of_layers,
    layer_count,
)
from batch_export.collections.small_models.leaves import EXAMPLES
from batch_export.collections.small_models.shrinking import WIDTH, shared_out
from batch_export.collections.small_models.sizes_read import parts_said, shape_said, unlike_sizes
from batch_export.collections.small_models.statements import comparisons_at, words_at

_MOST = 10
"""Changes for one error."""
_USUAL: dict[str, Any] = {
    "rope_theta": 10000.0,
    "layer_norm_eps": 1e-5,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.02,
}
"""Fields of many configs that one which lacks them is given."""
_LACKS = re.compile(r"'(?P<kind>\w+)' object has no attribute '(?P<name>\w+)'")
_LARGE = re.compile(r"^it has [\d,]+ parameters")
_SECTION = re.compile(r"_section$")
_NAMED = re.compile(r"\b(?P<name>[a-z]\w+)=(?P<value>\d+)\b")
_SIDES = ("image_size", "img_size", "input_size")
_OF_INPUTS = {EXAMPLES[name] for name in ("batch", "seq", "target", "frames", "samples")}
"""Sizes that an input had, which no field of a config is meant to have."""
_POINTING = re.compile(r"(hook_ids|indices|indexes|_layers|_blocks)$")
_NOT_SIZES = re.compile(r"num_labels|chunk_size_feed_forward|_id$|token|version|theta")


class Mender:
    """Changes of one config.

    Args:
        config: what was tried.
        whole: the config as its class makes it.
    """

    def __init__(self, config: Any, whole: Any) -> None:
        self.configs = list(places(config))
        self.whole = dict(places(whole))

    def mends(self, error: BaseException) -> list[list[Change]]:
        """Returns changes to try after an error, each a few that belong together."""
        text = str(error)
        words = words_at(error)
        found = [
            *self._large(text),
            *self._lacking(text),
            *self._pointing(text),
            *self._global(text),
            *self._alike(error),
            *self._unset(text, words),
            *self._sections(text, words),
            *self._features(text),
            *self._agreeing(text, words),
            *self._named(text),
            *self._restored(text, words),
        ]
        kept: list[list[Change]] = []
        for one in found:
            if one and one not in kept:
                kept.append(one)
        return kept[:_MOST]

    def last(self) -> list[list[Change]]:
        """Returns changes to try where no error says anything: what a class may need more of."""
        found = []
        for path, config in self.configs:
            stages = value_of(config, "stage_names")
            chosen = value_of(config, "out_indices")
            if isinstance(stages, list | tuple) and isinstance(chosen, list | tuple) and len(chosen) < len(stages) - 1:
                found.append([Change(path, "out_indices", list(range(1, len(stages))))])
        return found

    def _large(self, text: str) -> Iterator[list[Change]]:
        """Fewer layers, where a config kept them all."""
        if _LARGE.match(text) is None:
            return
        for path, config in self.configs:
            deep = [
                Change(path, name, LAYERS)
                for name, value in fields(config).items()
                if name in COUNTS and isinstance(value, int) and value > 2 * LAYERS
            ]
            if deep:
                yield deep

    def _lacking(self, text: str) -> Iterator[list[Change]]:
        """A field that a config lacks: as another config has it, or as it usually is."""
        said = _LACKS.search(text)
        if said is None:
            return
        name = said["name"]
        for path, config in self.configs:
            if type(config).__name__ != said["kind"]:
                continue
            values = [value_of(other, name) for _, other in self.configs if other is not config]
            values = [value for value in values if isinstance(value, int | float | str | list)]
            if name in _USUAL:
                values.append(_USUAL[name])
            if "dropout" in name or name.endswith("_pdrop"):
                values.append(0.0)
            if field_names.KEY_HEADS.search(name):
                values.append(value_of(config, "num_attention_heads"))
            number = number_for(name)
            values += [] if number is None else [number]
            for value in values:
                if value is not None:
                    yield [Change(path, name, value)]

    def _pointing(self, text: str) -> Iterator[list[Change]]:
        """Lists that point at more layers than there are."""
        if "index out of range" not in text:
            return
        layers = [count for _, config in self.configs if (count := layer_count(fields(config)))]
        least = min(layers, default=0)
        found = [
            Change(path, name, list(range(least))[-len(value) :][:: -1 if value[0] > value[-1] else 1])
            for path, config in self.configs
            for name, value in fields(config).items()
            if _POINTING.search(name) and not _NOT_SIZES.search(name) and points_past(value, least)
        ]
        yield found

    def _global(self, text: str) -> Iterator[list[Change]]:
        """Places of global layers among stages, moved to the last layer: a stage may begin with one that pools."""
        if "by zero" not in text:
            return
        for path, config in self.configs:
            stages = [list_of(value) for name, value in fields(config).items() if is_count_of_layers(name)]
            counts = [sum(one) for one in stages if one and all(type(count) is int for count in one)]
            for name, value in fields(config).items():
                if "global" in name and is_place_of_layers(name) and list_of(value) and counts:
                    yield [Change(path, name, [counts[0] - 1])]

    def _alike(self, error: BaseException) -> Iterator[list[Change]]:
        """Two fields that a check compared, as one."""
        for owner, *sides in comparisons_at(error):
            at = next((path for path, config in self.configs if type(config) is type(owner)), None)
            one, other = (self._field(at or (), side) for side in sides)
            if at is None or one is None or other is None:
                continue
            yield [Change(*one[:2], other[2])]
            yield [Change(*other[:2], one[2])]

    def _field(self, at: Path, dotted: str) -> tuple[Path, str, Any] | None:
        """Where a dotted name leads to from a config: path, name and value."""
        *inner, name = dotted.split(".")
        path = (*at, *(one for one in inner if one != "config"))
        config = next((config for there, config in self.configs if there == path), None)
        return None if config is None or value_of(config, name) is None else (path, name, value_of(config, name))

    def _unset(self, text: str, words: Sequence[str]) -> Iterator[list[Change]]:
        """Numbers where a config has none, in the statements that stumbled over it."""
        if "None" not in text:
            return
        unset = [
            Change(path, name, number)
            for path, config in self.configs
            for name, value in fields(config).items()
            if value is None and name in words and (number := number_for(name)) is not None
        ]
        unset.sort(key=lambda change: words.index(change.name))
        for one in unset:
            yield [other for other in unset if other.path == one.path]
            yield [one]

    def _sections(self, text: str, words: Sequence[str]) -> Iterator[list[Change]]:
        """Sections of a rotary embedding that share out what there is to be turned."""
        said = parts_said(text)
        asked = next((name for name in words if _SECTION.search(name)), None)
        if said is None and ("None" not in text or asked is None):
            return
        for path, config in self.configs:
            rotary = value_of(config, "rope_parameters")
            if not isinstance(rotary, Mapping):
                continue
            total = said[0] if said else head_of(config) // 2
            shares = said[1] if said else [2, 1, 1]
            name = next((key for key, value in rotary.items() if said and list_of(value) == said[1]), asked)
            if name and total >= len(shares):
                yield [Change(path, "rope_parameters", {**rotary, name: shared_out(total, shares)})]

    def _features(self, text: str) -> Iterator[list[Change]]:
        """Sizes of features that an image has, which became smaller as the image did."""
        said = shape_said(text)
        if said is None:
            return
        ratios = set()
        for path, config in self.configs:
            for name in _SIDES:
                before, now = side(value_of(self.whole.get(path), name)), side(value_of(config, name))
                if before and now and before > now and before % now == 0:
                    ratios |= {before // now // part for part in (1, 2, 4)} - {0, 1}
        for ratio in sorted(ratios, reverse=True):
            for path, config in self.configs:
                for name, value in fields(config).items():
                    smaller = divided(value, ratio)
                    if isinstance(value, list | tuple) and holds(value, said[0]) and smaller is not None:
                        yield [Change(path, name, smaller)]

    def _agreeing(self, text: str, words: Sequence[str]) -> Iterator[list[Change]]:
        """Fields of one of two sizes that do not fit, with the other: those that the statements name first."""
        found: list[tuple[tuple[int, int, int], Change]] = []
        for turn, (given, wanted) in enumerate(unlike_sizes(text)):
            if _OF_INPUTS & {given, wanted}:
                continue
            for path, config in self.configs:
                for name, value in fields(config).items():
                    if _NOT_SIZES.search(name) or isinstance(value, bool):
                        continue
                    named = words.index(name) if name in words else len(words)
                    for rank, new in enumerate(with_other(value, wanted, given)):
                        found.append(((int(name not in words), 2 * turn + rank, named), Change(path, name, new)))
                    for rank, new in enumerate(with_other(value, given, wanted)):
                        found.append(((int(name not in words), 2 * turn + rank + 1, named), Change(path, name, new)))
        for _, change in sorted(found, key=lambda one: one[0]):
            yield [change]

    def _named(self, text: str) -> Iterator[list[Change]]:
        """Sizes that an error quotes as too large, brought down to a narrow one."""
        for said in _NAMED.finditer(text):
            for path, config in self.configs:
                value = value_of(config, said["name"])
                if value == int(said["value"]) and isinstance(value, int) and value > WIDTH:
                    yield [Change(path, said["name"], WIDTH)]

    def _restored(self, text: str, words: Sequence[str]) -> Iterator[list[Change]]:
        """Fields that the statements name, as they were."""
        if not unlike_sizes(text) and "divi" not in text and "shape" not in text:
            return
        for name in words:
            for path, config in self.configs:
                now, before = fields(config).get(name), fields(self.whole.get(path, config)).get(name)
                if isinstance(before, int) and not isinstance(before, bool) and isinstance(now, int) and now != before:
                    yield [Change(path, name, before)]
