"""The worker's side: reads requests, has a runtime carry them out, writes answers. Needs numpy only.

Started as `python -I serve.py READ WRITE RUNTIME`: two pipes' numbers and the path of the runtime's module, which has

    connect(settings: dict) -> engine     settings: library, execution_provider, options, graph_optimization, threads,
                                          device, io_binding, after, plugin
    engine.describe() -> dict             version: str, execution_providers: list[str]
    engine.open(path: str) -> opened      with input_names, output_names (None: as the file has them, in its order),
                                          input_shapes (of each input None where it is not given, or per size an int
                                          or None) and placement: dict[str, int]
    opened.prepare(feeds) -> function     feeds: name -> (dtype, array); of no arguments, runs the file
    opened.fetched(result) -> list        what that function returned as (dtype, array), in the order of the outputs

An exception of a class called `UnavailableError` says that the machine lacks something: neither file nor options are to
blame.

A value is a dtype's name with a numpy array: of numbers, of unsigned integers with the bits where numpy has no such
dtype (`bfloat16`, `float8_...`, `int4`), or of Python strings (`str`). `sequence` goes with a list of values in place
of an array, `nothing`, an optional value that is not there, with None; only a runtime that says `takes_structures =
True` of what it has opened is given those. A frame is a preamble (magic, length of a JSON header,
length of the data), the header, and the bytes of the tensors one after the other. Nothing is pickled, and no standard
stream is used: a runtime may print what it likes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import sys
import time
import traceback
from typing import Any

import numpy as np

MAGIC = b"BXW1"
PREAMBLE = struct.Struct("<4sIQ")
LONGEST_HEADER = 1 << 26
RAW_DTYPES = {
    "bfloat16": "uint16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "int4": "uint8",
    "uint4": "uint8",
}
TEXT, SEQUENCE, NOTHING = "str", "sequence", "nothing"
UNAVAILABLE = "UnavailableError"

Tensor = tuple[str, Any]


class ProtocolError(Exception):
    """What arrived is no frame."""


def write_frame(handle: int, header: dict[str, Any], tensors: list[Tensor]) -> None:
    """Writes one frame.

    Raises:
        BrokenPipeError: the other side is gone.
        ProtocolError: a value is of a dtype that no frame holds.
    """
    blocks: list[Any] = []
    described = [_described(dtype, content, blocks) for dtype, content in tensors]
    text = json.dumps({**header, "tensors": described}).encode()
    _write_all(handle, PREAMBLE.pack(MAGIC, len(text), sum(map(len, blocks))) + text)
    for data in blocks:
        _write_all(handle, data)


def read_frame(handle: int) -> tuple[dict[str, Any], list[Tensor]]:
    """Reads one frame.

    Raises:
        EOFError: the other side is gone.
        ProtocolError: what arrived is no frame.
    """
    magic, header_bytes, data_bytes = PREAMBLE.unpack(_read_all(handle, PREAMBLE.size))
    if magic != MAGIC or header_bytes > LONGEST_HEADER:
        raise ProtocolError(f"expected a frame, got {bytes(magic)!r}")
    header = json.loads(_read_all(handle, header_bytes))
    size = sum(map(_size, header["tensors"]))
    if size != data_bytes:
        raise ProtocolError(f"a frame's tensors are {size} bytes, its data {data_bytes}")
    return header, [_value(entry, handle) for entry in header["tensors"]]


def _described(dtype: str, content: Any, blocks: list[Any]) -> dict[str, Any]:
    """What the header says of a value, whose bytes go onto `blocks`."""
    if dtype == SEQUENCE:
        return {"dtype": dtype, "items": [_described(kind, item, blocks) for kind, item in content]}
    if dtype == NOTHING:
        return {"dtype": dtype}
    data = _text_bytes(content) if dtype == TEXT else _number_bytes(dtype, content)
    blocks.append(data)
    return {"dtype": dtype, "shape": list(np.shape(content)), "bytes": len(data)}


def _size(entry: dict[str, Any]) -> int:
    """How many bytes of a frame's data a value has."""
    return sum(map(_size, entry.get("items", ()))) + int(entry.get("bytes", 0))


def _value(entry: dict[str, Any], handle: int) -> Tensor:
    dtype = entry["dtype"]
    if dtype == SEQUENCE:
        return dtype, [_value(item, handle) for item in entry["items"]]
    return (dtype, None) if dtype == NOTHING else _tensor(entry, _read_all(handle, int(entry["bytes"])))


