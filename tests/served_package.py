"""A runtime of nobody's, small enough to be built in a test: a wheel for an environment, and a plug-in that names it.

The wheel `doubling` doubles what it is given, whatever the file says; its variables make it print, die, hang, eat
memory or refuse. The tarball `doubling` does so for Node. numpy is made a wheel again from the installed files, so that
an environment is made without a network.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

VERSION = "1.0"

LIBRARY = '''
"""Doubles."""
import os
import signal
import sys
import time

FACTOR = float(os.environ.get("DOUBLING_FACTOR", "2"))

print("a line on the standard output, as runtimes print them", flush=True)
os.write(1, b"\\x00BXW1 and bytes that look like a frame\\n")
if os.environ.get("DOUBLING_IMPORT") == "dies":
    print("cannot find libdoubling.so", file=sys.stderr, flush=True)
    os._exit(3)
if os.environ.get("DOUBLING_IMPORT") == "hangs":
    time.sleep(600)
if os.environ.get("DOUBLING_IMPORT") == "raises":
    raise ImportError("libdoubling.so: cannot open shared object file")


def doubled(array):
    print("doubling", array.shape)
    if os.environ.get("DOUBLING_RUN") == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if os.environ.get("DOUBLING_RUN") == "eats":
        eaten = [bytearray(b"x" * (1 << 26)) for _ in range(40)]
        time.sleep(600)
    if os.environ.get("DOUBLING_RUN") == "raises":
        raise RuntimeError("no kernel for this shape")
    return array * array.dtype.type(FACTOR)
'''

SERVED = '''
"""Doubling as serve.py wants a runtime."""
import doubling


class Engine:
    def __init__(self, settings):
        if unknown := [name for name in settings["options"] if name != "speed"]:
            raise ValueError(f"unknown property {unknown[0]}; known: speed")

    def describe(self):
        return {"version": "1.0", "execution_providers": ["CPU", "NPU"]}

    def open(self, path):
        with open(path, "rb") as stream:
            if b"Softmax" in stream.read():
                raise NotImplementedError("operator Softmax is not implemented")
        return Opened()


class Opened:
    input_names, output_names, input_shapes, placement = ["x"], ["y"], [None], {"CPU": 1}

    def prepare(self, feeds):
        dtype, array = feeds["x"]
        return lambda: (dtype, array if dtype in ("str", "bfloat16") else doubling.doubled(array))

    def fetched(self, result):
        return [result]


def connect(settings):
    return Engine(settings)
'''

PLUGIN = '''
"""Brings the runtime `doubling` to batch_export."""
from pathlib import Path

from batch_export.runtime.kinds import Runtime

RUNTIME = Runtime(
    name="doubling",
    called="Doubling",
    library="doubling",
    packages=("doubling",),
    open=None,
    served=str(Path(__file__).with_name("doubling_served.py")),
)
'''


NODE_LIBRARY = """
console.log('a line on the standard output');
exports.doubled = (numbers) => numbers.map((number) => 2 * number);
"""

NODE_SERVED = """
exports.connect = ({ library, options }) => {
  if (Object.keys(options).length > 0) throw new RangeError(`unknown property ${Object.keys(options)[0]}`);
  const { doubled } = require(library);
  return {
    describe: () => ({ version: '1.0', execution_providers: ['cpu'] }),
    open: async (path) => {
      if (require('node:fs').readFileSync(path).includes('Softmax')) throw new TypeError('no Softmax here');
      return {
        input_names: ['x'],
        output_names: null,
        input_shapes: [null],
        placement: {},
        prepare: (feeds) => async () => {
          const { dtype, shape, data } = feeds.get('x');
          if (dtype === 'str') return { dtype, shape, data };
          if (process.env.DOUBLING_RUN === 'dies') process.kill(process.pid, 'SIGSEGV');
          const bytes = new Uint8Array(data);
          const found = doubled(new Float32Array(bytes.buffer));
          return { dtype, shape, data: Buffer.from(found.buffer) };
        },
        fetched: (result) => [result],
      };
    },
  };
};
"""


def node_tarball(folder: Path) -> Path:
    """Writes the npm package `doubling`, whose script would leave a file if it ran."""
    manifest = {"name": "doubling", "version": VERSION + ".0", "scripts": {"postinstall": "touch scripts-ran"}}
    target = folder / "doubling-1.0.0.tgz"
    with tarfile.open(target, "w:gz") as archive:
        for name, text in (("package.json", json.dumps(manifest)), ("index.js", NODE_LIBRARY)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return target


def wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes], requires: str = "") -> Path:
    """Writes a wheel of pure Python, or of whatever runs here."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    tag = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    every = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": tag.encode()}
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in every.items())
    target = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, data in {**every, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(path, data)
    return target


def doubling_wheel(folder: Path, library: str = LIBRARY, version: str = VERSION) -> Path:
    """Writes the wheel of the package `doubling`."""
    return wheel(folder, "doubling", version, {"doubling.py": library.encode()})


def numpy_wheel(folder: Path) -> Path:
    """Writes a wheel of the numpy that is installed here, without its tests."""
    numpy = importlib.metadata.distribution("numpy")
    files = {}
    for path in numpy.files or ():
        text = path.as_posix()
        if not (text.startswith("..") or ".dist-info/" in text or "/tests/" in text or text.endswith(".pyc")):
            files[text] = Path(str(path.locate())).read_bytes()
    return wheel(folder, "numpy", numpy.version, files)


def plugin(folder: Path) -> None:
    """Writes an installed plug-in: its modules, and the metadata with its entry point."""
    (folder / "doubling_plugin.py").write_text(PLUGIN)
    (folder / "doubling_served.py").write_text(SERVED)
    entry_point(folder, "doubling_plugin", "doubling", "doubling_plugin:RUNTIME")


def entry_point(folder: Path, distribution: str, name: str, value: str, group: str = "batch_export.runtimes") -> None:
    """Writes the metadata of a distribution with one entry point, for a runtime unless another group is named."""
    info = folder / f"{distribution}-{VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {VERSION}\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
