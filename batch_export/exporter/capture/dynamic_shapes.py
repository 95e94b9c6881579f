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
from torch.export.dynamic_shapes import AdditionalInputs, ShapesCollection, _DerivedDim, _DimHint
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from batch_export.calling.axis_words import AxisExpression, in_words, is_word, of_tree
from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter.capture.guard_symbols import AskedAxis


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

    torch_form: Any = None
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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One axis of one tensor: what torch is told, and what is remembered of it."""

    torch_form: Any
    is_dynamic: bool = False
    name: str = ""
    required: bool = False
    lowest: int = 0
    highest: int | None = None
    derived: bool = False


def _wanted(given: Any, words: Mapping[str, str]) -> _Wanted | None:
    """One entry of a spec; None if it is of no accepted kind.

    Names and named Dims become `Dim.DYNAMIC`: torch then rejects an axis that the model fixes, and everything else that
    it finds out about the axis is judged by `guards.py`, in one way for all forms.
    """
    if given is None or isinstance(given, int):
        return _Wanted(given)
    if isinstance(given, AxisExpression):
        return _Wanted(Dim.DYNAMIC, True, str(given), True, derived=not is_word(given))
    if isinstance(given, str):
        return _Wanted(Dim.DYNAMIC, True, words.get(given, given), True) if given else _Wanted(None)
    if isinstance(given, _DimHint):
        if given.type == Dim.STATIC.type:
            return _Wanted(given)
        low, high = getattr(given, "min", None), getattr(given, "max", None)
        return _Wanted(given, True, "", given.type == Dim.DYNAMIC.type, low or 0, high)
    if isinstance(given, Dim):
        low, high = (_limit(given.min), _limit(given.max))
        form = Dim.DYNAMIC if low is None and high is None else Dim.DYNAMIC(min=low, max=high)
        return _Wanted(form, True, str(given.__name__), True, low or 0, high, isinstance(given, _DerivedDim))
    return None


def _limit(bound: Any) -> int | None:
    """A declared bound that says more than torch's own: 1 and up, and not infinity."""
    return int(bound) if isinstance(bound, int) and 0 < bound < 2**62 else None


def _is_axis_map(spec: Any) -> bool:
    return isinstance(spec, Mapping) and all(isinstance(key, int) for key in spec)


