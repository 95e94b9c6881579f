"""The named axes of a model: which are free under a dynamic-shape setting, and which sizes are run.

A `ModelSpec` and a setting's name arrive; names, sizes and cases leave, all plain data. Nothing here draws a tensor,
imports torch or reads a configuration.

Settings are the same words for every model: `static` (no axis is free), `full` (every axis is), `auto` (every axis is
offered and capture may refuse some), an axis' name, or several names joined by `+`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batch_export.errors import UsageError
from batch_export.spec import InputSpec, ModelSpec

STATIC = "static"
FULL = "full"
AUTO = "auto"
WORDS = (STATIC, FULL, AUTO)
"""Settings that are not the name of an axis."""

Sizes = dict[str, int]

SEED = "seed"
PADDING = ("padding", "all_padding")
TURNED = "turned"
LOWEST, HIGHEST = "lowest", "highest"
NEGATIVE, POSITIVE = "negative", "positive"
VARIANTS = ("zeros", "large", NEGATIVE, POSITIVE, LOWEST, HIGHEST, TURNED, *PADDING, "empty")
"""Special values of the inputs; `seed1`, `seed2`, ... are further draws of the ordinary ones. Of several inputs of two
values `turned1`, `turned2`, ... have one turned alone.
"""
_MOST_TURNED = 8
_EMPTY_AXIS = "batch"


@dataclass(frozen=True, slots=True)
class Case:
    """One execution of a model: the sizes of its axes, and which values its inputs have (empty: the ordinary ones)."""

    sizes: Sizes
    variant: str = ""

    @property
    def identity(self) -> tuple[tuple[tuple[str, int], ...], str]:
        """What tells it from the other cases, whatever the order of its sizes."""
        return tuple(sorted(self.sizes.items())), self.variant

    @property
    def text(self) -> str:
        """The sizes and the kind of inputs, in words."""
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.sizes.items()) or "the example sizes"
        return f"{sizes} with {self.variant} inputs" if self.variant else sizes


def terms(expression: int | str) -> tuple[int | str, ...]:
    """Returns the addends of a shape entry: `past+seq+1` gives `("past", "seq", 1)`."""
    if isinstance(expression, int):
        return (expression,)
    parts = (part.strip() for part in expression.split("+"))
    return tuple(int(part) if part.isdigit() else part for part in parts)


def size_of(expression: int | str, sizes: Mapping[str, int]) -> int:
    """Returns the size that a shape entry stands for.

    Raises:
        UsageError: it names an axis that `sizes` lacks.
    """
    total = 0
    for term in terms(expression):
        if isinstance(term, str) and term not in sizes:
            raise UsageError(
                f"shape entry {expression!r} names the axis {term!r}, which has no size among {dict(sizes)}"
            )
        total += term if isinstance(term, int) else sizes[term]
    return total


def input_names(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of the tensor inputs in order: their paths joined by `_`. Constants are not inputs."""
    return tuple("_".join(map(str, leaf.path)) for leaf in model.inputs if leaf.dtype)


def supports(model: ModelSpec, setting: str) -> str | None:
    """Returns why the model has no such dynamic-shape setting, or None when it has."""
    if setting == STATIC:
        return None
    known = tuple(axis.name for axis in model.axes)
    if not known:
        return f"model {model.name!r} has no axes, so the only dynamic-shape setting is 'static'"
    if setting in (FULL, AUTO):
        return None
    names = setting.split("+")
    for name in names:
        if name not in known:
            return f"model {model.name!r} has no axis {name!r} (its axes: {', '.join(known)})"
    if len(set(names)) < len(names):
        return f"dynamic-shape setting {setting!r} names an axis twice"
    return None


def free_axes(model: ModelSpec, setting: str) -> tuple[str, ...]:
    """Returns the axes that the setting leaves free, in the model's order; under `auto` every axis is offered.

    Raises:
        UsageError: the model has no such setting.
    """
    reason = supports(model, setting)
    if reason is not None:
        raise UsageError(reason)
    if setting == STATIC:
        return ()
    if setting in (FULL, AUTO):
        return tuple(axis.name for axis in model.axes)
    asked = setting.split("+")
    return tuple(axis.name for axis in model.axes if axis.name in asked)


def dimension(model: ModelSpec, expression: int | str, setting: str) -> int | str:
    """Returns a shape entry as the setting sees it: an int when nothing in it is free, else the sum that is symbolic.

    With example sizes 6 of `past` and 16 of `seq`, `past+seq` stays so under `full`, is `seq+6` under `seq` and 22
    under `static`.
    """
    free = free_axes(model, setting)
    example = example_sizes(model)
    names = [term for term in terms(expression) if isinstance(term, str) and term in free]
    rest = sum(size_of(term, example) for term in terms(expression) if term not in names)
    if not names:
        return rest
    return "+".join([*names, str(rest)] if rest else names)


def example_sizes(model: ModelSpec) -> Sizes:
    """Returns every axis at its example size."""
    return {axis.name: axis.example for axis in model.axes}


def check_sizes(model: ModelSpec, setting: str) -> tuple[Sizes, ...]:
    """Returns the sizes at which a file of this setting is run besides the example's, without duplicates.

    One free axis takes each of its check sizes while the others stay at the example. When all axes are free they are
    moved together, by position (the first check sizes of all, then the second; shorter lists start again), which shows
    where capture took two axes for equal that are not. Some of several axes take their check sizes one axis at a time,
    so that the cases of all settings of a model stay few.
    """
    free = free_axes(model, setting)
    if len(free) == len(model.axes):
        return _distinct(_together(model))
    return _distinct(case for name in free for case in _alone(model, name))


