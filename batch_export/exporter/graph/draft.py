"""A graph that is being made: nodes by scope, unique names, and interned constants.

Arrives: finished nodes, and the contents of constants and weights. Leaves: the nodes of each scope and the initializers
of the main graph; equal constants are one initializer. Nothing here knows what an operator means.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.recorded_value import Array, RecordedValue


def natural_dtype(argument: object) -> ir.DataType:
    """The dtype that a Python number, or a list of them, has when nothing else determines it."""
    items = argument if isinstance(argument, (list, tuple)) else [argument]
    for item in items:
        if isinstance(item, ir.Value) and item.dtype is not None:
            return item.dtype
    numbers = [item for item in items if item is not None and not isinstance(item, ir.Value)]
    if numbers and all(isinstance(item, bool) for item in numbers):
        return ir.DataType.BOOL
    if any(isinstance(item, (float, complex)) for item in numbers):
        return ir.DataType.FLOAT
    if any(isinstance(item, str) for item in numbers):
        return ir.DataType.STRING
    return ir.DataType.INT64


def dtype_beside(argument: object, bound: ir.DataType | None) -> ir.DataType | None:
    """The dtype of a Python number (or list of them) beside a tensor or size of dtype `bound`; None without one.

    It is the tensor's as long as that can hold the number: a fraction beside an integer stays a fraction, and a number
    beside a boolean one stays a number.
    """
    if bound is None or bound.is_floating_point() or bound == ir.DataType.STRING:
        return bound
    items = argument if isinstance(argument, (list, tuple)) else [argument]
    numbers = [item for item in items if isinstance(item, (bool, int, float))]
    if any(isinstance(number, float) and not number.is_integer() for number in numbers):
        return natural_dtype(numbers)
    if bound == ir.DataType.BOOL and any(number not in (0, 1) for number in numbers):
        return natural_dtype(numbers)
    return bound


def _unrounded(content: object, array: Array, dtype: ir.DataType) -> Array | None:
    """Python numbers in float64 that float32 does not hold: a translation may still ask for them in float64."""
    items = content if isinstance(content, (list, tuple)) else [content]
    if dtype != ir.DataType.FLOAT or not any(isinstance(item, float) for item in items):
        return None
    given = np.asarray(content, dtype=np.float64)
    return None if np.array_equal(given, array.astype(np.float64), equal_nan=True) else given


class Draft:
    """The graph under construction.

    Attributes:
        initializers: constants and weights by name, in order of first use.
        metadata: properties put on every node that is added from now on.
        node_prefix: what the names of added nodes begin with.
    """

    def __init__(self) -> None:
        self.initializers: dict[str, ir.Value] = {}
        self.metadata: dict[str, str] = {}
        self.node_prefix = ""
        self._scopes: list[list[ir.Node]] = [[]]
        self._interned: dict[tuple[str, tuple[int, ...], bytes, bytes], RecordedValue] = {}
        self._unrounded: dict[ir.Value, Array] = {}
        self._known: dict[ir.Value, Array] = {}
        self._used_names: set[str] = set()
        self._counter = 0

    # Scopes -----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scope(self) -> Iterator[list[ir.Node]]:
        """Opens the body of a subgraph; yields the list that its nodes are appended to."""
        nodes: list[ir.Node] = []
        self._scopes.append(nodes)
        try:
            with self.attribution():
                yield nodes
        finally:
            self._scopes.pop()

    @contextlib.contextmanager
    def attribution(self) -> Iterator[None]:
        """Gives nodes that are added afterwards the metadata and name prefix of those added before."""
        metadata, prefix = self.metadata, self.node_prefix
        try:
            yield
        finally:
            self.metadata, self.node_prefix = metadata, prefix

    @property
    def nodes(self) -> list[ir.Node]:
        """The nodes of the innermost scope."""
        return self._scopes[-1]

    def append(self, node: ir.Node) -> None:
        """Adds a finished node to the innermost scope, with the current metadata."""
        node.metadata_props.update(self.metadata)
        node.name = self.unique_name(f"{self.node_prefix}{node.op_type}")
        self.nodes.append(node)

    def unique_name(self, wanted: str) -> str:
        """A name that no value or node of the model has yet."""
        if wanted not in self._used_names:
            self._used_names.add(wanted)
            return wanted
        while True:
            self._counter += 1
            name = f"{wanted}_{self._counter}"
            if name not in self._used_names:
                self._used_names.add(name)
                return name

    def value(self, dtype: ir.DataType | None = None) -> RecordedValue:
        """A fresh value without a producer, whose name is a number until it is given a better one."""
        kind = None if dtype is None else ir.TensorType(dtype)
        return RecordedValue(name=self.unique_name(f"val_{len(self._used_names)}"), type=kind, unnamed=True)

    # Constants --------------------------------------------------------------------------------------------------------

    def constant(self, content: object, dtype: ir.DataType | None = None) -> RecordedValue:
        """The interned initializer with this content (a number, a list of numbers, an array)."""
        if isinstance(content, complex):
            content = [content.real, content.imag]
        if isinstance(content, ir.TensorProtocol):
            array = content.numpy()
            dtype = content.dtype
        else:
            if dtype is None:
                dtype = (
                    ir.DataType.from_numpy(content.dtype) if isinstance(content, np.ndarray) else natural_dtype(content)
                )
            if dtype == ir.DataType.STRING:
                return self._string_constant(content)
            array = np.asarray(content).astype(dtype.numpy())
        given = _unrounded(content, array, dtype)
        key = (dtype.name, array.shape, array.tobytes(), b"" if given is None else given.tobytes())
        known = self._interned.get(key)
        if known is None:
            name = self.unique_name(f"const_{len(self._interned)}")
            tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), dtype=dtype, name=name)
            known = RecordedValue(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=tensor)
            self._interned[key] = known
            self._known[known] = array
            if given is not None:
                self._unrounded[known] = given
            self.initializers[name] = known
        return known

    def unrounded(self, value: object) -> Array | None:
        """The float64 numbers that a float32 constant was made of, where that rounded them; None elsewhere."""
        return self._unrounded.get(value) if isinstance(value, ir.Value) else None

    def as_rounded(self, value: ir.Value) -> ir.Value:
        """The constant with float32 numbers for good, as what a torch operator made has them."""
        return self.constant(self._known[value]) if value in self._unrounded else value

    def _string_constant(self, content: object) -> RecordedValue:
        tensor = ir.StringTensor([str(item).encode() for item in (content if isinstance(content, list) else [content])])
        name = self.unique_name("const_string")
        value = RecordedValue(name=name, type=ir.TensorType(ir.DataType.STRING), shape=tensor.shape, const_value=tensor)
        self.initializers[name] = value
        return value

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> RecordedValue:
        """A weight under its own name; its tensor object is kept as it is."""
        sizes: Any = tensor.shape
        value = RecordedValue(
            name=self.unique_name(name),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(sizes),
            const_value=tensor,
        )
        assert value.name is not None
        self.initializers[value.name] = value
        return value

    def known(self, value: object) -> Array | None:
        """The content of a value that is a constant made here, else None (weights are never looked into)."""
        return self._known.get(value) if isinstance(value, ir.Value) else None
