"""Names of a model's inputs, outputs and axes: those that the caller asked for, or those of the captured program.

Arrives: an ONNX model and names. Leaves: the same model, changed in place. Types and sizes stay as they are.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from batch_export.errors import OnnxExporterError
from batch_export.exporter.graph import metadata
from batch_export.exporter.optimise.passes import PassReport
from batch_export.legalise.nested import graphs_of


def rename(model: ir.Model, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> None:
    """Renames inputs and outputs in order; fewer names than values leave the rest as they are.

    Whatever else has one of these names (a weight, an inner value, a default name of the other side) gives way.

    Raises:
        OnnxExporterError: if there are more names than values, or a name is given twice.
    """
    wanted: dict[ir.Value, str] = {}
    for side, values, names in (
        ("input", model.graph.inputs, input_names),
        ("output", model.graph.outputs, output_names),
    ):
        if not names:
            continue
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise OnnxExporterError(
                f"{side}_names is {names!r}", next_step="give a list of names, none of them empty, in order"
            )
        if len(names) > len(values):
            raise OnnxExporterError(
                f"{len(names)} {side} names for {len(values)} {side}s",
                next_step=f"the {side}s are {', '.join(value.name or '' for value in values)}",
            )
        if len(set(names)) != len(names):
            raise OnnxExporterError(f"{side}_names has a name twice: {', '.join(names)}")
        both = sorted(set(names) & set(wanted.values()))
        if both:
            raise OnnxExporterError(
                f"{', '.join(both)} is given in input_names and in output_names",
                next_step="a file has each name once: choose another name for the output",
            )
        wanted |= dict(zip(values, names, strict=False))
    give_names(model, wanted)


def give_names(model: ir.Model, wanted: Mapping[ir.Value, str]) -> None:
    """Gives values their names; other values that happen to have one of these get a number behind theirs."""
    names = set(wanted.values())
    others = [value for value in all_values(model) if value not in wanted]
    taken = {value.name for value in others} | names
    for value in others:
        if value.name not in names:
            continue
        number = 1
        while f"{value.name}_{number}" in taken:
            number += 1
        fresh = f"{value.name}_{number}"
        taken.add(fresh)
        value.name = fresh
    for value, name in wanted.items():
        value.name = name


def optimised(model: ir.Model, run: Callable[[], list[PassReport]]) -> list[PassReport]:
    """Runs passes over a model whose outputs keep their names, whatever values the passes put in their places."""
    names = [value.name or "" for value in model.graph.outputs]
    reports = run()
    outputs = model.graph.outputs
    if len(outputs) == len(names) and [value.name for value in outputs] != names:
        made = dict(zip(outputs, names, strict=True))
        give_names(model, {value: name for value, name in made.items() if value.producer() is not None})
    return reports


def rename_axes(model: ir.Model, names: Mapping[str, str]) -> list[str]:
    """Renames axes everywhere: in the shapes of values, inside expressions (`past + seq`), and in the metadata.

    Args:
        model: the model to change.
        names: old name, or a whole expression -> new name.

    Returns:
        The old names that no axis has, sorted.
    """
    found: set[str] = set()

    def renamed(text: str) -> str:
        whole = names.get(text)
        if whole is not None:
            found.add(text)
            return whole
        return _IDENTIFIER.sub(lambda word: _note(names, word[0], found), text)

    for value in all_values(model):
        if value.shape is not None:
            dims = value.shape.dims
            value.shape = ir.Shape(
                [
                    ir.SymbolicDim(renamed(size.value)) if isinstance(size, ir.SymbolicDim) and size.value else size
                    for size in dims
                ]
            )
    missing = sorted(set(names) - found)
    for properties in (model.graph.metadata_props, model.metadata_props):
        for key in (metadata.RANGE_CONSTRAINTS, metadata.GUARDS):
            if key in properties:
                properties[key] = renamed(properties[key])
    return missing


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def _note(names: Mapping[str, str], word: str, found: set[str]) -> str:
    if word in names:
        found.add(word)
    return names.get(word, word)


def keep_apart(model: ir.Model, names: Collection[str]) -> None:
    """Gives axes of inner values names of their own, where they have one of some names now.

    An axis that two inputs share may still have one element in one of them and more in the other, where the model
    broadcasts. A runtime that takes inner values of the same axes for equally large would let one use the memory of
    another. Values without a shape get one first, as a runtime would infer it from the inputs' names.
    """
    if not names:
        return
    _give_shapes(model, names)
    taken = {str(size.value) for value in all_values(model) for size in value.shape or () if not isinstance(size, int)}
    outside = {*model.graph.inputs, *model.graph.outputs}
    count = 0
    for value in all_values(model):
        if value in outside or value.shape is None:
            continue
        sizes: list[int | ir.SymbolicDim] = []
        for size in value.shape.dims:
            if isinstance(size, ir.SymbolicDim) and set(_IDENTIFIER.findall(size.value or "")) & set(names):
                count += 1
                while f"inner_{count}" in taken:
                    count += 1
                size = ir.SymbolicDim(f"inner_{count}")
            sizes.append(size)
        value.shape = ir.Shape(sizes)


@contextlib.contextmanager
def ends_apart(model: ir.Model, names: Collection[str]) -> Iterator[None]:
    """Within, axes of inputs and outputs have names of their own, where they have one of some names now.

    Passes take axes of one name for equally large, and two inputs that share it may differ (one element beside more).
    """
    ends = [*model.graph.inputs, *model.graph.outputs] if names else []
    before = {one.name: one.shape for one in ends if one.shape is not None}
    count = itertools.count()

    def own(size: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
        is_shared = isinstance(size, ir.SymbolicDim) and set(_IDENTIFIER.findall(size.value or "")) & set(names)
        return ir.SymbolicDim(f"__end_{next(count)}__") if is_shared else size

    for one in dict.fromkeys(ends):
        one.shape = None if one.shape is None else ir.Shape([own(size) for size in one.shape.dims])
    try:
        yield
    finally:
        for one in (*model.graph.inputs, *model.graph.outputs):
            one.shape = before.get(one.name, one.shape)


def _give_shapes(model: ir.Model, names: Collection[str]) -> None:
    """Gives values without a shape the one that follows from the inputs', where it has one of some names."""
    known = {value: value.shape for value in all_values(model)}
    if all(shape is not None for shape in known.values()):
        return
    inferred = model.clone()
    ShapeInferencePass(check_type=False, strict_mode=False)(inferred)
    found = {value.name: value.shape for value in all_values(inferred)}
    for value, shape in known.items():
        given = found.get(value.name) if shape is None else None
        if given is not None and any(set(_IDENTIFIER.findall(str(size))) & set(names) for size in given):
            value.shape = given


def replace_words(text: str, names: Mapping[str, str]) -> str:
    """The text with whole identifiers replaced."""
    return _IDENTIFIER.sub(lambda word: names.get(word[0], word[0]), text)


def axis_names(model: ir.Model) -> set[str]:
    """Every name, or expression of names, of an axis of the model's inputs."""
    shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
    return {str(size.value) for shape in shapes for size in shape.dims if isinstance(size, ir.SymbolicDim)}


def all_values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the model: inputs, initializers and outputs of nodes, those of bodies and functions included."""
    roots = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in (one for root in roots for one in graphs_of(root)):
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs
