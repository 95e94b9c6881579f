"""What every runtime has to do, as checks that anybody's may be held against.

A provider's spec and an empty folder arrive; a check returns, or raises an `AssertionError` that says what is not so.
Refusing a dtype or an operator is allowed, by an exception; a wrong value never is. Example, in a test of a plug-in:

    @pytest.mark.parametrize("name", conformance.CHECKS)
    def test_it_conforms(name, tmp_path):
        conformance.check(name, ProviderSpec("mine", "my_kind"), tmp_path)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from batch_export.errors import BatchExportError
from batch_export.numbers.values import Fed, RawTensor, TensorSequence, Value, raw_dtype
from batch_export.runtime.failures import LoadError
from batch_export.runtime.kinds import Session
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session

OPSET = 18
_IR_VERSIONS = {18: 8, 19: 9, 21: 10}

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "int8": "int8",
    "bool": "bool",
    "int16": "int16",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
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
        signature = f"({word}[n] x, float[1] w) => ({word}[n] y, float[1] z)"
        opset = 19 if word.startswith("float8") else OPSET
        session = _opened(provider, folder, signature, "y=Identity(x) z=Neg(w)", opset=opset)
        value = _extremes(_DTYPES[word])
        try:
            y, _ = session.run({"x": value, "w": _floats(1)})
        except Exception as error:
            raise RefusedError(f"{word}: {error}") from error
        finally:
            session.close()
        _same(y, value)

    return crosses


def _strings(provider: ProviderSpec, folder: Path) -> None:
    """Text of any length and alphabet, none included."""
    session = _opened(
        provider, folder, "(string[n] x, float[1] w) => (string[n] y, float[1] z)", "y=Identity(x) z=Neg(w)"
    )
    texts = np.array(["", "plain", "Grüße \U0001f600", "a\nb"], dtype=object)
    y, _ = _run(session, {"x": texts, "w": _floats(1)})
    assert not isinstance(y, (RawTensor, TensorSequence))
    assert np.asarray(y).tolist() == texts.tolist(), y


def _four_bits(word: str) -> Callable[[ProviderSpec, Path], None]:
    def crosses(provider: ProviderSpec, folder: Path) -> None:
        """An odd number of them, in as what is dequantised, out as what was quantised."""
        session = _opened(
            provider,
            folder,
            f"({word}[n] x, float[m] w) => (float[n] y, {word}[m] z)",
            "y = DequantizeLinear(x, s) z = QuantizeLinear(w, s, o)",
            constants=f"float s = {{1.0}}, {word} o = {{0}}",
            opset=21,
        )
        numbers = [-8, 7, -1] if word == "int4" else [0, 15, 9]
        bits = np.array(numbers, np.int8).view(np.uint8) & 0xF
        y, z = _run(session, {"x": RawTensor(word, bits), "w": _floats(*numbers[::-1])})
        _same(y, _floats(*numbers))
        _same(z, RawTensor(word, bits[::-1]))

    return crosses


def _sequences(provider: ProviderSpec, folder: Path) -> None:
    """A sequence keeps its tensors, their order and their shapes, and may be empty; a tensor beside it stays one."""
    session = _opened(
        provider,
        folder,
        "(seq(float[n]) s, float[m] x) => (seq(float[n]) t, float[m] y)",
        "t = SequenceInsert(s, x) y = Neg(x)",
    )
    assert session.input_names == ("s", "x"), session.input_names
    for items in ((_floats(1, 2), _floats(3)), (_floats(),), ()):
        t, y = _run(session, {"s": TensorSequence(items), "x": _floats(4, 5)})
        assert isinstance(t, TensorSequence), f"a sequence came back as {type(t).__name__}"
        assert len(t.items) == len(items) + 1, f"{len(items) + 1} tensors came back as {len(t.items)}"
        for actual, expected in zip(t.items, (*items, _floats(4, 5)), strict=True):
            _same(actual, expected)
        _same(y, _floats(-4, -5))


def _optional_inputs(provider: ProviderSpec, folder: Path) -> None:
    """An optional value that is there is its tensor; one that is not is nothing, and no tensor without elements."""
    session = _opened(
        provider,
        folder,
        "(optional(float[n]) o, float[m] x) => (bool b, float[m] y)",
        "b = OptionalHasElement(o) y = Neg(x)",
    )
    for given in (_floats(1, 2), None, _floats()):
        b, y = _run(session, {"o": given, "x": _floats(3)})
        _same(b, np.array(given is not None))
        _same(y, _floats(-3))


def _optional_outputs(provider: ProviderSpec, folder: Path) -> None:
    """The same on the way out."""
    session = _opened(
        provider,
        folder,
        "(optional(float[n]) o, float[m] x) => (optional(float[n]) p, float[m] y)",
        "p = Identity(o) y = Neg(x)",
    )
    for given in (_floats(1, 2), None, _floats()):
        p, y = _run(session, {"o": given, "x": _floats(3)})
        if given is None:
            assert p is None, f"an optional value that is not there came back as {p!r}"
        else:
            _same(p, given)
        _same(y, _floats(-3))


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
    "dtype int4": _four_bits("int4"),
    "dtype uint4": _four_bits("uint4"),
    "strings": _strings,
    "sequences": _sequences,
    "optional inputs": _optional_inputs,
    "optional outputs": _optional_outputs,
}
"""By name."""


def _extremes(dtype: str) -> Value:
    raw = raw_dtype(dtype)
    if raw is not None:
        wide: Any = np.array([0x3F80, 0xC000, 0x0001, 0x7F80, 0x0000])
        bits: Any = wide if raw.itemsize > 1 else np.array([0x38, 0xC0, 0x01, 0x7B, 0x00])
        return RawTensor(dtype, bits.astype(raw))
    kind: Any = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, True])
    limits: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    special = [float("inf"), float("nan"), -0.0] if kind.kind == "f" else []
    return np.array([limits.min, limits.max, 1, 0, *special], kind)


def _run(session: Session, feeds: Mapping[str, Fed]) -> Sequence[Fed]:
    try:
        return session.run(feeds)
    except Exception as error:
        raise RefusedError(str(error)) from error


def _opened(
    provider: ProviderSpec, folder: Path, signature: str, body: str, *, constants: str = "", opset: int = OPSET
) -> Session:
    try:
        return open_session(_saved(folder, signature, body, constants=constants, opset=opset), provider)
    except LoadError as error:
        raise RefusedError(str(error)) from error


def _saved(
    folder: Path, signature: str, body: str, domains: str = "", *, constants: str = "", opset: int = OPSET
) -> Path:
    import onnx  # lazy: checks alone need it, the module may be looked at without

    path = folder / "model.onnx"
    text = _text(signature, body, domains, constants, opset)
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def _text(signature: str, body: str, domains: str = "", constants: str = "", opset: int = OPSET) -> str:
    kept = f" <{constants}>" if constants else ""
    head = f'<ir_version: {_IR_VERSIONS[opset]}, opset_import: ["": {opset}{domains}]>'
    return f"{head} g {signature}{kept} {{ {body} }}"


def _floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def _same(actual: Fed, expected: Value) -> None:
    if isinstance(expected, RawTensor):
        assert isinstance(actual, RawTensor), f"{expected.dtype} came back as {actual!r}"
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual.bits, expected.bits)
        return
    assert not isinstance(actual, (RawTensor, TensorSequence)), f"a tensor came back as {type(actual).__name__}"
    assert actual is not None, "a tensor came back as nothing"
    found = np.asarray(actual)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (found.dtype, found.shape)
    np.testing.assert_array_equal(found, expected)
