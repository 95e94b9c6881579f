"""Every way to ask for dynamic axes -> one canonical form, and axis names that survive into the file.

Arrives: what the caller gave as `dynamic_shapes` and the example inputs. Leaves: the tree that torch.export takes (with
`Dim.DYNAMIC` wherever a name was given, so that torch rejects an axis that the model makes static), and, per input
tensor and axis, the name that was asked for. After capture the names are tied to torch's symbols. What holds only under
a guard is `guards.py`'s business.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import Dim
from torch.export.dynamic_shapes import AdditionalInputs, ShapesCollection
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from batch_export.calling.axis_words import in_words, of_tree
from batch_export.calling.tree_paths import leaves_with_paths
from batch_export.calling.users_line import users_level
from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter.capture.guard_symbols import AskedAxis
from batch_export.exporter.capture.shape_specs import Walk, Wanted, asks_for_nothing


@dataclass(slots=True)
class DynamicShapes:
    """Canonical dynamic shapes.

    Attributes:
        torch_form: what `torch.export.export` takes, or None when every axis is static.
        names: for each tensor among the flattened inputs, axis -> name asked for ("" when dynamic without a name).
        required: for each of these tensors, the axes that have to stay dynamic.
        axes: every axis asked for, with its range and whether it has to stay dynamic.
        aliases: other ways in which torch's guards name an input -> the one in `axes`.
        forms: for each tensor, as `axes` names it, the part of `torch_form` that is its own.
        positions: for each tensor, as `axes` names it, where it is among the flattened `(args, kwargs)`.
    """

    torch_form: object = None
    names: list[dict[int, str]] = field(default_factory=list)
    required: list[frozenset[int]] = field(default_factory=list)
    axes: list[AskedAxis] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    forms: dict[str, dict[int, Any]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)

    def fix(self, places: Sequence[tuple[str, int]]) -> None:
        """Makes axes static (input and axis, as in `axes`): torch is told so, and they are no longer asked for."""
        for where, axis in places:
            self.forms[where][axis] = Dim.STATIC
        order = list(self.forms)
        for where, axis in places:
            self.names[order.index(where)].pop(axis, None)
        self.axes = [one for one in self.axes if (one.where, one.axis) not in places]


def canonical(
    dynamic_shapes: object, module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> DynamicShapes:
    """Converts any accepted form.

    Args:
        dynamic_shapes: None, True or False (all axes or none), a tree like the inputs with names, Dims, hints, ints or
            None at its axes, a dict keyed by parameter names, a `ShapesCollection` or an `AdditionalInputs`.

    Raises:
        DynamicShapeError: naming the input and the axis that does not fit.
    """
    by_name = bind_names(module, args, kwargs)
    if dynamic_shapes is None or dynamic_shapes is False or dynamic_shapes in ((), []):
        return DynamicShapes()
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(module, tuple(args), dict(kwargs))  # type: ignore[no-untyped-call]
    words = of_tree(dynamic_shapes)
    if told := in_words(words):
        warnings.warn(
            f"names of axes that are not identifiers are replaced: {told}", ExportWarning, stacklevel=users_level()
        )
    walker = Walk(words)
    if dynamic_shapes is True:
        form = {
            name: pytree.tree_map_only(torch.Tensor, lambda tensor: {a: Dim.AUTO for a in range(tensor.dim())}, value)
            for name, value in by_name.items()
        }
        dynamic_shapes = form
    left_out = _left_out(module, by_name)
    if isinstance(dynamic_shapes, (list, tuple)):
        parameters = [name for name in inspect.signature(module.forward).parameters if name in {*by_name, *left_out}]
        order = parameters if len(dynamic_shapes) == len(parameters) > len(by_name) else list(by_name)
        if len(dynamic_shapes) != len(order):
            raise DynamicShapeError(
                f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(by_name)} inputs ({', '.join(by_name)})",
                next_step="give one entry for each input, None for those that stay static, or a dict keyed by names",
            )
        dynamic_shapes = dict(zip(order, dynamic_shapes, strict=True))
    if not isinstance(dynamic_shapes, Mapping):
        raise DynamicShapeError(
            f"dynamic_shapes is a {type(dynamic_shapes).__name__}",
            next_step="give a dict keyed by parameter names or a tuple in the order of the inputs",
        )
    gathered = _gathered(module)
    if gathered not in by_name and isinstance(dynamic_shapes.get(gathered), Mapping):
        dynamic_shapes = {
            **{name: dynamic_shapes[name] for name in dynamic_shapes if name != gathered},
            **dynamic_shapes[gathered],
        }
    dynamic_shapes = {
        name: one for name, one in dynamic_shapes.items() if name not in left_out or not asks_for_nothing(one)
    }
    if absent := [name for name in dynamic_shapes if name in left_out]:
        raise DynamicShapeError(
            f"dynamic_shapes gives axes for {', '.join(absent)}, which the example leaves at its default",
            next_step="give None there, or an example that has the input",
        )
    unknown = set(dynamic_shapes) - set(by_name)
    if unknown:
        raise DynamicShapeError(
            f"dynamic_shapes names {sorted(map(str, unknown))}, which are not inputs",
            next_step=f"the inputs are {', '.join(by_name)}",
        )
    torch_form = {name: walker.walk(dynamic_shapes.get(name), value, name) for name, value in by_name.items()}
    named = inspect.signature(module.forward).parameters
    inner = [name for name in by_name if name not in named]
    if inner and any(walker.wanted):
        raise DynamicShapeError(
            f"forward takes {', '.join(inner)} by **{gathered}, and then torch.export leaves no axis of any input free",
            next_step="name these inputs in forward's signature, or in that of a module that calls this one",
        )
    for label, others in walker.renamed.items():
        warnings.warn(
            f"axes of different sizes are called {label} in dynamic_shapes, so that they are not one axis: those of "
            f"other sizes than the first are called {', '.join(others)}",
            ExportWarning,
            stacklevel=users_level(),
        )
    axes, aliases = _axes(by_name, args, kwargs, walker.wanted)
    required = [frozenset(axis for axis, one in wanted.items() if one.required) for wanted in walker.wanted]
    leaves = leaves_with_paths(dict(by_name))
    places = [pytree.keystr(path) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    forms = dict(zip(places, walker.forms, strict=False))
    flat = len(pytree.tree_leaves((tuple(args), dict(kwargs))))
    positions = {aliases[place]: index for index in range(flat) if (place := f"['flat_args'][{index}]") in aliases}
    return DynamicShapes(torch_form, walker.names, required, axes, aliases, forms, positions)


def _left_out(module: torch.nn.Module, by_name: Mapping[str, object]) -> frozenset[str]:
    """The parameters of forward that the example leaves at their defaults."""
    parameters = inspect.signature(module.forward).parameters.items()
    return frozenset(name for name, one in parameters if one.default is not one.empty and name not in by_name)


def _gathered(module: torch.nn.Module) -> str:
    """The parameter of forward that takes all other keywords; empty where there is none."""
    parameters = inspect.signature(module.forward).parameters.values()
    return next((one.name for one in parameters if one.kind is inspect.Parameter.VAR_KEYWORD), "")


def _axes(
    by_name: Mapping[str, object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    wanted: Sequence[Mapping[int, Wanted]],
) -> tuple[list[AskedAxis], dict[str, str]]:
    """The axes asked for by the place of their input, and the places by the position among all flattened inputs."""
    leaves = leaves_with_paths(dict(by_name))
    places = [(pytree.keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    axes = [
        AskedAxis(place, axis, one.name, one.required, one.lowest, one.highest, one.derived)
        for (place, _), of_tensor in zip(places, wanted, strict=False)
        for axis, one in of_tensor.items()
    ]
    by_identity = {id(tensor): place for place, tensor in places}
    flat = pytree.tree_leaves((tuple(args), dict(kwargs)))
    aliases = {
        f"['flat_args'][{position}]": by_identity[id(leaf)]
        for position, leaf in enumerate(flat)
        if id(leaf) in by_identity
    }
    return axes, aliases


def bind_names(module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """The inputs by parameter name of `forward`, in the order in which torch.export flattens them."""
    signature = inspect.signature(module.forward)
    bound = signature.bind(*args, **kwargs)
    named: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def axis_names(program: torch.export.ExportedProgram, asked: DynamicShapes) -> dict[str, str]:
    """Ties the names that were asked for to torch's symbols.

    Returns:
        Symbol (`s17`) -> name. An axis without a name keeps the symbol.

    Raises:
        DynamicShapeError: if an axis that was asked for as dynamic is static in the captured program.
    """
    names: dict[str, str] = {}
    for (input_name, fake), wanted, required in zip(user_tensors(program), asked.names, asked.required, strict=False):
        for axis, name in wanted.items():
            size: Any = fake.shape[axis]
            if (fixed := _fixed(size)) is not None:
                if axis in required:
                    raise DynamicShapeError(
                        f"axis {axis} ({name or 'dynamic'}) of the input {input_name} was asked for as dynamic, "
                        f"but the model makes it {fixed}",
                        next_step="remove it from dynamic_shapes, or change the model so that this size is not fixed",
                    )
                continue
            expr = size.node.expr
            if name and expr.is_Symbol and expr.name not in names:
                names[expr.name] = name
    return names


def _fixed(size: Any) -> int | None:
    """The number that a size is in a program, also where torch found that out after it made a symbol for it."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    environment = size.node.shape_env
    known = size.node.expr if environment is None else environment.replace(size.node.expr)
    return int(known) if known.is_number else None


