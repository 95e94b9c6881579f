"""Which tensors a function of torch writes to, by its name and its arguments, before it is called.

Arrives: a function as `__torch_function__` gets it, and its arguments. Leaves: the tensors, or None where it cannot be
said or a write is none of numbers (another memory, another size).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverloadPacket

_IN_PLACE = frozenset(
    f"__{name}__"
    for name in (
        *("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
        *("iand", "ior", "ixor", "ilshift", "irshift", "idiv"),
    )
)
_NO_NUMBERS = frozenset({"requires_grad_"})
_MORE_THAN_NUMBERS = frozenset({"resize_", "resize_as_", "set_", "swap_", "detach_", "apply_", "map_", "__set__"})
_TRAINED: frozenset[object] = frozenset({torch.nn.functional.batch_norm, torch.nn.functional.instance_norm})


def written_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Tensor] | None:
    """The tensors among a function's arguments whose numbers it changes.

    Args:
        function: a function, a method of tensors, or an operator of torch.
        args, kwargs: what it is about to be called with.
    """
    out = kwargs.get("out")
    written = [one for one in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(one, Tensor)]
    schema = getattr(function, "_schema", None)
    if isinstance(function, OpOverloadPacket) and schema is None:
        schemas = [getattr(function, name)._schema for name in function.overloads()]
        if any(one.is_mutable for one in schemas) and len(schemas) > 1:
            return None
        schema = schemas[0]
    if schema is not None:
        return [*written, *_by_schema(schema, args, kwargs)]
    name = getattr(function, "__name__", "")
    if name in _MORE_THAN_NUMBERS:
        return None
    is_in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__") and name not in _NO_NUMBERS)
    if is_in_place:  # `__setitem__` among them may be a function of Python's while a model is captured
        first = [*args, *kwargs.values()][:1]  # `torch.nn.init` gives names
        targets = first[0] if first and isinstance(first[0], (list, tuple)) else first
        tensors = [one for one in targets if isinstance(one, Tensor)]
        return [*written, *tensors] if tensors else None
    if name == "__getitem__":  # a function of Python's while a model is captured, as `__setitem__`
        return written
    if inspect.isfunction(function):
        if (function.__module__ or "").partition(".")[0] != "torch":  # nobody knows what another one does
            return None
        bound = _bound(function, args, kwargs)
        if bound is None or (function in _TRAINED and (bound.get("training") or bound.get("use_input_stats"))):
            return None
        if bound.get("inplace"):
            return [*written, next(iter(bound.values()))]
    return written


def _by_schema(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    for place, one in enumerate(schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(one.name)
        if one.alias_info is not None and one.alias_info.is_write:
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, Tensor):
                    yield tensor


def _bound(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    return dict(bound.arguments)
