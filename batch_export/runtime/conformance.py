"""What every runtime has to do, as checks that anybody's may be held against.

A provider's spec and an empty folder arrive; a check returns, or raises an `AssertionError` that says what is not so.
Refusing a dtype or an operator is allowed, by an exception; a wrong value never is. Example, in a test of a plug-in:

    @pytest.mark.parametrize("name", conformance.CHECKS)
    def test_it_conforms(name, tmp_path):
        conformance.check(name, ProviderSpec("mine", "my_kind"), tmp_path)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from batch_export.errors import BatchExportError
from batch_export.numbers.values import RawTensor, Value, raw_dtype
from batch_export.runtime.failures import LoadError
from batch_export.runtime.kinds import Session
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session

OPSET = 18

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "int8": "int8",
    "bool": "bool",
    "bfloat16": "bfloat16",
}
"""ONNX text's word for a type -> the dtype's name."""


class RefusedError(BatchExportError):
    """A runtime does not do what a check would look at; it may."""


def check(name: str, provider: ProviderSpec, folder: Path) -> None:
    """Carries out one of `CHECKS`.

    Raises:
        AssertionError: the runtime does not conform.
        RefusedError: the runtime refuses what the check needs.
        ProviderUnavailableError: it is not there.
    """
    CHECKS[name](provider, folder)


def _names(provider: ProviderSpec, folder: Path) -> None:
    """Inputs and outputs have the file's names in the file's order, and shapes say what is fixed."""
    session = _opened(
        provider, folder, "(float[n, 2] b, float[3] a) => (float[n, 2] z, float[3] y)", "z=Neg(b) y=Abs(a)"
    )
    assert session.input_names == ("b", "a"), session.input_names
    assert session.output_names == ("z", "y"), session.output_names
    assert len(session.input_shapes) == 2
    for told, real in zip(session.input_shapes, ((None, 2), (3,)), strict=True):
        assert told is None or told == real, f"an input of sizes {real} is told as {told}"
    z, y = session.run({"a": _floats(-1, 2, -3), "b": _floats(4, 5).reshape(1, 2)})
    _same(z, _floats(-4, -5).reshape(1, 2))
    _same(y, _floats(1, 2, 3))


def _sizes(provider: ProviderSpec, folder: Path) -> None:
    """A free axis takes any size, none included, and each run has its own."""
    session = _opened(provider, folder, "(float[n, 2] x) => (float[n, 2] y)", "y = Add(x, x)")
    for size in (3, 1, 0, 5):
        x = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
        _same(session.run({"x": x})[0], 2 * x)


def _scalars(provider: ProviderSpec, folder: Path) -> None:
    """A tensor without axes stays one."""
    session = _opened(provider, folder, "(float x) => (float y)", "y = Neg(x)")
    _same(session.run({"x": np.array(1.5, np.float32)})[0], np.array(-1.5, np.float32))


def _layouts(provider: ProviderSpec, folder: Path) -> None:
    """Views, transposed ones and those of other byte orders are read as what they are; nothing is written to."""
    session = _opened(provider, folder, "(float[a, b] x) => (float[a, b] y)", "y = Neg(x)")
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    for x in (base.T, base[:, ::2], base[::-1]):
        before = x.copy()
        _same(session.run({"x": x})[0], -before)
        np.testing.assert_array_equal(x, before)


def _outputs_stay(provider: ProviderSpec, folder: Path) -> None:
    """The outputs of one run are not those of the next, and a prepared run keeps its own inputs."""
    session = _opened(provider, folder, "(float[2] x) => (float[2] y)", "y = Neg(x)")
    (first,) = session.run({"x": _floats(1, 2)})
    (second,) = session.run({"x": _floats(3, 4)})
    _same(first, _floats(-1, -2))
    _same(second, _floats(-3, -4))
    again = session.prepare({"x": _floats(5, 6)})
    again()
    again()


def _refusal(provider: ProviderSpec, folder: Path) -> None:
    """What is no model is a LoadError, at once or when it is opened again."""
    path = folder / "broken.onnx"
    path.write_bytes(b"\x08\x0bno model")
    try:
        open_session(path, provider).close()
    except LoadError as error:
        said = str(error)
    else:
        raise AssertionError("a file that is not a model was opened")
    assert path.name in said, f"the error does not name the file: {said}"


def _unknown_operator(provider: ProviderSpec, folder: Path) -> None:
    """An operator that nobody knows is refused, by its name if the runtime names operators."""
    path = _saved(folder, "(float[2] x) => (float[2] y)", "y = nobody.NoSuchOperator(x)", ', "nobody": 1')
    try:
        session = open_session(path, provider)
    except LoadError:
        return
    try:
        session.run({"x": _floats(1, 2)})
    except Exception:
        return
    finally:
        session.close()
    raise AssertionError("an operator that nobody knows was run")


def _wrong_rank(provider: ProviderSpec, folder: Path) -> None:
    """An input that does not fit the file raises, and the session goes on."""
    session = _opened(provider, folder, "(float[2, 2] x, float[2, 2] w) => (float[2, 2] y)", "y = MatMul(x, w)")
    good = np.eye(2, dtype=np.float32)
    try:
        (wrong,) = session.run({"x": _floats(1, 2, 3), "w": good})
    except Exception:
        pass
    else:
        raise AssertionError(f"three numbers in place of two by two were taken: {wrong!r}")
    _same(session.run({"x": good, "w": good})[0], good)


def _external_data(provider: ProviderSpec, folder: Path) -> None:
    """Weights beside the file are found, wherever the process runs."""
    import onnx  # lazy: checks alone need it, the module may be looked at without

    weight = np.arange(1024, dtype=np.float32).reshape(32, 32)
    model = onnx.parser.parse_model(_text("(float[1, 32] x) => (float[1, 32] y)", "y = MatMul(x, w)"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (folder / "weights.bin").stat().st_size == weight.nbytes
    try:
        session = open_session(path, provider)
    except LoadError as error:
        raise RefusedError(str(error)) from error
    x = np.zeros((1, 32), np.float32)
    x[0, 3] = 1
    (y,) = session.run({"x": x})
    session.close()
    _same(y, weight[3:4])


def _placement(provider: ProviderSpec, folder: Path) -> None:
    """Where nodes are placed is told as counts, or not at all; opening takes some time."""
    session = _opened(provider, folder, "(float[2] x) => (float[2] y)", "y = Neg(x)")
    assert all(isinstance(name, str) and count >= 0 for name, count in session.placement.items())
    if provider.execution_provider and session.placement:
        assert provider.execution_provider in session.placement, session.placement
    assert session.load_seconds > 0
    session.close()
    session.close()


def _dtype_check(word: str) -> Callable[[ProviderSpec, Path], None]:
    def crosses(provider: ProviderSpec, folder: Path) -> None:
        session = _opened(
            provider, folder, f"({word}[n] x, float[1] w) => ({word}[n] y, float[1] z)", "y=Identity(x) z=Neg(w)"
        )
        value = _extremes(_DTYPES[word])
        try:
            y, _ = session.run({"x": value, "w": _floats(1)})
        except Exception as error:
            raise RefusedError(f"{word}: {error}") from error
        finally:
            session.close()
        _same(y, value)

    return crosses


CHECKS: Mapping[str, Callable[[ProviderSpec, Path], None]] = {
    "names": _names,
    "sizes": _sizes,
    "scalars": _scalars,
    "layouts": _layouts,
    "outputs stay": _outputs_stay,
    "a refused file": _refusal,
    "an unknown operator": _unknown_operator,
    "a wrong rank": _wrong_rank,
    "external data": _external_data,
    "placement": _placement,
    **{f"dtype {name}": _dtype_check(word) for word, name in _DTYPES.items()},
}
"""By name."""


def _extremes(dtype: str) -> Value:
    raw = raw_dtype(dtype)
    if raw is not None:
        bits: Any = np.array([0x3F80, 0xC000, 0x0001, 0x7F80, 0x0000])
        return RawTensor(dtype, bits.astype(raw))
    kind: Any = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, True])
    limits: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    special = [float("inf"), float("nan"), -0.0] if kind.kind == "f" else []
    return np.array([limits.min, limits.max, 1, 0, *special], kind)


def _opened(provider: ProviderSpec, folder: Path, signature: str, body: str) -> Session:
    try:
        return open_session(_saved(folder, signature, body), provider)
    except LoadError as error:
        raise RefusedError(str(error)) from error


def _saved(folder: Path, signature: str, body: str, domains: str = "") -> Path:
    import onnx  # lazy: checks alone need it, the module may be looked at without

    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(_text(signature, body, domains)), path)
    return path


def _text(signature: str, body: str, domains: str = "") -> str:
    return f'<ir_version: 8, opset_import: ["": {OPSET}{domains}]> g {signature} {{ {body} }}'


def _floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def _same(actual: Value, expected: Value) -> None:
    if isinstance(expected, RawTensor):
        assert isinstance(actual, RawTensor), f"{expected.dtype} came back as {actual.dtype}"
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual.bits, expected.bits)
        return
    assert not isinstance(actual, RawTensor)
    found = np.asarray(actual)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (found.dtype, found.shape)
    np.testing.assert_array_equal(found, expected)
