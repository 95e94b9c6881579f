"""Every runtime that is here against runtime/conformance.py.

Those that need an environment of their own are run by the nox session `runtimes`, and skipped where theirs is not made
(`batch_export env create`); one that is served from this environment's own packages always takes part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from batch_export.config.run import provider_spec
from batch_export.environments.making import EnvironmentUnavailableError, wanted_for
from batch_export.environments.shelf import found
from batch_export.numbers.values import Fed
from batch_export.runtime import conformance
from batch_export.runtime.failures import ProviderUnavailableError
from batch_export.runtime.kinds import Runtime
from batch_export.runtime.ort import OrtSession
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES, runtime
from batch_export.sources.places import conf_dir

SERVED = "onnxruntime, served"


def shipped() -> Iterator[ProviderSpec]:
    for path in sorted(Path(conf_dir(), "provider").glob("*.yaml")):
        yield provider_spec(path.stem, yaml.safe_load(path.read_text()))


PROVIDERS = {provider.name: provider for provider in shipped()}
PROVIDERS[SERVED] = ProviderSpec(SERVED, SERVED, "CPUExecutionProvider")
PROVIDERS["bound"] = ProviderSpec("bound", "onnxruntime", "CPUExecutionProvider", io_binding=True)
ON_A_GPU = ("cuda", "tensorrt")
UNSIGNED_ZERO = {"dtype float8_e4m3fnuz", "dtype float8_e5m2fnuz"}
FLOAT8 = {"dtype float8_e4m3fn", "dtype float8_e5m2", *UNSIGNED_ZERO}
FOUR_BITS = {"dtype int4", "dtype uint4"}
STRUCTURES = {"sequences", "optional inputs", "optional outputs"}
MAY_REFUSE = {
    "reference": {"optional outputs"},  # onnx 1.23: its Identity gives no None
    "openvino": {*UNSIGNED_ZERO, *FOUR_BITS, *STRUCTURES},
    "iree": {"strings", *FOUR_BITS, *STRUCTURES},
    "tract": {
        *("a wrong rank", "dtype bfloat16", "dtype float16", "dtype int8", "dtype bool", "dtype uint8", "strings"),
        *(*FLOAT8, *FOUR_BITS, *STRUCTURES),
    },
    "onnxruntime_node": {"dtype bfloat16", *FLOAT8, *FOUR_BITS, *STRUCTURES},
    "onnxruntime_web": {"dtype bfloat16", *FLOAT8, *FOUR_BITS, *STRUCTURES},
}
MAY_REFUSE["onnxruntime_webgpu"] = MAY_REFUSE["onnxruntime_web"]
MAY_REFUSE["reference_any"] = MAY_REFUSE["reference"]
DEVIATES = {("openvino", "dtype int64"): "OpenVINO's CPU plug-in computes 64-bit integers in 32 bits"}


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, SERVED, replace(RUNTIMES["onnxruntime"], name=SERVED, open=None))


@pytest.mark.parametrize("name", conformance.CHECKS)
@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(
            one,
            marks=pytest.mark.runtimes if one.env else pytest.mark.gpu if one.name in ON_A_GPU else (),
            id=one.name,
        )
        for one in PROVIDERS.values()
    ],
)
def test_a_runtime_conforms(provider: ProviderSpec, name: str, tmp_path: Path) -> None:
    if provider.env:
        try:
            there = found(wanted_for(provider.env, runtime(provider.kind).language))
        except EnvironmentUnavailableError as error:
            pytest.skip(str(error))
        if there is None:
            pytest.skip(f"its environment is not made; `batch_export env create {provider.name}` makes it")
    elif provider.name in ON_A_GPU and (reason := runtime(provider.kind).absence(provider)):
        pytest.skip(reason)
    if reason := DEVIATES.get((provider.name, name)):
        with pytest.raises(AssertionError):
            conformance.check(name, provider, tmp_path)
        pytest.xfail(reason)
    refused = ""
    try:
        conformance.check(name, provider, tmp_path)
    except conformance.RefusedError as error:
        refused = str(error)
    except ProviderUnavailableError as error:
        pytest.skip(str(error))
    assert not refused or name in MAY_REFUSE.get(provider.name, ()), refused


class Faulty(OrtSession):
    """ONNX Runtime with a fault of one kind."""

    fault = ""

    def run(self, feeds: Any) -> list[Fed]:
        outputs: list[Any] = list(super().run(feeds))
        if self.fault == "order":
            return outputs[::-1]
        if self.fault == "scalars":
            return [np.atleast_1d(np.asarray(value)) for value in outputs]
        if self.fault == "stale":
            self.__dict__.setdefault("kept", [np.asarray(value) for value in outputs])
            for kept, value in zip(self.__dict__["kept"], outputs, strict=True):
                np.copyto(kept, np.asarray(value))
            return list(self.__dict__["kept"])
        if self.fault == "dtype":
            return [np.asarray(value).astype(np.float32) for value in outputs]
        return outputs


@pytest.mark.parametrize(
    ("fault", "check"),
    [("order", "names"), ("scalars", "scalars"), ("stale", "outputs stay"), ("dtype", "dtype int64")],
)
def test_a_check_finds_its_fault(fault: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = type("Faulty", (Faulty,), {"fault": fault})
    row = Runtime("faulty", "Faulty", "onnxruntime", ("onnxruntime",), faulty)
    monkeypatch.setitem(RUNTIMES, "faulty", row)
    provider = ProviderSpec("faulty", "faulty", "CPUExecutionProvider")
    with pytest.raises(AssertionError):
        conformance.check(check, provider, tmp_path)
    monkeypatch.setattr(faulty, "fault", "")
    conformance.check(check, provider, tmp_path)