def other_names(
    program: torch.export.ExportedProgram, asked: DynamicShapes, names: Mapping[str, str]
) -> dict[str, str]:
    """The names asked for of axes that are another named axis in the program: that name -> the one that stands."""
    found: dict[str, str] = {}
    for (_, fake), wanted in zip(user_tensors(program), asked.names, strict=False):
        for axis, name in wanted.items():
            size: Any = fake.shape[axis]
            kept = names.get(str(size.node.expr)) if isinstance(size, torch.SymInt) else None
            if name.isidentifier() and kept and name != kept and name not in names.values():
                found.setdefault(name, kept)
    return found


def derived_names(
    program: torch.export.ExportedProgram, asked: DynamicShapes, names: Mapping[str, str]
) -> dict[str, str]:
    """The names asked for of axes that capture expresses by others: the expression, in axis names -> the name."""
    found: dict[str, str] = {}
    for (_, fake), wanted in zip(user_tensors(program), asked.names, strict=False):
        for axis, name in wanted.items():
            size: object = fake.shape[axis]
            if not name.isidentifier() or not isinstance(size, torch.SymInt):
                continue
            expr = size.node.expr
            if not expr.is_Symbol and not expr.is_number:
                shown = {symbol: sympy.Symbol(names.get(symbol.name, symbol.name)) for symbol in expr.free_symbols}
                found.setdefault(str(expr.xreplace(shown)), name)
    return found