class _Canonical:
    """Walks inputs and specs side by side."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self.words = words
        self.names: list[dict[int, str]] = []
        self.wanted: list[dict[int, _Wanted]] = []
        self.forms: list[dict[int, Any]] = []

    def tensor(self, spec: Any, tensor: torch.Tensor, where: str) -> Any:
        axes: dict[int, Any] = {}
        if spec is None or (isinstance(spec, str) and not spec):
            axes = {}
        elif _is_axis_map(spec):
            axes = dict(spec)
        elif isinstance(spec, (list, tuple)):
            if len(spec) != tensor.dim():
                raise DynamicShapeError(
                    f"dynamic_shapes gives {len(spec)} axes for the input {where}, which has {tensor.dim()}",
                    next_step="give one entry for each axis, or a dict from axis to name",
                )
            axes = dict(enumerate(spec))
        else:
            raise DynamicShapeError(
                f"dynamic_shapes has {spec!r} for the tensor input {where}",
                next_step="give a dict from axis to name, a list with one entry for each axis, or None",
            )
        names: dict[int, str] = {}
        converted: dict[int, Any] = {}
        remembered: dict[int, _Wanted] = {}
        for position, given in axes.items():
            if not -tensor.dim() <= position < tensor.dim():
                raise DynamicShapeError(f"the input {where} has {tensor.dim()} axes, not an axis {position}")
            axis = position % tensor.dim()
            wanted = _wanted(given, self.words)
            if wanted is None:
                raise DynamicShapeError(
                    f"dynamic_shapes has {given!r} for axis {axis} of the input {where}",
                    next_step="give a name, a torch.export.Dim, Dim.DYNAMIC, Dim.AUTO, Dim.STATIC, an int or None",
                )
            converted[axis] = wanted.torch_form
            if wanted.is_dynamic:
                names[axis], remembered[axis] = wanted.name, wanted
        self.names.append(names)
        self.wanted.append(remembered)
        self.forms.append(converted)
        return converted or None

    def walk(self, spec: Any, value: Any, where: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(spec, value, where)
        if isinstance(value, Mapping):
            if spec is not None and not isinstance(spec, Mapping):
                raise DynamicShapeError(f"dynamic_shapes has a {type(spec).__name__} where the input {where} is a dict")
            of_keys = _by_name(spec, list(value), where)
            return {key: self.walk(of_keys[key], item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return self._sequence(spec, value, where)
        leaves, _ = pytree.tree_flatten(value)
        if len(leaves) != 1 or leaves[0] is not value:
            return self._registered_container(spec, value, where)
        if isinstance(value, int) and not isinstance(value, bool) and isinstance(spec, (str, Dim, _DimHint)):
            return spec if isinstance(spec, _DimHint) else Dim.DYNAMIC
        return None

    def _sequence(self, spec: Any, value: list[Any] | tuple[Any, ...], where: str) -> Any:
        """Lists, tuples and named tuples; for the latter the spec may have the fields' names."""
        fields: tuple[str, ...] | None = getattr(type(value), "_fields", None)
        if fields is not None and isinstance(spec, Mapping):
            spec = list(_by_name(spec, fields, where).values())
        specs = _by_position(spec, len(value), where, "a list")
        walked = [
            self.walk(one, item, f"{where}.{fields[index]}" if fields is not None else f"{where}[{index}]")
            for index, (one, item) in enumerate(zip(specs, value, strict=True))
        ]
        if fields is not None:
            return type(value)(*walked)
        return walked if isinstance(value, list) else tuple(walked)

    def _registered_container(self, spec: Any, value: Any, where: str) -> Any:
        """Containers registered with pytree (dataclasses, caches): a spec for each child, by position or by name."""
        children = pytree.tree_flatten(value, is_leaf=lambda item: item is not value)[0]
        fields = _fields(value, len(children))
        if type(spec) is type(value) and fields:
            spec = [getattr(spec, field, None) for field in fields]
        elif type(spec) is type(value):
            spec = pytree.tree_flatten(spec, is_leaf=lambda item: item is not spec)[0]
        elif fields and isinstance(spec, Mapping):
            spec = list(_by_name(spec, fields, where).values())
        specs = _by_position(spec, len(children), where, f"a {type(value).__name__}")
        return [
            self.walk(one, child, f"{where}.{fields[index]}" if fields else f"{where}[{index}]")
            for index, (one, child) in enumerate(zip(specs, children, strict=True))
        ]


def _by_name(spec: Mapping[Any, Any] | None, names: Sequence[Any], where: str) -> dict[Any, Any]:
    """A spec for each name, None for those that it leaves out."""
    unknown = set(spec or ()) - set(names)
    if unknown:
        raise DynamicShapeError(
            f"dynamic_shapes names {sorted(map(str, unknown))}, which the input {where} does not have",
            next_step=f"it has {sorted(map(str, names))}",
        )
    return {name: (spec or {}).get(name) for name in names}


def _by_position(spec: Any, count: int, where: str, kind: str) -> Sequence[Any]:
    if spec is None:
        return [None] * count
    if not isinstance(spec, (list, tuple)):
        raise DynamicShapeError(f"dynamic_shapes has a {type(spec).__name__} where the input {where} is {kind}")
    if len(spec) != count:
        raise DynamicShapeError(f"dynamic_shapes has {len(spec)} entries for the {count} of the input {where}")
    return spec


def _fields(value: Any, count: int) -> tuple[str, ...]:
    """The names of a container's children, in order; empty where they have none."""
    try:
        paths = pytree.tree_flatten_with_path(value, is_leaf=lambda item: item is not value)[0]
    except ValueError:  # registered without the keys of its children
        return ()
    names = tuple(str(getattr(path[-1], "name", getattr(path[-1], "key", ""))) for path, _ in paths if path)
    return names if len(set(names) - {""}) == count else ()


