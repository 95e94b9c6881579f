"""served/onnxruntime_browser.cjs: a runtime in headless Chromium, here with a library that only gives its inputs back.

The real library is held to the conformance checks by the nox session `runtimes`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.served import serve
from batch_export.runtime.worker.failures import WorkerRefusedError
from batch_export.runtime.worker.process import WorkerProcess

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node on the path")

ECHO = """
export const env = { wasm: {}, versions: { web: '9.9.9' } };
export class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
export const InferenceSession = { async create(model, settings) {
  if (model[0] !== 8) throw new RangeError('no model');
  const told = settings.externalData.map(({ path, data }) => `${path}:${data.length}`).join();
  const names = ['x', 'text', 'half'];
  return { inputNames: names, outputNames: [...names, 'told'], inputMetadata: [{ name: 'x', shape: [2, 'n'] }],
    async run(feeds) { return { ...feeds, told: new Tensor('string', [told], [1]) }; } };
} };
"""
SETTINGS = ProviderSpec("mine", "onnxruntime-browser", "wasm").settings(1, "onnxruntime-web")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    package = tmp_path / "node_modules" / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "onnxruntime-web", "main": "dist/main.cjs"}')
    (package / "dist" / "main.cjs").write_text("")
    (package / "dist" / "ort.webgpu.min.mjs").write_text(ECHO)
    return package.parent


def started(library: Path, **variables: str) -> WorkerProcess:
    script = Path(serve.__file__).with_suffix(".cjs")
    served = RUNTIMES["onnxruntime-browser"].served
    environment = {**os.environ, "NODE_PATH": str(library), **variables}
    return WorkerProcess(
        "the browser", lambda read, write: [str(NODE), str(script), str(read), str(write), served], environment
    )


@pytest.fixture
def worker(library: Path) -> Iterator[WorkerProcess]:
    if CHROMIUM is None:
        pytest.skip("no chromium on the path (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="k") as folder:  # of a short path, since it is a socket's too
        with started(library, CHROMIUM=CHROMIUM, TMPDIR=folder) as process:
            process.ask({"do": "load"})
            yield process
        assert not list(Path(folder).glob("batch_export_chromium_*")), "the browser's profile is left behind"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PATH": ""}, "no Chromium on the path"),
        ({"CHROMIUM": "/no/such/browser"}, "/no/such/browser cannot be started"),
    ],
)
def test_without_a_browser_the_machine_is_to_blame(library: Path, variables: dict[str, str], said: str) -> None:
    with started(library, **{"CHROMIUM": "", **variables}) as process:
        process.ask({"do": "load"})
        with pytest.raises(WorkerRefusedError, match=said) as caught:
            process.ask({"do": "connect", "settings": SETTINGS})
    assert caught.value.error_class == serve.UNAVAILABLE


def test_files_and_values_cross_into_the_page_and_back(worker: WorkerProcess, tmp_path: Path) -> None:
    told, _ = worker.ask({"do": "connect", "settings": SETTINGS})
    assert told["version"].startswith("9.9.9")
    assert "wasm" in told["execution_providers"]
    (tmp_path / "weights.bin").write_bytes(b"12345")
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08\x0a\x08location\x12\x0bweights.bin")
    opened, _ = worker.ask({"do": "open", "path": str(path)})
    assert opened["input_shapes"] == [[2, None], None, None]
    x = np.array([[1.5, -0.0, np.nan], [np.inf, 2, 3]], np.float32)
    texts, half = np.array(["", "Grüße \U0001f600"], object), np.array([1, -2], np.float16)
    values = [("float32", x), ("str", texts), ("float16", half)]
    worker.ask({"do": "feed", "names": ["x", "text", "half"]}, values)
    timed, outputs = worker.ask({"do": "run"})
    assert timed["wall_ns"] >= 0
    assert [dtype for dtype, _ in outputs] == ["float32", "str", "float16", "str"]
    assert outputs[0][1].tobytes() == x.tobytes()
    assert outputs[1][1].tolist() == texts.tolist()
    np.testing.assert_array_equal(outputs[2][1], half)
    assert outputs[3][1].tolist() == ["weights.bin:5"]
    path.write_bytes(b"no model")
    with pytest.raises(WorkerRefusedError, match="no model"):
        worker.ask({"do": "open", "path": str(path)})