def user_tensors(program: torch.export.ExportedProgram) -> list[tuple[str, torch.Tensor]]:
    """Name and fake tensor of each tensor among the user's inputs, in order."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found: list[tuple[str, torch.Tensor]] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
            value = placeholders[spec.arg.name].meta.get("val")
            if isinstance(value, torch.Tensor):
                found.append((spec.arg.name, value))
    return found


def require_free(program: torch.export.ExportedProgram, shapes: Sequence[Sequence[object] | None]) -> None:
    """Holds the inputs of a file against the program that it was made from: what is free there is free here.

    Args:
        program: what was captured.
        shapes: of the file's inputs, in order; a size that is not an int is free.

    Raises:
        DynamicShapeError: naming the input and the axis that became fixed.
    """
    tensors = user_tensors(program)
    if len(tensors) != len(shapes):
        return  # inputs that are numbers; they have no axes
    for (name, fake), sizes in zip(tensors, shapes, strict=True):
        sizes_there: list[object] = list(fake.shape)
        for axis, size in enumerate(sizes_there):
            is_free = isinstance(size, torch.SymInt) and not size.node.expr.is_number
            if is_free and (sizes is None or isinstance(sizes[axis], int)):
                raise DynamicShapeError(
                    f"axis {axis} of the input {name} is free in the captured program and fixed in the file",
                    next_step="export with optimize=False, or without that axis, and report this model",
                )
