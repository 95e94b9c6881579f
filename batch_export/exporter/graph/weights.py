"""Weights on disk: which tensor lies where in one file, and ONNX models that refer to it.

Arrives: named torch tensors, or a model whose initializers hold them. Leaves: a file of raw little-endian bytes with
each distinct tensor once, and, for the time of saving, initializers that point into it. Tensors over the same memory
share their bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import onnx_ir as ir
import torch
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.errors import SaveError
from batch_export.exporter.graph import metadata

SMALL_BYTES = 1024
"""Tensors up to this size stay inside the ONNX file."""
_ALIGNMENT = 64
_PAGE = 4096


@dataclass(slots=True)
class WeightLayout:
    """Where each tensor lies.

    Attributes:
        entries: name -> (offset, length) in bytes.
        tensors: the distinct tensors in file order, as (offset, tensor).
        total: size of the file in bytes.
    """

    entries: dict[str, tuple[int, int]] = field(default_factory=dict)
    tensors: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    total: int = 0


def size(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements, whatever memory it shares."""
    return tensor.numel() * tensor.element_size()


def identity(tensor: torch.Tensor) -> Any:
    """What tensors over the same memory in the same way have in common, as long as they live."""
    if isinstance(tensor, FakeTensor):
        return id(tensor)
    address = tensor.data_ptr()
    return (address, tuple(tensor.shape), tensor.stride(), tensor.dtype) if address else id(tensor)


def layout(tensors: Mapping[str, torch.Tensor], threshold: int = SMALL_BYTES) -> WeightLayout:
    """Lays out the tensors that are larger than `threshold` bytes, in order, each distinct one once."""
    result = WeightLayout()
    places: dict[object, tuple[int, int]] = {}
    for name, tensor in tensors.items():
        length = size(tensor)
        if length <= threshold:
            continue
        key = identity(tensor)
        if key not in places:
            alignment = _PAGE if length >= 16 * _PAGE else _ALIGNMENT
            offset = -(-result.total // alignment) * alignment
            places[key] = (offset, length)
            result.tensors.append((offset, tensor))
            result.total = offset + length
        result.entries[name] = places[key]
    return result


def _memory(tensor: torch.Tensor) -> tuple[torch.Tensor, ctypes.Array[ctypes.c_ubyte]]:
    if isinstance(tensor, FakeTensor):
        raise SaveError(
            "a weight is a fake tensor without data",
            next_step="call apply_weights(), pass model_state=..., or save with include_initializers=False",
        )
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if dense.is_complex():
        dense = torch.view_as_real(dense)
    size = dense.numel() * dense.element_size()
    return dense, (ctypes.c_ubyte * size).from_address(dense.data_ptr())


def write(stream: BinaryIO, laid_out: WeightLayout) -> str:
    """Writes the file and returns its sha256.

    Raises:
        SaveError: if a tensor has no data (fake mode).
    """
    sha = hashlib.sha256()
    position = 0
    for offset, tensor in laid_out.tensors:
        padding = b"\0" * (offset - position)
        keep, memory = _memory(tensor)
        for piece in (padding, memoryview(memory)):
            stream.write(piece)
            sha.update(piece)
        position = offset + len(memory)
        del keep
    return sha.hexdigest()


def digest(laid_out: WeightLayout) -> str:
    """The sha256 that `write` would return, without writing."""
    sha = hashlib.sha256()
    position = 0
    for offset, tensor in laid_out.tensors:
        keep, memory = _memory(tensor)
        sha.update(b"\0" * (offset - position))
        sha.update(memoryview(memory))
        position = offset + len(memory)
        del keep
    return sha.hexdigest()


def is_torch_tensor(value: ir.Value) -> bool:
    """Whether an initializer holds a torch tensor: a weight, and no constant that was made here."""
    return isinstance(getattr(value.const_value, "raw", None), torch.Tensor)


def by_module_name(model: ir.Model) -> dict[str, ir.Value]:
    """The initializers by the names that the module has for them, from which a file's name may differ.

    A weight whose name an input or output has been given is called otherwise in the file.
    """
    found = dict(model.graph.initializers)
    renamed = {
        value.metadata_props[metadata.ORIGINAL_NAME]: value
        for value in found.values()
        if metadata.ORIGINAL_NAME in value.metadata_props
    }
    return {**{name: value for name, value in found.items() if value not in renamed.values()}, **renamed}


def model_tensors(model: ir.Model) -> dict[str, torch.Tensor]:
    """The initializers of a model that are torch tensors, by name."""
    return {
        name: value.const_value.raw
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and isinstance(getattr(value.const_value, "raw", None), torch.Tensor)
    }


Place = tuple[str, int, int]
"""Where a tensor lies: the file's name, offset and length in bytes."""


@contextlib.contextmanager
def referring(model: ir.Model, places: Mapping[str, Place], folder: Path) -> Iterator[None]:
    """While open, the named initializers point to their places; afterwards they hold their tensors again."""
    kept: list[tuple[ir.Value, Any]] = []
    try:
        for name, (file_name, offset, length) in places.items():
            value = model.graph.initializers[name]
            content = value.const_value
            assert content is not None
            kept.append((value, content))
            value.const_value = ir.ExternalTensor(
                location=file_name,
                offset=offset,
                length=length,
                dtype=content.dtype,
                shape=ir.Shape(content.shape.numpy()),
                name=name,
                base_dir=folder,
            )
        yield
    finally:
        for value, content in kept:
            value.const_value = content