def all_cases(model: ModelSpec) -> tuple[Sizes, ...]:
    """Returns the example sizes, then the check sizes of every setting of the model, without duplicates."""
    cases = [example_sizes(model), *_together(model)]
    for axis in model.axes:
        cases.extend(_alone(model, axis.name))
    return _distinct(cases)


def cases(model: ModelSpec) -> tuple[Case, ...]:
    """Returns everything that a model is run at: `all_cases` with the ordinary values, then its variants."""
    example = example_sizes(model)
    special = [
        Case({**example, _EMPTY_AXIS: 0} if variant == "empty" else example, variant) for variant in variants(model)
    ]
    return (*(Case(sizes) for sizes in all_cases(model)), *special)


def variants(model: ModelSpec) -> tuple[str, ...]:
    """Returns those of the model's variants that its inputs have: no padding without a mask, no draw without a leaf
    that is drawn, no empty batch without a batch, nothing turned without an input of two values, no sign of numbers
    without numbers of either sign, and no ends of whole numbers where `zeros` and `large` are the same."""
    drawn = any(leaf.dtype and leaf.fill is None for leaf in model.inputs)
    whole = {is_whole(leaf) for leaf in model.inputs if leaf.dtype and leaf.fill is None}
    masked = any(is_mask(leaf) for leaf in model.inputs)
    batched = any(axis.name == _EMPTY_AXIS for axis in model.axes)
    turning = sum(map(is_of_two_values, model.inputs))
    has = {name: masked for name in PADDING} | {"empty": batched, TURNED: turning > 0}
    below = any(is_whole(leaf) and (leaf.low or 0.0) < 0 for leaf in model.inputs)
    has |= {LOWEST: len(whole) == 2 or below, HIGHEST: len(whole) == 2}
    has |= dict.fromkeys((NEGATIVE, POSITIVE), any(map(is_of_either_sign, model.inputs)))
    known = [name for name in dict.fromkeys(model.variants) if has.get(name, drawn)]
    alone = [f"{TURNED}{number + 1}" for number in range(min(turning, _MOST_TURNED))] if turning > 1 else []
    return tuple(each for name in known for each in ((name, *alone) if name == TURNED else (name,)))


def turned_inputs(model: ModelSpec, variant: str) -> tuple[InputSpec, ...]:
    """Returns the inputs that have the other one of their two values in a variant."""
    if not variant.startswith(TURNED):
        return ()
    turning = tuple(filter(is_of_two_values, model.inputs))
    number = variant.removeprefix(TURNED)
    return turning[int(number) - 1 : int(number)] if number else turning


def is_mask(leaf: InputSpec) -> bool:
    """Returns whether an input is a padding mask: whole numbers filled with ones, or truth values, named so."""
    named = any("mask" in str(key) for key in leaf.path)
    is_of_truth = leaf.dtype == "bool" and leaf.fill in (None, 1)
    return named and (is_of_truth or (leaf.fill == 1 and not leaf.dtype.startswith(("float", "bfloat", "complex"))))


def is_whole(leaf: InputSpec) -> bool:
    """Returns whether an input is drawn from whole numbers or truth values."""
    return bool(leaf.dtype) and leaf.fill is None and not leaf.dtype.startswith(("float", "bfloat", "complex"))


def range_of(leaf: InputSpec) -> tuple[float, float]:
    """Returns what an input is drawn between; without a range 0 and 1, which of whole numbers is the last one."""
    return leaf.low or 0.0, (2.0 if is_whole(leaf) else 1.0) if leaf.high is None else leaf.high


def is_of_either_sign(leaf: InputSpec) -> bool:
    """Returns whether an input is drawn from real numbers around zero."""
    is_real = leaf.dtype.startswith(("float", "bfloat")) and not leaf.dtype.startswith("float8")
    low, high = range_of(leaf)
    return is_real and leaf.fill is None and ((leaf.low is None and leaf.high is None) or low < 0 < high)


def is_of_two_values(leaf: InputSpec) -> bool:
    """Returns whether an input is drawn from two values, so that few draws of it may all be the same."""
    if not is_whole(leaf):
        return False
    low, high = map(int, range_of(leaf))
    return high - low == 2 and (low == 0 or leaf.dtype != "bool")


def case_indices(model: ModelSpec, setting: str) -> list[int]:
    """Returns where in `cases` a setting's are: the example's (always 0) first, then its check sizes, then variants.

    An empty batch is a size of its own, which only a setting that leaves the batch free has.
    """
    known = cases(model)
    indices = [0, *(known.index(Case(sizes)) for sizes in check_sizes(model, setting))]
    free = free_axes(model, setting)
    for index, case in enumerate(known):
        if case.variant and (case.variant != "empty" or _EMPTY_AXIS in free):
            indices.append(index)
    return list(dict.fromkeys(indices))


def _alone(model: ModelSpec, name: str) -> list[Sizes]:
    example = example_sizes(model)
    (sizes,) = (axis.check for axis in model.axes if axis.name == name)
    return [{**example, name: size} for size in sizes]


def _together(model: ModelSpec) -> list[Sizes]:
    rounds = max((len(axis.check) for axis in model.axes), default=0)
    return [
        {axis.name: axis.check[index % len(axis.check)] if axis.check else axis.example for axis in model.axes}
        for index in range(rounds)
    ]


def _distinct(cases: Iterable[Sizes]) -> tuple[Sizes, ...]:
    kept: list[Sizes] = []
    for case in cases:
        if case not in kept:
            kept.append(case)
    return tuple(kept)
