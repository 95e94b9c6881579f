"""Execution providers of ONNX Runtime: devices, I/O binding, plug-ins, options, and nodes that ran elsewhere.

What needs a GPU is played with the CPU in its place; `test_a_model_runs_on_the_gpu` runs where one is.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import yaml
from test_matrix import HERE, MATRIX, skips

from batch_export.config.run import provider_spec
from batch_export.errors import UsageError
from batch_export.numbers.values import RawTensor, TensorSequence, widened
from batch_export.plan.matrix import expand
from batch_export.runtime.failures import OptionsRejectedError, ProviderUnavailableError
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.served import onnxruntime as served
from batch_export.runtime.session import open_session
from batch_export.runtime.structures import StructureError, leaves, tensors
from batch_export.runtime.worker.session import interpreter
from batch_export.sources.places import conf_dir
from batch_export.stages import run
from batch_export.sweeps.planned import installed

CPU = "CPUExecutionProvider"
BOUND = ProviderSpec("bound", "onnxruntime", CPU, io_binding=True)


def shipped(name: str) -> ProviderSpec:
    return provider_spec(name, yaml.safe_load(Path(conf_dir(), "provider", f"{name}.yaml").read_text()))


def saved(folder: Path, signature: str, body: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'), path)
    return path


def settings(**other: Any) -> dict[str, Any]:
    return {**ProviderSpec("mine", "onnxruntime", CPU).settings(1), **other}


def test_bound_inputs_and_outputs_are_the_same_numbers_at_every_size(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        "(float[n, 2] x, bfloat16[k] b) => (int64[r, m] where, bfloat16[k] c)",
        "where=NonZero(x) c=Identity(b)",
    )
    session = open_session(path, BOUND)
    bits = np.array([0x3F80, 0x7F80], np.uint16)
    for x in (np.eye(2, dtype=np.float32), np.zeros((3, 2), np.float32), np.ones((0, 2), np.float32)):
        where, c = tensors(("where", "c"), session.run({"x": x, "b": RawTensor("bfloat16", bits)}))
        np.testing.assert_array_equal(np.asarray(where), np.nonzero(x))
        assert isinstance(c, RawTensor)
        np.testing.assert_array_equal(c.bits, bits)
    again = session.prepare({"x": np.eye(2, dtype=np.float32), "b": RawTensor("bfloat16", bits)})
    assert [len(again()), len(again())] == [2, 2]


def test_binding_is_what_a_bound_run_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, "(float[n] x) => (float[n] y)", "y = Neg(x)")
    session = open_session(path, BOUND)

    def refuse(*given: object) -> None:
        raise AssertionError("ran with values that are not bound")

    for name in ("run", "run_with_ort_values"):
        monkeypatch.setattr(onnxruntime.InferenceSession, name, refuse)
    (y,) = tensors("y", session.run({"x": np.ones(2, np.float32)}))
    np.testing.assert_array_equal(np.asarray(y), [-1, -1])


def test_text_is_not_bound(tmp_path: Path) -> None:
    path = saved(tmp_path, "(string[n] x) => (string[n] y)", "y = Identity(x)")
    (y,) = tensors("y", open_session(path, BOUND).run({"x": np.array(["a", "ä"], object)}))
    assert np.asarray(y).tolist() == ["a", "ä"]


def test_a_device_goes_to_each_provider_that_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Recorded:
        def __init__(self, model: object, options: object, **other: Any) -> None:
            asked.update(other)

        def get_providers(self) -> list[str]:
            return ["TensorrtExecutionProvider", "CUDAExecutionProvider", CPU]

        def get_inputs(self) -> list[Any]:
            return []

        get_outputs = get_inputs

    monkeypatch.setattr(onnxruntime, "InferenceSession", Recorded)
    engine = served.connect(
        settings(
            execution_provider="TensorrtExecutionProvider",
            after=["CUDAExecutionProvider", "XnnpackExecutionProvider"],
            device=2,
            options={"trt_fp16_enable": "0"},
            io_binding=True,
        )
    )
    opened = engine.open("model.onnx")
    assert asked["providers"] == [
        ("TensorrtExecutionProvider", {"device_id": "2", "trt_fp16_enable": "0"}),
        ("CUDAExecutionProvider", {"device_id": "2"}),
        ("XnnpackExecutionProvider", {}),
    ]
    assert asked["enable_fallback"] == 0
    assert opened._device == ("cuda", 2)


def test_options_that_a_provider_does_not_take_are_told_in_its_words(tmp_path: Path) -> None:
    path = saved(tmp_path, "(float[n] x) => (float[n] y)", "y = Neg(x)")
    with pytest.raises(
        OptionsRejectedError, match=r"provider mine: .* CPUExecutionProvider has no options, and got foo"
    ):
        open_session(path, ProviderSpec("mine", "onnxruntime", CPU, options={"foo": "1"}))


class OfOther:
    """Sessions of a provider that this build lacks; they run on the CPU and say otherwise."""

    def __init__(self, starts: bool = True, fails_with: str = "bad") -> None:
        self.real, self.starts, self.fails_with = onnxruntime.InferenceSession, starts, fails_with

    def __call__(self, model: Any, options: Any, **other: Any) -> Any:
        if not self.starts:
            raise RuntimeError("/src/state.cc:729 void Register(Options&, const Other&) Please install its libraries.")
        if self.fails_with in other["providers"][0][1]:
            raise ValueError(f'Unknown provider option: "{self.fails_with}"')
        session = self.real(model, options, providers=[CPU])
        session.get_providers = lambda: ["OtherExecutionProvider", CPU]
        return session


def test_options_are_tried_before_a_file_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", OfOther())
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["OtherExecutionProvider", CPU])
    with pytest.raises(ValueError, match='Unknown provider option: "bad"'):
        served.connect(settings(execution_provider="OtherExecutionProvider", options={"bad": "1"}))
    served.connect(settings(execution_provider="OtherExecutionProvider", options={"good": "1"}))


def test_what_does_not_start_without_options_either_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build for a GPU on a machine without one, or without a library of its maker's."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["OtherExecutionProvider", CPU])
    monkeypatch.setattr(onnxruntime, "InferenceSession", OfOther(starts=False))
    with pytest.raises(served.UnavailableError, match="not start OtherExecutionProvider: Please install its libr"):
        served.connect(settings(execution_provider="OtherExecutionProvider")).open("model.onnx")
    for options in ({}, {"bad": "1"}):
        with pytest.raises(served.UnavailableError, match=r"not start OtherExecutionProvider: Please install its libr"):
            served.connect(settings(execution_provider="OtherExecutionProvider", options=options)).describe()
    monkeypatch.undo()
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["OtherExecutionProvider", CPU])
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *given, **_: real(*given, providers=[CPU]))
    with pytest.raises(served.UnavailableError, match=r"not start OtherExecutionProvider \(its library or device"):
        served.connect(settings(execution_provider="OtherExecutionProvider")).describe()


def test_a_provider_of_this_build_that_does_not_start_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def probed(spec: ProviderSpec, _kind: object) -> None:
        asked.append(spec.name)
        raise ProviderUnavailableError(f"provider {spec.name}: there is no device")

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", CPU])
    monkeypatch.setattr("batch_export.runtime.worker.session.probed", probed)
    specs = (shipped("cpu"), shipped("cuda"), shipped("tensorrt"))
    here = installed(specs, start=True)
    found = {item.cell.provider: item.skip for item in expand(replace(MATRIX, providers=specs), here)}
    assert found["cpu"] == ""
    assert found["cuda"] == "provider cuda: there is no device"
    assert found["tensorrt"].startswith("provider tensorrt is not installed: this onnxruntime has no Tensorrt")
    assert asked == ["cuda"], "the CPU is always there, and what the build lacks needs no process to say so"
    assert not installed(specs).refused, "without start nothing is started"


def test_a_plug_in_is_registered_once_and_runs_on_the_device_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is the CPU's: the library of a real plug-in finds none here."""
    registered: list[tuple[str, str]] = []
    monkeypatch.setattr(
        onnxruntime, "register_execution_provider_library", lambda name, path: registered.append((name, path))
    )
    served.register.cache_clear()
    plugged = settings(plugin=str(tmp_path / "libmine.so"))
    path = saved(tmp_path, "(float[n] x) => (float[n] y)", "y = Neg(x)")
    for _ in range(2):
        engine = served.connect(plugged)
        opened = engine.open(str(path))
    served.register.cache_clear()
    assert registered == [("libmine", str(tmp_path / "libmine.so"))]
    assert opened.placement == {CPU: 1}
    (output,) = opened.fetched(opened.prepare({"x": ("float32", np.ones(2, np.float32))})())
    np.testing.assert_array_equal(output[1], [-1, -1])
    with pytest.raises(served.UnavailableError, match="has no device 7; there is 1 from 0 on"):
        served.connect({**plugged, "device": 7})
    with pytest.raises(served.UnavailableError, match="the library of NobodysExecutionProvider found no device"):
        served.connect({**plugged, "execution_provider": "NobodysExecutionProvider"})
    served.register.cache_clear()


