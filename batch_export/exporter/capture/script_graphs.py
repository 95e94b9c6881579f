"""TorchScript's graphs run by Python, node by node: free sizes stay free, and decisions by them are the model's own.

Arrives: a graph in which all calls are written out, and values of its inputs. Leaves: its results. torch's converter of
such graphs decides what it meets by the example alone, and knows neither loops nor lists.

NOTE: each node runs in a frame that bears the file and line of the model's source, as TorchScript keeps them, so that
guards and errors are told by these.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from batch_export.exporter.capture.script_functions import FUNCTIONS, OF_TENSORS, ScriptRaisedError, dtype_of

_PLACE = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+)')
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (bool, int, float, *_SYMBOLIC)
_CONTAINERS = (list, tuple, dict, str)


class UnknownNodeError(RuntimeError):
    """A node of a graph that has no form here."""


def run(graph: Any, inputs: Sequence[object]) -> object:
    """The results of a graph.

    Args:
        graph: TorchScript's graph or block.
        inputs: a value for each of its inputs; a module is an object whose attributes are read and set.

    Returns:
        The one result, or a tuple of several.

    Raises:
        UnknownNodeError: for a node that has no form here.
        ScriptRaisedError: where the graph raises an error itself.
    """
    results = _block(graph, inputs, {})
    return results[0] if len(results) == 1 else tuple(results)


def _block(block: Any, inputs: Iterable[object], outer: Mapping[int, Any]) -> list[Any]:
    values: dict[int, Any] = dict(outer)
    values.update((one.unique(), value) for one, value in zip(block.inputs(), inputs, strict=True))
    for node in block.nodes():
        found = _at_its_line(node)(functools.partial(_run_node, node, values))
        outputs = list(node.outputs())
        values.update((one.unique(), value) for one, value in zip(outputs, found, strict=True))
    return [values[one.unique()] for one in block.outputs()]


def _run_node(node: Any, values: dict[int, Any]) -> Sequence[Any]:
    """The values of a node's outputs."""
    kind = node.kind()
    given = [values[one.unique()] for one in node.inputs()]
    if kind == "prim::Constant":
        return [node.output().toIValue()]
    if kind == "prim::GetAttr":
        return [given[0].read(node.s("name"))]
    if kind == "prim::SetAttr":
        given[0].write(node.s("name"), given[1])
        return []
    if kind == "prim::If":
        taken = list(node.blocks())[0 if given[0] else 1]
        return _block(taken, (), values)
    if kind == "prim::Loop":
        return _loop(node, given, values)
    if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
        return list(given[0])
    if kind == "prim::TupleSlice":
        return [tuple(given[0][node.i("beg") : node.i("end")])]
    if kind == "prim::RaiseException":
        raise ScriptRaisedError(str(given[0]))
    if kind == "prim::fork":
        return [run(node.g("Subgraph"), given)]
    found = _call(node, kind, given)
    count = node.outputsSize()
    return [] if not count else [found] if count == 1 else list(found)


def _loop(node: Any, given: Sequence[Any], values: dict[int, Any]) -> list[Any]:
    most, goes_on, carried = given[0], given[1], list(given[2:])
    body = next(iter(node.blocks()))
    turn = 0
    while turn < most and goes_on:
        goes_on, *carried = _block(body, (turn, *carried), values)
        turn += 1
    return carried


def _call(node: Any, kind: str, given: list[Any]) -> Any:
    """What an operator gives."""
    if kind == "prim::PythonOp":  # asked for its schema, torch ends the process
        raise UnknownNodeError(f"the Python function {node.pyname()} within TorchScript has no form here")
    own = OF_TENSORS.get(kind)
    if own is not None:
        return own(*given)
    function = FUNCTIONS.get(kind.partition("::")[2]) if kind.startswith("aten::") else None
    if function is not None and _is_python(node, given):
        return _of_numbers(function, node, kind.partition("::")[2], given)
    operator = _operator(node, kind)
    arguments, options = _by_name(node, _as_tensors(node, given))
    return operator(*arguments, **options)


def _is_python(node: Any, given: Sequence[Any]) -> bool:
    """Whether an operator is one of Python's objects; sizes that a traced model holds as tensors are such too."""
    if not given or isinstance(given[0], _CONTAINERS):
        return bool(given)
    if any(isinstance(one, torch.Tensor) for one in given):
        return False
    return "Tensor" not in _result(node) or isinstance(given[0], _NUMBERS)


