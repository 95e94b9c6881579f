"""What a builder made, as two digests: whether two processes built the same model is told by comparing them.

A module that has not run yet arrives, two short texts leave: of its tensors (parameters, buffers, and those that are
plain attributes) and of its plain values (numbers, texts, arrays, and collections of them that are attributes). Nothing
is changed. Values that are neither, such as configuration objects, are not looked at.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DENSE = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_DEEPEST = 4
_LONGEST = 10_000
"""Collections with more entries are told by their length alone: attributes are to cost nothing beside the weights."""


def built(module: torch.nn.Module) -> dict[str, str]:
    """Returns `{"tensors": digest, "constants": digest}` of a module."""
    of_tensors, known = hashlib.sha256(), dict[int, str]()
    for name, tensor in _named_tensors(module):
        text = known.setdefault(id(tensor), "") or _tensor_text(tensor)
        known[id(tensor)] = text
        of_tensors.update(f"{name}={text}\n".encode("utf-8", "surrogatepass"))
    of_constants = hashlib.sha256()
    for name, value in _attributes(module):
        of_constants.update(f"{name}={plain_text(value)}\n".encode("utf-8", "surrogatepass"))
    return {"tensors": of_tensors.hexdigest(), "constants": of_constants.hexdigest()}


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
    for name, value in _attributes(module):
        yield from _tensors_in(name, value, 0)


def _tensors_in(name: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < _DEEPEST and isinstance(value, list | tuple | dict) and len(value) <= _LONGEST:
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors_in(f"{name}[{key!r}]" if isinstance(key, _PLAIN) else name, entry, depth + 1)


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yields what a module's parts hold beside parameters, buffers, modules and torch's own bookkeeping."""
    own = set(vars(torch.nn.Module()))
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in own:
                yield f"{path}.{name}" if path else name, value


def _tensor_text(tensor: torch.Tensor) -> str:
    """Returns dtype, shape and a checksum of the values; of what has no plain memory (sparse, `meta`), its kind alone.

    A checksum is twice as fast as a sha256, and nobody builds models to deceive it.
    """
    if type(tensor) not in _DENSE or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return type(tensor).__name__
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        numbers: Any = dense.reshape(-1).view(torch.uint8).numpy()
        checksum = zlib.crc32(memoryview(numbers))
    except (RuntimeError, TypeError):  # a dtype without whole bytes
        return type(tensor).__name__
    return f"{dense.dtype}{tuple(dense.shape)}{checksum:08x}"


def plain_text(value: Any) -> str:
    """Returns a plain value as a text; of what is none, the name of its class."""
    return _text(value, 0)


def _text(value: Any, depth: int) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype}{value.shape}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, np.generic):
        return repr(value)
    if depth < _DEEPEST and isinstance(value, list | tuple | Mapping | AbstractSet):
        return _collection_text(value, depth + 1)
    return type(value).__name__


def _collection_text(value: Any, depth: int) -> str:
    kind = type(value).__name__
    if len(value) > _LONGEST:
        return f"{kind} of {len(value)}"
    if isinstance(value, Mapping):
        return f"{kind}{{{','.join(f'{_text(key, depth)}:{_text(entry, depth)}' for key, entry in value.items())}}}"
    entries = [_text(entry, depth) for entry in value]
    # The order of a set says nothing; what a builder made in that order is told by what it made.
    return f"{kind}[{','.join(sorted(entries) if isinstance(value, AbstractSet) else entries)}]"
