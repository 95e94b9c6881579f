"""Writes a model as an ONNX file: to a path, weights beside it or within, or to a binary stream.

Arrives: the model as it is to be. Leaves: bytes. The model is as before once it is written: its weights point into a
file, or are left out, for that time only.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir
import torch
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.errors import SaveError
from batch_export.exporter.graph import metadata, weights

PROTO_LIMIT_BYTES = 2_000_000_000
"""What one file holds at most: protobuf counts lengths in 31 bits, and the graph takes its part."""


def write_stream(model: ir.Model, stream: io.BufferedIOBase) -> None:
    """Writes a model with its weights within.

    Raises:
        SaveError: the weights are larger than one file holds.
        OSError: the stream does not take it.
    """
    _require_room(_size(weights.model_tensors(model)), "save to a path, so that the weights go to a file of their own")
    stream.write(ir.to_proto(model).SerializeToString())


def write_path(model: ir.Model, path: Path, external_data: bool | None) -> None:
    """Writes a model, and its weights to `<path>.data` where they are not within.

    Args:
        model: the model.
        path: the ONNX file.
        external_data: weights in a file of their own; None decides by size.

    Raises:
        SaveError: the weights are larger than one file holds, and are to be within.
        OSError: a file cannot be written.
    """
    tensors = weights.model_tensors(model)
    size = _size(tensors)
    if external_data is None:
        external_data = size > PROTO_LIMIT_BYTES
    if not external_data:
        _require_room(size, "leave out external_data=False")
        tensors = {}
    laid_out = weights.layout(tensors)
    data = path.with_name(path.name + ".data")
    if laid_out.tensors:
        with data.open("wb") as stream:
            weights.write(stream, laid_out)
    places = {name: (data.name, *place) for name, place in laid_out.entries.items()}
    with weights.referring(model, places, path.parent):
        path.write_bytes(ir.to_proto(model).SerializeToString())


def refuse_fake(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises SaveError where weights have no data."""
    fake = [name for name, tensor in tensors.items() if isinstance(tensor, FakeTensor) or tensor.is_meta]
    if fake:
        names = f"{', '.join(fake[:5])}{' ...' if fake[5:] else ''}"
        raise SaveError(
            f"{len(fake)} weights have no data (fake, or on the meta device): {names}",
            next_step="call apply_weights(), pass model_state=..., or save with include_initializers=False",
        )


@contextmanager
def initializers(model: ir.Model, include: bool, as_inputs: bool) -> Iterator[None]:
    """For the time of saving, weights are left out or listed as inputs too; constants always stay."""
    graph = model.graph
    named = {
        name: value
        for name, value in graph.initializers.items()
        if metadata.KIND.format(side="Input") in value.metadata_props or weights.is_torch_tensor(value)
    }
    listed = [value for value in named.values() if as_inputs and value not in graph.inputs]
    order = dict(graph.initializers)
    if not include:
        for name in named:
            del graph.initializers[name]
    graph.inputs.extend(listed)
    try:
        yield
    finally:
        for value in listed:
            graph.inputs.remove(value)
        if not include:
            graph.initializers.clear()
            graph.initializers.update(order)


def _size(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(map(weights.size, tensors.values()))


def _require_room(size: int, next_step: str) -> None:
    if size > PROTO_LIMIT_BYTES:
        raise SaveError(
            f"the weights take {size:,} bytes, and a single ONNX file holds {PROTO_LIMIT_BYTES:,}", next_step=next_step
        )