def canonical(
    dynamic_shapes: Any, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> DynamicShapes:
    """Converts any accepted form.

    Args:
        dynamic_shapes: None, True or False (all axes or none), a tree like the inputs with names, Dims, hints, ints or
            None at its axes, a dict keyed by parameter names, a `ShapesCollection` or an `AdditionalInputs`.

    Raises:
        DynamicShapeError: naming the input and the axis that does not fit.
    """
    by_name = bind_names(module, args, kwargs)
    if dynamic_shapes is None or dynamic_shapes is False:
        return DynamicShapes()
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(module, tuple(args), dict(kwargs))  # type: ignore[no-untyped-call]
    words = of_tree(dynamic_shapes)
    if told := in_words(words):
        warnings.warn(f"names of axes that are no identifiers are mended: {told}", ExportWarning, stacklevel=5)
    walker = _Canonical(words)
    if dynamic_shapes is True:
        form = {
            name: pytree.tree_map_only(torch.Tensor, lambda tensor: {a: Dim.AUTO for a in range(tensor.dim())}, value)
            for name, value in by_name.items()
        }
        dynamic_shapes = form
    if isinstance(dynamic_shapes, (list, tuple)):
        if len(dynamic_shapes) != len(by_name):
            raise DynamicShapeError(
                f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(by_name)} inputs ({', '.join(by_name)})",
                next_step="give one entry for each input, None for those that stay static, or a dict keyed by names",
            )
        dynamic_shapes = dict(zip(by_name, dynamic_shapes, strict=True))
    if not isinstance(dynamic_shapes, Mapping):
        raise DynamicShapeError(
            f"dynamic_shapes is a {type(dynamic_shapes).__name__}",
            next_step="give a dict keyed by parameter names or a tuple in the order of the inputs",
        )
    unknown = set(dynamic_shapes) - set(by_name)
    if unknown:
        raise DynamicShapeError(
            f"dynamic_shapes names {sorted(map(str, unknown))}, which are not inputs",
            next_step=f"the inputs are {', '.join(by_name)}",
        )
    torch_form = {name: walker.walk(dynamic_shapes.get(name), value, name) for name, value in by_name.items()}
    axes, aliases = _axes(by_name, args, kwargs, walker.wanted)
    required = [frozenset(axis for axis, one in wanted.items() if one.required) for wanted in walker.wanted]
    leaves = pytree.tree_flatten_with_path(dict(by_name))[0]
    places = [pytree.keystr(path) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    forms = dict(zip(places, walker.forms, strict=False))
    flat = len(pytree.tree_leaves((tuple(args), dict(kwargs))))
    positions = {aliases[place]: index for index in range(flat) if (place := f"['flat_args'][{index}]") in aliases}
    return DynamicShapes(torch_form, walker.names, required, axes, aliases, forms, positions)


def _axes(
    by_name: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], wanted: Sequence[Mapping[int, _Wanted]]
) -> tuple[list[AskedAxis], dict[str, str]]:
    """The axes asked for by the place of their input, and the places by the position among all flattened inputs."""
    leaves = pytree.tree_flatten_with_path(dict(by_name))[0]
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


def bind_names(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs by parameter name of `forward`, in the order in which torch.export flattens them."""
    signature = inspect.signature(module.forward)
    bound = signature.bind(*args, **kwargs)
    named: dict[str, Any] = {}
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
            if not isinstance(size, torch.SymInt):
                if axis in required:
                    raise DynamicShapeError(
                        f"axis {axis} ({name or 'dynamic'}) of the input {input_name} was asked for as dynamic, "
                        f"but the model makes it {int(size)}",
                        next_step="remove it from dynamic_shapes, or change the model so that this size is not fixed",
                    )
                continue
            expr = size.node.expr
            if name and expr.is_Symbol and expr.name not in names:
                names[expr.name] = name
    return names


def derived_names(
    program: torch.export.ExportedProgram, asked: DynamicShapes, names: Mapping[str, str]
) -> dict[str, str]:
    """The names asked for of axes that capture expresses by others: the expression, in axis names -> the name."""
    found: dict[str, str] = {}
    for (_, fake), wanted in zip(user_tensors(program), asked.names, strict=False):
        for axis, name in wanted.items():
            size: Any = fake.shape[axis]
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


def require_free(program: torch.export.ExportedProgram, shapes: Sequence[Sequence[Any] | None]) -> None:
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
        sizes_there: list[Any] = list(fake.shape)
        for axis, size in enumerate(sizes_there):
            is_free = isinstance(size, torch.SymInt) and not size.node.expr.is_number
            if is_free and (sizes is None or isinstance(sizes[axis], int)):
                raise DynamicShapeError(
                    f"axis {axis} of the input {name} is free in the captured program and fixed in the file",
                    next_step="export with optimize=False, or without that axis, and report this model",
                )