@pytest.mark.parametrize(
    ("plugin", "why"), [("nobodys_package", "No module named"), ("no_library.so", "cannot be registered.*no_library")]
)
def test_a_plug_in_that_is_not_there_is_a_skip_with_the_reason(plugin: str, why: str, tmp_path: Path) -> None:
    """The whole way: a process of its own registers it, and says what is missing."""
    path = saved(tmp_path, "(float[n] x) => (float[n] y)", "y = Neg(x)")
    with pytest.raises(ProviderUnavailableError, match=f"provider mine: the plug-in .*{why}"):
        open_session(path, ProviderSpec("mine", "onnxruntime", CPU, plugin=plugin))


def placed(**placement: int) -> Any:
    class Placed:
        pass

    session: Any = Placed()
    session.placement = {f"{name}ExecutionProvider": nodes for name, nodes in placement.items()}
    return session


def test_too_many_nodes_elsewhere_are_a_finding() -> None:
    cuda = ProviderSpec("cuda", "onnxruntime", "CUDAExecutionProvider", fallback_limit=0.25)
    assert run.fallen_back(placed(CUDA=9, CPU=3), cuda) is None
    failure = run.fallen_back(placed(CUDA=8, CPU=4), cuda)
    assert failure is not None
    assert (failure.stage, failure.error_class) == ("run", "Placement")
    assert failure.message.startswith("33% of the nodes did not run on CUDAExecutionProvider, beyond the 25%")
    assert "8 on CUDAExecutionProvider, 4 on CPUExecutionProvider in silence" in failure.message


