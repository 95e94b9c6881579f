"""Whether what a model's code computes at some line changes nothing besides, also where it is computed of nothing.

Arrives: an expression of the source, and the frame in which it stands. Leaves: whether it only reads, and calls only
what is known to write to nothing and to fail of no rows. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Iterator
from types import FrameType

import torch

from batch_export.exporter.capture.read_values import value_of

_OF_ELEMENTS = frozenset(("max", "min", "amax", "amin", "argmax", "argmin", "median", "topk", "kthvalue", "quantile"))
"""These fail of nothing, unless another axis than the rows is named."""
_READING = frozenset(("item", "tolist", "numpy", "backward", "register_hook", "set_default_dtype", "save", "load"))
_CHANGING = frozenset(("append", "extend", "insert", "update", "pop", "clear", "setdefault", "add", "remove", "write"))
_BUILTINS = frozenset(
    ("len", "range", "int", "float", "super", "isinstance", "zip", "enumerate", "tuple", "min", "max")
)


def only_computes(expression: ast.expr, frame: FrameType) -> bool:
    """Returns whether an expression changes nothing, and asks nothing of data."""
    match expression:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute(value=of):
            return only_computes(of, frame)
        case ast.Subscript(value=of, slice=place):
            return only_computes(of, frame) and only_computes(place, frame)
        case ast.Slice(lower=lower, upper=upper, step=step):
            return all(one is None or only_computes(one, frame) for one in (lower, upper, step))
        case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
            return only_computes(left, frame) and only_computes(right, frame)
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand):
            return only_computes(operand, frame)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return all(only_computes(one, frame) for one in elements)
        case ast.Call():
            return _calls_harmless(expression, frame)
    return False


def _calls_harmless(call: ast.Call, frame: FrameType) -> bool:
    given = [*call.args, *(one.value for one in call.keywords)]
    if any(one.arg in (None, "out", "inplace") for one in call.keywords):
        return False
    if not all(only_computes(one, frame) for one in given):
        return False
    called = value_of(call.func, frame)
    if isinstance(called, torch.nn.Module):
        return changes_nothing(called)
    if not isinstance(call.func, ast.Attribute):
        return False
    name, of = call.func.attr, value_of(call.func.value, frame)
    if name.endswith("_") or name in _READING or (name in _OF_ELEMENTS and not _names_other_axis(given)):
        return False
    if isinstance(of, types.ModuleType):
        return of.__name__ in ("torch", "torch.nn.functional", "torch.special") and hasattr(of, name)
    is_method = hasattr(torch.Tensor, name) and (of is None or isinstance(of, torch.Tensor))
    return is_method and only_computes(call.func.value, frame)


def _names_other_axis(given: list[ast.expr]) -> bool:
    numbers = [one for one in given if isinstance(one, (ast.Constant, ast.UnaryOp))]
    return any(ast.unparse(one) in ("-1", "1", "2") for one in numbers)


def changes_nothing(module: torch.nn.Module) -> bool:
    """Returns whether no call of a module writes to anything that there was before, as far as its source tells."""
    return all(_keeps(one) for one in module.modules())


def _keeps(module: torch.nn.Module) -> bool:
    if module._forward_hooks or module._forward_pre_hooks or getattr(module, "inplace", False):
        return False
    if module.training and getattr(module, "track_running_stats", False):
        return False
    return all(_is_harmless(kind) for kind in type(module).__mro__ if not _is_of_torch(kind))


def _is_of_torch(kind: type) -> bool:
    return kind is object or kind.__module__.startswith(("torch.nn.", "typing"))


@functools.lru_cache(maxsize=256)
def _is_harmless(kind: type) -> bool:
    """Whether no method of a class but those that make it writes to anything but names of its own."""
    try:
        (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    methods = [one for one in ast.walk(parsed) if isinstance(one, ast.FunctionDef) and one.name != "__init__"]
    return not any(_may_change(node) for method in methods for node in _nodes(method))


def _nodes(method: ast.FunctionDef) -> Iterator[ast.AST]:
    return (node for statement in method.body for node in ast.walk(statement))


def _may_change(node: ast.AST) -> bool:
    match node:
        case ast.AugAssign() | ast.Global() | ast.Nonlocal() | ast.Delete() | ast.Yield() | ast.Await():
            return True
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            return True
        case ast.keyword(arg="out" | "inplace"):
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _CHANGING or (name.endswith("_") and not name.endswith("__"))
        case ast.Call(func=ast.Name(id=name)):
            return name not in _BUILTINS
    return False
