"""The mark that says which torch operators a function translates, and from which opset on."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

import onnx_ir as ir

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an operator is not written as ONNX's own of that name.

    Attributes:
        reason: a sentence without a full stop.
        formal: whether ONNX's operator cannot say it at all; else a runtime's kernel is known to fail.
    """

    reason: str
    formal: bool = False


@dataclass(frozen=True, slots=True)
class Lowering:
    """A translation and the names that it serves (`aten::name.overload`).

    Attributes:
        names: the torch operators.
        function: what translates them.
        opset: the first opset at which it may be used.
        is_complex: whether it takes complex tensors.
        native: the ONNX operator that it writes the torch operator as, where there are other ways; else empty.
        obstacle: from the operator's arguments to what speaks against that, if anything does.
    """

    names: tuple[str, ...]
    function: Callable[..., Any]
    opset: int
    is_complex: bool
    native: str = ""
    obstacle: Callable[..., Obstacle | None] | None = None


def lowering(
    *names: str,
    opset: int = 18,
    is_complex: bool = False,
    native: str = "",
    obstacle: Callable[..., Obstacle | None] | None = None,
) -> Callable[[_Function], _Function]:
    """Marks a function as the translation of the named operators from `opset` on; see `Lowering`."""

    def mark(function: _Function) -> _Function:
        marks = getattr(function, "__lowerings__", ())
        made = Lowering(names, function, opset, is_complex, native, obstacle)
        function.__lowerings__ = (*marks, made)  # type: ignore[attr-defined]
        return function

    return mark


def marked(module: ModuleType) -> tuple[Lowering, ...]:
    """The lowerings of a module, in the order of its source."""
    found: list[Lowering] = []
    for value in vars(module).values():
        if callable(value) and getattr(value, "__module__", "") == module.__name__:
            found.extend(getattr(value, "__lowerings__", ()))
    return tuple(found)


@dataclass(frozen=True)
class MarkedFunction:
    """A translation of ours with the signature that the recorder reads: `ir.Value` parameters are inputs."""

    function: Callable[..., Any]
    op_signature: ir.schemas.OpSignature = field(repr=False)


def marked_function(function: Callable[..., Any]) -> MarkedFunction:
    """Reads a function's type hints: parameters of type `ir.Value` take tensors, all others plain values."""
    parameters: list[ir.schemas.Parameter | ir.schemas.AttributeParameter] = []
    hints = typing.get_type_hints(function)
    for parameter in inspect.signature(function).parameters.values():
        kinds = _kinds(hints.get(parameter.name, Any))
        required = parameter.default is inspect.Parameter.empty
        if kinds == {ir.Value}:
            constraint = ir.schemas.TypeConstraintParam.any_tensor(f"T_{parameter.name}")
            parameters.append(ir.schemas.Parameter(parameter.name, constraint, required=required, variadic=False))
        else:
            kind = ir.AttributeType.FLOAT if kinds == {float} else ir.AttributeType.INT
            parameters.append(ir.schemas.AttributeParameter(parameter.name, kind, required=required))
    signature = ir.schemas.OpSignature("pkg.batch_export", function.__name__, "", params=parameters, outputs=[])
    return MarkedFunction(function, signature)


def _kinds(hint: Any) -> set[Any]:
    """The types that a hint allows, without None."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return {kind for kind in (typing.get_args(hint) if is_union else (hint,)) if kind is not types.NoneType}