def test_nodes_that_the_next_provider_takes_did_not_fall_back() -> None:
    spec = ProviderSpec(
        "tensorrt",
        "onnxruntime",
        "TensorrtExecutionProvider",
        after=("CUDAExecutionProvider",),
        fallback_limit=0.5,
    )
    assert run.fallen_back(placed(Tensorrt=1, CUDA=8, CPU=1), spec) is None
    none = run.fallen_back(placed(CUDA=8), spec)
    assert none is not None
    assert "no node ran on TensorrtExecutionProvider" in none.message


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"device": -1}, "device must be an index from 0 on, got -1"),
        ({"device": 1, "options": {"device_id": "0"}}, "the device is said twice"),
        ({"fallback_limit": 1.5}, "fallback_limit must be a share from 0 to 1"),
        ({"warm_up": -3}, "warm_up must be a number of runs"),
        ({"plugin": "mine", "after": [CPU]}, "remove 'after'"),
        (
            {"kind": "reference", "execution_provider": "", "io_binding": True},
            "io_binding is said of execution providers",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(extra: dict[str, Any], said: str) -> None:
    config = {"kind": "onnxruntime", "execution_provider": "CUDAExecutionProvider", **extra}
    with pytest.raises(UsageError, match=said):
        provider_spec("mine", config)


@pytest.mark.parametrize("name", ["cuda", "tensorrt"])
def test_without_its_build_a_provider_is_skipped_with_the_reason(name: str) -> None:
    spec = shipped(name)
    assert spec.io_binding
    found = skips(replace(MATRIX, providers=(spec,)))
    assert set(found.values()) == {
        f"provider {name} is not installed: this onnxruntime has no {spec.execution_provider}"
    }
    assert HERE.execution_providers


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cuda", "tensorrt"])
def test_a_model_runs_on_the_gpu(name: str, tmp_path: Path) -> None:
    spec = shipped(name)
    if reason := RUNTIMES["onnxruntime"].absence(spec):
        pytest.skip(reason)
    path = saved(tmp_path, "(float[n, 4] x, float[4, 4] w) => (float[n, 4] y)", "a = MatMul(x, w) y = Relu(a)")
    try:
        session = open_session(path, spec)
    except ProviderUnavailableError as error:
        pytest.skip(str(error))
    assert run.fallen_back(session, spec) is None
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    for size in (3, 1):
        x = np.linspace(-1, 1, 4 * size, dtype=np.float32).reshape(size, 4)
        (y,) = tensors("y", session.run({"x": x, "w": weight}))
        np.testing.assert_allclose(np.asarray(y), np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)
    again = session.prepare({"x": x, "w": weight})
    again()
    again()


def test_a_provider_without_an_environment_is_tried_with_the_packages_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build for a GPU may lie in a folder of PYTHONPATH, before another build that is installed."""
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("__version__ = 'the one on the path'\n")
    script = tmp_path / "scripts" / "told.py"
    script.parent.mkdir()
    script.write_text("import onnxruntime\nprint(onnxruntime.__version__)\n")
    (script.parent / "onnxruntime.py").write_text("__version__ = 'beside the script'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program, variables = interpreter(BOUND, RUNTIMES["onnxruntime"])
    done = subprocess.run([*program, str(script)], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "the one on the path"


def test_sequences_and_what_is_not_there_are_told_from_tensors() -> None:
    one, two = np.zeros(1), np.ones(2)
    assert leaves([one, TensorSequence((two, one)), None]) == [one, two, one]
    with pytest.raises(StructureError, match="the output t is a sequence of tensors"):
        tensors(("y", "t"), [one, TensorSequence(())])
    with pytest.raises(StructureError, match="the output t is an optional value that is not there"):
        tensors(("t",), [None])


def test_integers_of_four_bits_are_their_numbers() -> None:
    bits = np.array([0, 7, 8, 15], np.uint8)
    assert widened(RawTensor("int4", bits)).tolist() == [0, 7, -8, -1]
    assert widened(RawTensor("uint4", bits)).tolist() == [0, 7, 8, 15]