def _result(node: Any) -> str:
    return str(node.schema()).rpartition("->")[2]


def _of_numbers(function: Callable[..., Any], node: Any, name: str, given: list[Any]) -> Any:
    schema = str(node.schema())
    if "Tensor" in schema and name in ("add", "sub") and len(given) == 3:  # `alpha`
        return function(given[0], given[1] if given[2] == 1 else given[1] * given[2])
    if "Tensor" in schema and name == "div" and len(given) == 3 and given[2] is not None:
        return given[0] // given[1] if given[2] == "floor" else int(given[0] / given[1])
    if name == "pow" and "-> float" in schema:
        return function(given[0], given[1]) * 1.0
    return function(*given)


def _as_tensors(node: Any, given: list[Any]) -> list[Any]:
    """Sizes that a traced model computes with as tensors, where an operator takes tensors alone."""
    if not any(isinstance(one, _NUMBERS) for one in given):
        return given
    formals = _formals(str(node.schema()))
    return [
        _tensor(one) if kind == "Tensor" and isinstance(one, _NUMBERS) else one
        for one, (_, kind, _) in zip(given, formals, strict=False)
    ]


def _tensor(number: Any) -> torch.Tensor:
    kind = torch.bool if isinstance(number, (bool, torch.SymBool)) else torch.int64
    kind = torch.float32 if isinstance(number, (float, torch.SymFloat)) else kind
    return torch.scalar_tensor(number, dtype=kind)


def _by_name(node: Any, given: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of an operator by position, and those that it takes by name."""
    formals = _formals(str(node.schema()))
    count = next((place for place, (_, _, is_named) in enumerate(formals) if is_named), len(formals))
    names = [name for name, _, _ in formals[count:]]
    return given[:count], dict(zip(names, given[count:], strict=False))


@functools.cache
def _formals(schema: str) -> tuple[tuple[str, str, bool], ...]:
    """An operator's arguments: name, type, and whether it takes it by name alone."""
    parsed = torch._C.parse_schema(schema)
    return tuple((one.name, str(one.type), bool(one.kwarg_only)) for one in parsed.arguments)


def _operator(node: Any, kind: str) -> Callable[..., Any]:
    schema = str(node.schema())
    space, _, name = kind.partition("::")
    overload = schema.partition("(")[0].partition(".")[2] or "default"
    packet = getattr(getattr(torch.ops, space), name, None)
    found = getattr(packet, overload, None) if packet is not None else None
    if found is None or schema == "(no schema)":
        raise UnknownNodeError(f"the operator {kind} of TorchScript has no form here")
    if "prim" in overload:  # `to.prim_dtype` and the like, which Python's method of that name is
        return _by_method(name, _formals(schema))
    made: Callable[..., Any] = found
    return made


def _by_method(name: str, formals: Sequence[tuple[str, str, bool]]) -> Callable[..., Any]:
    """Python's method of that name, which takes what TorchScript gives by position by the names of its arguments."""

    def called(tensor: torch.Tensor, *given: Any, **more: Any) -> Any:
        by_place = {one: value for (one, _, _), value in zip(formals[1:], given, strict=False)}
        named = {one: value for one, value in {**by_place, **more}.items() if value is not None}
        return getattr(tensor, name)(**{k: dtype_of(v) if k == "dtype" else v for k, v in named.items()})

    return called


_Frame = Callable[[Callable[[], Sequence[Any]]], Sequence[Any]]


def _at_its_line(node: Any) -> _Frame:
    """What runs a node in a frame of the model's source."""
    if node.kind() in ("prim::Constant", "prim::GetAttr"):
        return _plain
    places = _PLACE.findall(node.sourceRange())
    return _frame(places[-1][0], int(places[-1][1])) if places else _plain


def _plain(function: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    return function()


def _template(function: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    return function()


@functools.lru_cache(maxsize=4096)
def _frame(file: str, line: int) -> _Frame:
    first = line - 1  # it calls on its second line; by its name torch knows a model's frames
    code = _template.__code__.replace(co_filename=file, co_firstlineno=first, co_name="forward")
    return types.FunctionType(code, {}, "forward")
