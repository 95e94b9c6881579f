"""runtime/session.py and its two kinds of sessions, on small models written as ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from batch_export.numbers.values import RawTensor
from batch_export.runtime.failures import LoadError, ProviderUnavailableError
from batch_export.runtime.feeds import FeedError, feeds_for
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.session import open_session

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")
UNOPTIMISED = ProviderSpec("cpu_unoptimised", "onnxruntime", "CPUExecutionProvider", graph_optimization="disabled")
REFERENCE = ProviderSpec("reference", "reference")
HEAD = '<ir_version: 10, opset_import: ["": 20]>'


def saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.fixture
def two_outputs(tmp_path: Path) -> Path:
    return saved(
        tmp_path,
        HEAD
        + """g (float[n, 2] x) => (float[n, 2] square, float[n] total)
        <int64[1] last = {-1}> {
            square = Mul(x, x)
            total = ReduceSum<keepdims=0>(square, last)
        }""",
    )


@pytest.mark.parametrize("provider", [CPU, UNOPTIMISED, REFERENCE], ids=lambda provider: provider.name)
def test_outputs_come_in_the_order_of_the_file(two_outputs: Path, provider: ProviderSpec) -> None:
    session = open_session(two_outputs, provider, threads=1)
    assert (session.input_names, session.output_names) == (("x",), ("square", "total"))
    square, total = session.run({"x": np.array([[1, 2], [3, 4]], np.float32)})
    np.testing.assert_array_equal(np.asarray(square), [[1, 4], [9, 16]])
    np.testing.assert_array_equal(np.asarray(total), [5, 25])
    assert session.load_seconds > 0
    session.close()


def test_placement_names_the_provider_that_has_the_nodes(two_outputs: Path) -> None:
    assert open_session(two_outputs, UNOPTIMISED).placement == {"CPUExecutionProvider": 2}
    assert open_session(two_outputs, REFERENCE).placement == {"reference": 2}


def test_optimisation_can_be_switched_off(tmp_path: Path) -> None:
    path = saved(tmp_path, HEAD + "g (float[2] x) => (float[2] y) {a = Identity(x) b = Identity(a) y = Relu(b)}")
    assert sum(open_session(path, UNOPTIMISED).placement.values()) == 3
    assert sum(open_session(path, CPU).placement.values()) < 3


@pytest.mark.parametrize("provider", [CPU, REFERENCE], ids=lambda provider: provider.name)
def test_bfloat16_goes_in_and_out_unchanged(tmp_path: Path, provider: ProviderSpec) -> None:
    path = saved(
        tmp_path,
        HEAD + "g (bfloat16[2, 2] x, float[1] w) => (bfloat16[2, 2] y, float[1] z) {y = Identity(x) z = Relu(w)}",
    )
    bits = np.array([[0x3F80, 0xC000], [0x0001, 0x7F80]], np.uint16)
    y, z = open_session(path, provider).run({"x": RawTensor("bfloat16", bits), "w": np.array([-1], np.float32)})
    assert isinstance(y, RawTensor)
    assert y.dtype == "bfloat16"
    np.testing.assert_array_equal(y.bits, bits)
    np.testing.assert_array_equal(np.asarray(z), [0])


def test_bfloat16_results_are_computed_in_bfloat16(tmp_path: Path) -> None:
    path = saved(tmp_path, HEAD + "g (float[2] x) => (bfloat16[2] y) {y = Cast<to=16>(x)}")
    for provider in (CPU, REFERENCE):
        (y,) = open_session(path, provider).run({"x": np.array([1.0, -2.0], np.float32)})
        assert isinstance(y, RawTensor)
        np.testing.assert_array_equal(y.bits, [0x3F80, 0xC000])


def test_a_prepared_run_can_be_repeated(two_outputs: Path) -> None:
    run = open_session(two_outputs, CPU).prepare({"x": np.ones((1, 2), np.float32)})
    assert [len(run()), len(run())] == [2, 2]


def test_an_unavailable_provider_is_an_error_and_no_fallback(two_outputs: Path) -> None:
    provider = ProviderSpec("cuda", "onnxruntime", "NoSuchExecutionProvider")
    assert RUNTIMES["onnxruntime"].absence(provider) == "NoSuchExecutionProvider is not in this onnxruntime build"
    with pytest.raises(ProviderUnavailableError, match="provider cuda: NoSuchExecutionProvider is not in"):
        open_session(two_outputs, provider)


def test_a_provider_that_does_not_start_is_an_error(two_outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime warns and takes the CPU when a provider of its build lacks its device; played with a renamed CPU."""
    import onnxruntime

    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda self: ["OtherExecutionProvider"])
    with pytest.raises(ProviderUnavailableError, match="could not start CPUExecutionProvider"):
        open_session(two_outputs, CPU)


def test_availability_of_what_is_here() -> None:
    assert [RUNTIMES[provider.kind].absence(provider) for provider in (CPU, REFERENCE)] == ["", ""]


def test_an_unknown_kind_names_the_known_ones(two_outputs: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match="No runtime is called 'tpu'; known: onnxruntime, reference"):
        open_session(two_outputs, ProviderSpec("x", "tpu"))


@pytest.mark.parametrize("provider", [CPU, REFERENCE], ids=lambda provider: provider.name)
def test_a_refused_file_is_a_load_error(tmp_path: Path, provider: ProviderSpec) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(LoadError, match=r"cannot load model\.onnx"):
        open_session(tmp_path / "model.onnx", provider)


def test_a_mistyped_optimisation_level_names_the_right_ones(two_outputs: Path) -> None:
    provider = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", graph_optimization="fast")
    with pytest.raises(LoadError, match="'fast'; use one of disabled, basic, extended, all"):
        open_session(two_outputs, provider)


def test_feeds_go_by_name_then_by_position() -> None:
    values = {"a": np.array(1), "b": np.array(2)}
    assert feeds_for(["b", "a"], values) == {"b": 2, "a": 1}
    assert feeds_for(["b"], values) == {"b": 2}
    assert feeds_for(["first", "second"], values) == {"first": 1, "second": 2}
    assert feeds_for(["first", "b"], values) == {"first": 1, "b": 2}
    with pytest.raises(FeedError, match=r"input 0 \('other'\) is not one of the model's inputs \(a, b\)"):
        feeds_for(["other"], values)
    with pytest.raises(FeedError, match="input 0"):
        feeds_for(["other", "a"], values)