def _tensor(entry: dict[str, Any], data: bytearray) -> Tensor:
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    if dtype == TEXT:
        texts = np.empty(shape, dtype=object)
        texts.reshape(-1)[:] = _texts(data)
        return dtype, texts
    return dtype, np.frombuffer(data, dtype=RAW_DTYPES.get(dtype, dtype)).reshape(shape)


def _number_bytes(dtype: str, array: Any) -> Any:
    expected = RAW_DTYPES.get(dtype, dtype)
    if array.dtype.name != expected:
        raise ProtocolError(f"a value said to be {dtype} is of {array.dtype.name}")
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
    contiguous: Any = np.ascontiguousarray(little)
    return memoryview(contiguous.reshape(-1).view(np.uint8))


def _text_bytes(array: Any) -> bytes:
    encoded = [str(text).encode() for text in np.asarray(array, dtype=object).reshape(-1)]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def _texts(data: bytearray) -> list[str]:
    found, place = [], 0
    while place < len(data):
        (length,) = struct.unpack_from("<I", data, place)
        found.append(bytes(data[place + 4 : place + 4 + length]).decode())
        place += 4 + length
    return found


def _write_all(handle: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view[: 1 << 24]) :]


def _read_all(handle: int, count: int) -> bytearray:
    data = bytearray(count)
    view, done = memoryview(data), 0
    while done < count:
        chunk = os.read(handle, min(count - done, 1 << 24))
        if not chunk:
            raise EOFError("the other side has closed the pipe")
        view[done : done + len(chunk)] = chunk
        done += len(chunk)
    return data


class Worker:
    """One runtime, and at most one file open in it."""

    def __init__(self, module_path: str) -> None:
        self._module_path = module_path
        self._module: Any = None
        self._engine: Any = None
        self._opened: Any = None
        self._prepared: Any = None

    def answer(self, header: dict[str, Any], tensors: list[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
        """Carries out one request: `load`, `connect`, `open`, `feed`, `run` or `time`."""
        what = header["do"]
        if what == "load":
            spec = importlib.util.spec_from_file_location("served_runtime", self._module_path)
            assert spec is not None
            assert spec.loader is not None
            self._module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self._module)
            return {}, []
        if what == "connect":
            self._engine = self._module.connect(header["settings"])
            return dict(self._engine.describe()), []
        if what == "open":
            return self._open(header["path"]), []
        if what == "feed":
            self._prepared = None
            feeds = dict(zip(header["names"], tensors))  # noqa: B905
            self._require_tensors(feeds)
            self._prepared = self._opened.prepare(feeds)
            return {}, []
        return self._run(fetched=what == "run")

    def _require_tensors(self, feeds: dict[str, Tensor]) -> None:
        if getattr(self._opened, "takes_structures", False):
            return
        for name, (kind, _) in feeds.items():
            if kind in (SEQUENCE, NOTHING):
                what = "a sequence" if kind == SEQUENCE else "an optional value"
                raise RuntimeError(f"this runtime takes tensors only, and the input {name} is given {what}")

    def _open(self, path: str) -> dict[str, Any]:
        began = time.perf_counter()
        self._opened = self._engine.open(path)
        return {
            "load_seconds": time.perf_counter() - began,
            "input_names": list(self._opened.input_names),
            "output_names": None if self._opened.output_names is None else list(self._opened.output_names),
            "input_shapes": [None if shape is None else list(shape) for shape in self._opened.input_shapes],
            "placement": dict(self._opened.placement),
        }

    def _run(self, *, fetched: bool) -> tuple[dict[str, Any], list[Tensor]]:
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        result = self._prepared()
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        return {"wall_ns": wall, "cpu_ns": cpu}, self._opened.fetched(result) if fetched else []


def main(arguments: list[str]) -> int:
    """Answers until the other side closes its pipe."""
    read, write, module_path = int(arguments[0]), int(arguments[1]), arguments[2]
    for handle in (read, write):
        os.set_inheritable(handle, False)
    worker = Worker(module_path)
    while True:
        try:
            header, tensors = read_frame(read)
        except EOFError:
            return 0
        try:
            answer, values = worker.answer(header, tensors)
        except Exception as error:
            said = {"class": type(error).__name__, "message": str(error), "details": traceback.format_exc()}
            answer, values = {"error": said}, []
        try:
            write_frame(write, answer, values)
        except BrokenPipeError:
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
