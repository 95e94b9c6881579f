"""Parts of an ONNX file, cut out and run by themselves.

A file arrives; values of its main graph leave, computed in as many sessions as are asked for, each over only the nodes
and weights that its outputs need. Inside values may be fed in place of being computed, which takes a part out of its
surroundings. The file itself is only read: parts are written to a folder of their own, beside a copy of the weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from batch_export.numbers.values import RawTensor, Value
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import tensors

_ELEMENT_TYPES = {
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "float8_e4m3fn": onnx.TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": onnx.TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": onnx.TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": onnx.TensorProto.FLOAT8E5M2FNUZ,
}


class SlicedFile:
    """An ONNX file whose inside can be looked at.

    Args:
        path: the file, its external data beside it.
        folder: an existing folder for the parts; the file's own saves a copy of the weights.

    Attributes:
        model: the file's proto, weights in external data not loaded.
        inputs, outputs: names of the main graph's, initializers left out of the inputs.
        constants: names of weights and constants of the main graph.
        order: names of all values that nodes of the main graph make, in topological order.
        folder: where parts, and a copy of the weights, are written.
        sessions: how many sessions were opened.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.model = onnx.load(path, load_external_data=False)
        self.sessions = 0
        self.folder = folder
        graph = self.model.graph
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.constants = list(self._initializers)
        self.inputs = [value.name for value in graph.input if value.name not in self._initializers]
        self.outputs = [value.name for value in graph.output]
        self._input_infos = {value.name: value for value in graph.input}
        self.order = [name for node in graph.node for name in node.output if name]
        self._producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
        self._reads = [[*_reads(node)] for node in graph.node]
        self._copied = path.parent == folder

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Returns the node that makes a value; None for inputs and initializers."""
        index = self._producer.get(name)
        return None if index is None else self.model.graph.node[index]

    def reads(self, name: str) -> list[str]:
        """Returns the values that the producer of a value reads, those that its subgraphs capture included."""
        index = self._producer.get(name)
        return [] if index is None else self._reads[index]

    def is_initializer(self, name: str) -> bool:
        """Returns whether a name is a weight or constant of the main graph."""
        return name in self._initializers

    def ancestors(self, names: Sequence[str]) -> set[str]:
        """Returns the values that given values depend on, those themselves included."""
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            waiting.extend(self.reads(name))
        return seen

    def part(self, outputs: Sequence[str], fed: Mapping[str, Value]) -> onnx.ModelProto:
        """Returns the part of the model that computes `outputs` from inputs and the fed values."""
        graph = self.model.graph
        indices: set[int] = set()
        needed: set[str] = set()
        waiting = list(outputs)
        while waiting:
            name = waiting.pop()
            if name in needed:
                continue
            needed.add(name)
            index = self._producer.get(name)
            if index is not None and name not in fed and index not in indices:
                indices.add(index)
                waiting.extend(self._reads[index])
        part = onnx.ModelProto()
        part.ir_version = self.model.ir_version
        part.opset_import.extend(self.model.opset_import)
        part.functions.extend(self.model.functions)
        part.graph.name = graph.name or "part"
        part.graph.node.extend(graph.node[index] for index in sorted(indices))
        part.graph.initializer.extend(
            tensor for name, tensor in self._initializers.items() if name in needed and name not in fed
        )
        for name in self.inputs:
            if name in needed and name not in fed:
                part.graph.input.append(self._input_infos[name])
        part.graph.input.extend(value_info(name, value) for name, value in fed.items() if name in needed)
        part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return part

    def run(
        self,
        outputs: Sequence[str],
        feeds: Mapping[str, Value],
        provider: ProviderSpec,
        *,
        fed: Mapping[str, Value] | None = None,
    ) -> dict[str, Value]:
        """Computes values by name.

        Args:
            outputs: names of values of the main graph.
            feeds: the values of the file's inputs.
            provider: where to run, and how much ONNX Runtime may optimise.
            fed: values inside that are given in place of being computed.

        Raises:
            Exception: whatever the runtime says when it refuses to load or to run the part.
        """
        part = self.part(outputs, fed or {})
        path = self.write(part, f"part{self.sessions}.onnx")
        self.sessions += 1
        session = open_session(path, provider)
        try:
            given = {**feeds, **(fed or {})}
            values = tensors(outputs, session.run({name: given[name] for name in session.input_names}))
        finally:
            session.close()
            path.unlink()
        return dict(zip(outputs, values, strict=True))

    def write(self, part: onnx.ModelProto, name: str) -> Path:
        """Writes a part into the folder, where its weights are."""
        self._copy_weights()
        path = self.folder / name
        path.write_bytes(part.SerializeToString())
        return path

    def _copy_weights(self) -> None:
        if self._copied:
            return
        self._copied = True
        for name in external_files(self.model):
            shutil.copyfile(self.path.parent / name, self.folder / name)


def external_files(model: onnx.ModelProto) -> list[str]:
    """Returns the names of the files that a model's weights are in."""
    names: dict[str, None] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            names |= {entry.value: None for entry in tensor.external_data if entry.key == "location"}
    return list(names)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _captured(graph)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in _reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def value_info(name: str, value: Value) -> onnx.ValueInfoProto:
    """Returns the declaration of a value: its element type and its sizes."""
    if isinstance(value, RawTensor):
        kind = _ELEMENT_TYPES[value.dtype]
    else:
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
    return onnx.helper.make_tensor_value_info(name, kind, list(value.shape))
