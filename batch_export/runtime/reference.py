"""Sessions over onnx's reference evaluator: slow and faithful, for small models and opsets that ORT cannot load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from batch_export.numbers.values import Array, Fed, RawTensor, TensorSequence, Value, raw_dtype, widened
from batch_export.runtime.failures import LoadError


class ReferenceSession:
    """A session whose every node runs in Python; see `session.Session` for the members."""

    def __init__(self, path: Path) -> None:
        import onnx  # lazy: only this provider needs it
        from onnx.reference import ReferenceEvaluator

        start = perf_counter()
        try:
            model = onnx.load(path)
            self._evaluator: Any = ReferenceEvaluator(model)
        except Exception as error:
            raise LoadError(f"onnx's reference evaluator cannot load {path.name}: {error}") from error
        self.load_seconds = perf_counter() - start
        initializers = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in initializers]
        self.input_names: tuple[str, ...] = tuple(value.name for value in inputs)
        self.output_names: tuple[str, ...] = tuple(value.name for value in model.graph.output)
        self.input_shapes: tuple[tuple[int | None, ...] | None, ...] = tuple(map(_shape, inputs))
        self.placement: dict[str, int] = {"reference": len(model.graph.node)}
        self._output_types = [_element_type(value.type) for value in model.graph.output]
        self._raw_types: dict[int, str] = {
            number: name
            for name, number in (
                ("bfloat16", onnx.TensorProto.BFLOAT16),
                ("float8_e4m3fn", onnx.TensorProto.FLOAT8E4M3FN),
                ("float8_e4m3fnuz", onnx.TensorProto.FLOAT8E4M3FNUZ),
                ("float8_e5m2", onnx.TensorProto.FLOAT8E5M2),
                ("float8_e5m2fnuz", onnx.TensorProto.FLOAT8E5M2FNUZ),
                ("int4", onnx.TensorProto.INT4),
                ("uint4", onnx.TensorProto.UINT4),
            )
        }

    def prepare(self, feeds: Mapping[str, Fed]) -> Callable[[], Sequence[Any]]:
        """Returns a function that runs the model on these feeds."""
        arrays = {name: _given(value) for name, value in feeds.items()}
        return lambda: list(self._evaluator.run(None, arrays))

    def run(self, feeds: Mapping[str, Fed]) -> list[Fed]:
        """Runs the model and returns its outputs in order."""
        outputs = self.prepare(feeds)()
        return [self._fetched(output, kind) for output, kind in zip(outputs, self._output_types, strict=True)]

    def close(self) -> None:
        """Frees the evaluator's copies of the weights."""
        self._evaluator = None

    def _fetched(self, output: Any, kind: int) -> Fed:
        if isinstance(output, list):
            return TensorSequence(tuple(self._plain(item, kind) for item in output))
        return None if output is None else self._plain(output, kind)

    def _plain(self, output: Any, kind: int) -> Value:
        array: Array = np.asarray(output)
        name = self._raw_types.get(kind)
        bits = raw_dtype(name) if name else None
        if name is None or bits is None or array.dtype.itemsize != bits.itemsize:
            return array
        return RawTensor(name, array.view(bits) & 0xF if name in ("int4", "uint4") else array.view(bits))


def _element_type(kind: Any) -> int:
    """The dtype's number of a tensor, or of what a sequence or an optional value holds; 0 if the file says none."""
    which = kind.WhichOneof("value")
    if which is None:
        return 0
    held = getattr(kind, which)
    return _element_type(held.elem_type) if which in ("sequence_type", "optional_type") else int(held.elem_type)


def _given(value: Fed) -> Array | list[Array] | None:
    if isinstance(value, TensorSequence):
        return [_with_extended_dtype(item) for item in value.items]
    return None if value is None else _with_extended_dtype(value)


def _shape(value: Any) -> tuple[int | None, ...] | None:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)


def _with_extended_dtype(value: Value) -> Array:
    """The evaluator computes in the dtypes of ml_dtypes (a dependency of onnx) where numpy has none."""
    if not isinstance(value, RawTensor):
        return value
    import ml_dtypes  # lazy: only extended dtypes need it

    return widened(value).astype(np.dtype(getattr(ml_dtypes, value.dtype)))
