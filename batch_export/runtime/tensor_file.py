"""A container of named tensors that keeps every dtype: the reference values of a model, for all its cases.

Named values arrive (numpy arrays, or `RawTensor` for bfloat16 and float8) with a plain JSON description; they leave one
by one, mapped from the file on first use. Equal bytes are stored once. A file that was not finished cannot be read.
numpy's own npz is not used since it loses bfloat16 and float8.

Layout, little-endian: 64 bytes of preamble (magic, version, offset and length of the table of contents), the tensors'
bytes, each at a multiple of 64, and the table of contents as JSON: `{"tensors": {name: [dtype, shape, offset, length]},
"description": ...}`.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from batch_export.errors import BatchExportError
from batch_export.numbers.values import Array, RawTensor, Value, dtype_name, raw_dtype

FORMAT_VERSION = 1
"""Raised when the layout changes. 1 (2026-11): first."""

_MAGIC = b"BXTENSOR"
_PREAMBLE = struct.Struct("<8sIxxxxQQ")
_ALIGNMENT = 64


class TensorFileError(BatchExportError):
    """A tensor file is missing, unfinished, damaged, or holds no tensor of that name."""


class TensorFileWriter:
    """Writes a tensor file one tensor at a time; nothing is readable before the block ends without an exception.

    Example:
        with TensorFileWriter(path) as writer:
            writer.add("case0/in/x", array)
            writer.description = {"cases": [...]}
    """

    def __init__(self, path: Path) -> None:
        self.description: Any = None
        self._path = path
        self._stream = path.open("wb")
        self._stream.write(bytes(_ALIGNMENT))
        self._tensors: dict[str, tuple[str, list[int], int, int]] = {}
        self._offsets: dict[bytes, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._stream.close()

    def add(self, name: str, value: Value) -> None:
        """Appends a tensor.

        Raises:
            TensorFileError: the name is taken, or the dtype is text or an object.
        """
        if name in self._tensors:
            raise TensorFileError(f"{self._path.name}: a tensor named {name!r} was added already; names must differ")
        dtype = dtype_name(value)
        if dtype == "str":
            raise TensorFileError(f"{self._path.name}: {name!r} holds text; only numbers and booleans can be stored")
        array = value.bits if isinstance(value, RawTensor) else value
        if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
            array = array.astype(array.dtype.newbyteorder("<"))
        contiguous: Any = np.ascontiguousarray(array)
        data = memoryview(contiguous.reshape(-1).view(np.uint8))
        digest = hashlib.sha256(data).digest()
        if digest not in self._offsets:
            self._offsets[digest] = self._aligned_end()
            self._stream.write(data)
        self._tensors[name] = (dtype, list(array.shape), self._offsets[digest], int(data.nbytes))

    def _aligned_end(self) -> int:
        end = self._stream.tell()
        self._stream.write(bytes(-end % _ALIGNMENT))
        return self._stream.tell()

    def _finish(self) -> None:
        contents = json.dumps({"tensors": self._tensors, "description": self.description}).encode()
        start = self._aligned_end()
        self._stream.write(contents)
        self._stream.seek(0)
        self._stream.write(_PREAMBLE.pack(_MAGIC, FORMAT_VERSION, start, len(contents)))


class TensorFile(Mapping[str, Value]):
    """Reads a tensor file; a tensor is mapped, not copied, when it is asked for by name. Arrays are read-only.

    Attributes:
        description: the JSON value that the writer left, or None.

    Raises:
        TensorFileError: the file is missing, unfinished, damaged or of another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as stream:
                preamble = stream.read(_PREAMBLE.size)
                if len(preamble) < _PREAMBLE.size:
                    raise TensorFileError(f"{path} is too short for a tensor file; make it again")
                magic, version, start, length = _PREAMBLE.unpack(preamble)
                if magic != _MAGIC:
                    raise TensorFileError(f"{path} is not a tensor file, or its writer did not finish; make it again")
                if version != FORMAT_VERSION:
                    raise TensorFileError(
                        f"{path} has tensor file version {version}, this program reads {FORMAT_VERSION}; make it again"
                    )
                stream.seek(start)
                contents = stream.read(length)
        except OSError as error:
            raise TensorFileError(f"{path} cannot be read: {error.strerror or error}") from error
        if len(contents) < length:
            raise TensorFileError(f"{path} was cut off; make it again")
        table = json.loads(contents)
        self.description: Any = table["description"]
        self._tensors: dict[str, list[Any]] = table["tensors"]
        self._bytes: Array = np.memmap(path, dtype=np.uint8, mode="r")

    def __getitem__(self, name: str) -> Value:
        if name not in self._tensors:
            raise KeyError(f"{self._path} holds no tensor {name!r}; it holds {', '.join(self._tensors) or 'none'}")
        dtype, shape, offset, length = self._tensors[name]
        raw = raw_dtype(dtype)
        numbers = raw if raw is not None else np.dtype(dtype).newbyteorder("<")
        array: Array = self._bytes[offset : offset + length].view(np.ndarray).view(numbers).reshape(shape)
        return array if raw is None else RawTensor(dtype, array)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def under(self, prefix: str) -> dict[str, Value]:
        """Returns the tensors whose names start with `prefix`, keyed by the rest of the name, in the order written."""
        return {name.removeprefix(prefix): self[name] for name in self if name.startswith(prefix)}


def write(path: Path, tensors: Mapping[str, Value], description: Any = None) -> None:
    """Writes all tensors at once."""
    with TensorFileWriter(path) as writer:
        for name, value in tensors.items():
            writer.add(name, value)
        writer.description = description
