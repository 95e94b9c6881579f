"""TorchScript's operators on numbers, lists, texts and dicts, which are Python's own there.

Arrives: an operator's name and its arguments. Leaves: the Python function that it is, which takes free sizes too. The
operators on tensors are torch's own and are none of these.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from batch_export.exporter.capture import script_attention

_CODES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.qint8, torch.quint8, torch.qint32),
    torch.bfloat16,
)
"""Data types by the numbers that TorchScript has for them."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class ScriptRaisedError(RuntimeError):
    """A TorchScript program raises an error of its own."""


def code_of(dtype: torch.dtype) -> object:
    """The number of a data type; a newer one stays as it is."""
    return _CODES.index(dtype) if dtype in _CODES else dtype


def dtype_of(code: object) -> torch.dtype | None:
    """The data type of a number."""
    return code if code is None or isinstance(code, torch.dtype) else _CODES[int(code)]  # type: ignore[call-overload]


def number_of(value: Any) -> Any:
    """The number in a tensor of one element; any other number is itself."""
    return value.item() if isinstance(value, torch.Tensor) else value


def _set(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def _added(left: Any, right: Any) -> Any:
    return [*left, *right] if isinstance(left, list) else left + right


def _extended(left: Any, right: Any) -> Any:
    left.extend(right)
    return left


def _slice(whole: Any, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return whole[start:end:step]


def _range_length(low: Any, high: Any, step: Any) -> Any:
    if isinstance(step, int) and step:
        distance = high - low if step > 0 else low - high
        steps = abs(step)
        return (distance + steps - 1) // steps if distance > 0 else 0
    raise ScriptRaisedError("range() arg 3 must not be zero")


def _append(whole: list[Any], one: Any) -> list[Any]:
    whole.append(one)
    return whole


def _nothing(*_: object) -> None:
    """What is printed or warned of."""


def _smallest(*given: Any) -> Any:
    return _folded(torch.sym_min, min, given)


def _largest(*given: Any) -> Any:
    return _folded(torch.sym_max, max, given)


def _folded(symbolic: Callable[..., Any], plain: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    if len(given) == 1 and isinstance(given[0], list):
        given = tuple(given[0])
    elif len(given) == 2 and isinstance(given[0], list):
        return plain(given)
    if not any(isinstance(one, _SYMBOLIC) for one in given):
        return plain(given)
    found = given[0]
    for one in given[1:]:
        found = symbolic(found, one)
    return found


def _root(value: Any) -> Any:
    return torch.sym_sqrt(value) if isinstance(value, _SYMBOLIC) else math.sqrt(value)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": _added,
    "add_": _extended,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "fmod": math.fmod,
    "pow": operator.pow,
    "neg": operator.neg,
    "abs": abs,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
    "__not__": operator.not_,
    "__is__": operator.is_,
    "__isnot__": operator.is_not,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "_set_item": _set,
    "__range_length": _range_length,
    "__derive_index": lambda index, start, step: start + index * step,
    "append": _append,
    "extend": lambda whole, more: whole.extend(more),
    "insert": lambda whole, at, one: whole.insert(at, one),
    "pop": lambda whole, *given: whole.pop(*given),
    "remove": lambda whole, one: whole.remove(one),
    "Delete": lambda whole, at: whole.__delitem__(at),
    "reverse": lambda whole: whole.reverse(),
    "clear": lambda whole: whole.clear(),
    "copy": lambda whole: whole.copy(),
    "count": lambda whole, one: whole.count(one),
    "index": lambda whole, one: whole.index(one),
    "sorted": lambda whole, *_: sorted(whole),
    "list": list,
    "slice": _slice,
    "len": len,
    "keys": lambda whole: list(whole.keys()),
    "values": lambda whole: list(whole.values()),
    "items": lambda whole: [tuple(one) for one in whole.items()],
    "get": lambda whole, key, *given: whole.get(key, *given),
    "setdefault": lambda whole, key, value: whole.setdefault(key, value),
    "update": lambda whole, more: whole.update(more),
    "dict": dict,
    "popitem": lambda whole: whole.popitem(),
    "min": _smallest,
    "max": _largest,
    "sum": sum,
    "all": all,
    "any": any,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "sqrt": _root,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "Bool": bool,
    "str": str,
    "format": lambda text, *given: text.format(*given),
    "join": lambda text, parts: text.join(parts),
    "startswith": lambda text, part, *given: text.startswith(part, *given),
    "endswith": lambda text, part, *given: text.endswith(part, *given),
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "strip": lambda text, *given: text.strip(*given),
    "replace": lambda text, old, new, *_: text.replace(old, new),
    "split": lambda text, *given: text.split(*given),
    "ord": ord,
    "warn": _nothing,
}
"""By an operator's name without its overload: what it is where no argument is a tensor."""


def made_tensor(data: Any, dtype: object = None, *_: object) -> torch.Tensor:
    """`torch.tensor` of numbers some of which may be free sizes."""
    wanted = dtype_of(dtype)
    if not _has_symbols(data):
        return torch.tensor(data, dtype=wanted)
    if isinstance(data, (list, tuple)):
        return torch.stack([made_tensor(one, wanted) for one in data])
    kind = torch.get_default_dtype() if isinstance(data, (float, torch.SymFloat)) else torch.int64
    return torch.scalar_tensor(data, dtype=wanted or kind)


def _has_symbols(data: Any) -> bool:
    return any(map(_has_symbols, data)) if isinstance(data, (list, tuple)) else isinstance(data, _SYMBOLIC)


OF_TENSORS: Mapping[str, Callable[..., Any]] = {
    "aten::size": lambda x, *given: x.shape[given[0]] if given else list(x.shape),
    "aten::len": lambda x: x.shape[0] if isinstance(x, torch.Tensor) else len(x),
    "aten::_native_multi_head_attention": script_attention.attention,
    "aten::_transformer_encoder_layer_fwd": script_attention.encoder_layer,
    "aten::_convolution": lambda *given: torch.convolution(*given[:9]),
    "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(),
    "aten::stride": lambda x, *given: x.stride(*given),
    "aten::storage_offset": lambda x: x.storage_offset(),
    "aten::is_floating_point": lambda x: x.is_floating_point(),
    "aten::is_complex": lambda x: x.is_complex(),
    "aten::is_contiguous": lambda x, *_: x.is_contiguous(),
    "aten::Bool": bool,
    "aten::Int": lambda x: int(x) if isinstance(x, (float, str, bool)) else _whole(number_of(x)),
    "aten::Float": lambda x: float(x) if isinstance(x, (int, str, bool)) else _broken(number_of(x)),
    "aten::IntImplicit": lambda x: _whole(number_of(x)),
    "aten::FloatImplicit": lambda x: _broken(number_of(x)),
    "aten::ScalarImplicit": number_of,
    "aten::item": number_of,
    "aten::tensor": made_tensor,
    "aten::as_tensor": lambda x, dtype=None, *_: (
        (x if dtype is None else x.to(dtype_of(dtype))) if isinstance(x, torch.Tensor) else made_tensor(x, dtype)
    ),
    "aten::cpu": lambda x: x,
    "aten::cuda": lambda x: x,
    "aten::_unwrap_optional": lambda x: x,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::format": FUNCTIONS["format"],
    "aten::warn": _nothing,
    "aten::wait": lambda x: x,
    "prim::device": lambda x: x.device,
    "prim::dtype": lambda x: code_of(x.dtype),
    "prim::layout": lambda x: 0,
    "prim::is_cuda": lambda x: False,
    "prim::is_cpu": lambda x: True,
    "prim::is_quantized": lambda x: x.is_quantized,
    "prim::is_sparse": lambda x: x.is_sparse,
    "prim::requires_grad": lambda x: x.requires_grad,
    "prim::data": lambda x: x.detach(),
    "prim::grad": lambda x: x.grad,
    "prim::shape": lambda x: list(x.shape),
    "prim::type": lambda x: x.type,
    "prim::unchecked_cast": lambda x: x,
    "prim::unchecked_unwrap_optional": lambda x: x,
    "prim::NumToTensor": lambda x: x,
    "prim::ImplicitTensorToNum": number_of,
    "prim::tolist": lambda x, *_: x.tolist(),
    "prim::min": _smallest,
    "prim::max": _largest,
    "prim::abs": abs,
    "prim::rangelist": lambda count: list(range(count)),
    "prim::Print": _nothing,
    "prim::Uninitialized": _nothing,
    "prim::AutogradZero": _nothing,
    "prim::TupleConstruct": lambda *given: tuple(given),
    "prim::ListConstruct": lambda *given: list(given),
    "prim::DictConstruct": lambda *given: dict(zip(given[::2], given[1::2], strict=True)),
    "prim::TupleIndex": operator.getitem,
    "prim::StringIndex": operator.getitem,
}
"""Operators that are not called as torch's, whatever their arguments are."""


def _whole(value: Any) -> Any:
    if isinstance(value, torch.SymFloat):
        return torch.sym_int(value)
    return value if isinstance(value, torch.SymInt) else int(value)


def _broken(value: Any) -> Any:
    return value if isinstance(value, torch.SymFloat) else torch.sym_float(value)
