"""Whether axes that a file gives one name have one size, as the standard says of such axes.

A file's inputs and outputs (as `stages/check.py` describes them), its model and its runs arrive; findings leave. Only
what was run tells: two free axes of one name are a broken promise where eager took them at two sizes, and none where
the model makes them equal. Names that nobody asked for are no finding by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batch_export import axes
from batch_export.judge.beyond_guards import broken
from batch_export.judge.float64 import sizes_of
from batch_export.record import Failure, RunFacts
from batch_export.spec import ModelSpec

_NAMELESS = "?"


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis that the file gives a name, and its size in one run."""

    name: str
    where: str
    size: int


def wrongly_named(
    described: Mapping[str, Any], model: ModelSpec, setting: str, runs: Sequence[RunFacts], guards: Sequence[str] = ()
) -> Iterator[Failure]:
    """Yields a finding for each name that the file gives axes of different sizes, or an axis of another size than that
    which was asked for by this name.

    Args:
        described: `inputs` and `outputs` of the file, each with `name` and `shape`.
        model: what was asked for.
        setting: of its axes.
        runs: the file's, at the sizes that were tried.
        guards: conditions that the file is said to hold under; a run beyond them says nothing here.
    """
    if axes.supports(model, setting) is not None:
        return
    wanted = _asked_names(model, setting)
    found: dict[str, Failure] = {}
    for run in runs:
        if not run.outputs or broken(guards, run.sizes):
            continue
        sizes = {**axes.example_sizes(model), **run.sizes}
        asked = [_Axis(name, f"the axis {name!r} that was asked for", axes.size_of(name, sizes)) for name in wanted]
        inputs = _inputs(described, model, sizes)
        pairs = [*_apart([*asked, *inputs])]
        if not pairs and _have_one_size(inputs):  # what outputs have does not follow from names that stand for two
            pairs += _apart([*asked, *inputs, *_outputs(described, run)], but=())
        for one, other in pairs:
            found.setdefault(one.name, _finding(one, other, run))
    yield from found.values()


def _asked_names(model: ModelSpec, setting: str) -> list[str]:
    """The names of the axes that were asked for as free, sums such as `past+seq` among them."""
    entries = [axes.dimension(model, entry, setting) for leaf in model.inputs for entry in leaf.shape]
    return list(
        dict.fromkeys((*axes.free_axes(model, setting), *(entry for entry in entries if isinstance(entry, str))))
    )


def _inputs(described: Mapping[str, Any], model: ModelSpec, sizes: Mapping[str, int]) -> list[_Axis]:
    shapes = dict(zip(axes.input_names(model), (leaf.shape for leaf in model.inputs if leaf.dtype), strict=True))
    return [
        _Axis(name, f"dimension {dim} of input {value['name']!r}", axes.size_of(entry, sizes))
        for value in described.get("inputs", ())
        for dim, (name, entry) in enumerate(zip(value["shape"] or (), shapes.get(value["name"], ()), strict=False))
        if isinstance(name, str) and name != _NAMELESS
    ]


def _outputs(described: Mapping[str, Any], run: RunFacts) -> list[_Axis]:
    """Axes of outputs, of eager's shape where the file's is the same: else its values are wrong, which is said."""
    shapes = {facts.name: facts.expected_shape for facts in run.outputs if facts.expected_shape == facts.actual_shape}
    return [
        _Axis(name, f"dimension {dim} of output {value['name']!r}", size)
        for value in described.get("outputs", ())
        for dim, (name, size) in enumerate(zip(value["shape"] or (), shapes.get(value["name"], ()), strict=False))
        if isinstance(name, str) and name != _NAMELESS
    ]


def _have_one_size(named: Sequence[_Axis]) -> bool:
    return len({(axis.name, axis.size) for axis in named}) == len({axis.name for axis in named})


def _apart(named: Iterable[_Axis], but: Collection[int] = (1,)) -> Iterator[tuple[_Axis, _Axis]]:
    """Yields pairs of one name and two sizes. Of inputs a size of one is none of these: axes that the model adds are
    one axis in the file, which broadcasts as eager does.
    """
    first: dict[str, _Axis] = {}
    for axis in named:
        if axis.size not in but and axis.size != first.setdefault(axis.name, axis).size:
            yield axis, first[axis.name]


def _finding(axis: _Axis, other: _Axis, run: RunFacts) -> Failure:
    message = (
        f"{axis.where} is called {axis.name!r} as {other.where} is, and they are {axis.size} and {other.size} at "
        f"{sizes_of(run)}: axes of one name are of one size. Next step: give each axis the name that was asked for, "
        "and axes that may differ names of their own"
    )
    return Failure("dynamic", "TiedAxes", message)
