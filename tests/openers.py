"""Ways to read a file, each as `write(path, number)` and `read(path)`: by Python, Rust, C, a memory map, a subprocess.

`read` runs in a child, as a model's builder would; the path is none of its arguments in the config.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Opener:
    """One way."""

    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any]


def _text(path: Path, number: int) -> None:
    path.write_text(f"{number}\n")


def _open(path: Path | str, mode: str = "r") -> str:
    with open(path, mode) as stream:
        return str(stream.read())


def _os_open(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY)
    return os.read(handle, 100)


def _numpy(path: Path, number: int) -> None:
    import numpy as np

    with path.open("wb") as stream:
        np.save(stream, np.full(5, number))


def _numpy_mapped(path: Path) -> Any:
    import numpy as np

    return np.load(path, mmap_mode="r").tolist()


def _fromfile(path: Path) -> Any:
    import numpy as np

    return np.fromfile(path, dtype="uint8").tolist()


def _torch(path: Path, number: int) -> None:
    import torch

    torch.save({"w": torch.full((2,), float(number))}, path)


def _torch_loaded(path: Path, **options: Any) -> Any:
    import torch

    return torch.load(path, **options)["w"].tolist()


def _safetensors(path: Path, number: int) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"w": torch.full((2,), float(number))}, path)


def _load_file(path: Path) -> Any:
    from safetensors.torch import load_file

    return load_file(path)["w"].tolist()


def _safe_open(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="np") as stream:
        return stream.get_tensor("w").tolist()


def _tokenizer(path: Path, number: int) -> None:
    vocabulary = {"[UNK]": 0, f"word{number}": 1}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))


def _tokenizer_read(path: Path) -> Any:
    from tokenizers import Tokenizer

    return sorted(Tokenizer.from_file(str(path)).get_vocab())


def _fopen(path: Path) -> bytes:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(os.fsencode(path), b"r"))
    buffer = ctypes.create_string_buffer(50)
    libc.fread(buffer, 1, 49, stream)
    libc.fclose(stream)
    return buffer.value


def _c_mapped(path: Path) -> bytes:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    handle = libc.open(os.fsencode(path), 0)
    start = libc.mmap(None, ctypes.c_size_t(4096), 1, 2, handle, ctypes.c_size_t(0))
    libc.close(handle)
    return ctypes.string_at(start, path.stat().st_size)


def _from_the_folder(path: Path) -> bytes:
    """openat(2) beneath a folder that is open already."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    libc = ctypes.CDLL(None)
    handle = libc.openat(folder, os.fsencode(path.name), 0)
    return os.read(handle, 100)


def _sqlite(path: Path, number: int) -> None:
    import sqlite3

    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as base:
        base.execute("create table t (n)")
        base.execute("insert into t values (?)", (number,))
    base.close()


def _sqlite_read(path: Path) -> Any:
    import sqlite3

    return sqlite3.connect(path).execute("select n from t").fetchall()


def _cat(path: Path) -> str:
    return subprocess.run(["cat", str(path)], capture_output=True, text=True, check=True).stdout


def _grandchild(path: Path) -> str:
    line = f"{sys.executable} -S -c \"print(open('{path}').read())\" | cat"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout


def _script(path: Path, number: int) -> None:
    path.write_text(f"#!/bin/sh\necho {number}\n")
    path.chmod(0o755)


def _executed(path: Path) -> str:
    return subprocess.run([str(path)], capture_output=True, text=True, check=True).stdout


def _gzip(path: Path, number: int) -> None:
    import gzip

    with gzip.GzipFile(path, "wb", mtime=0) as stream:
        stream.write(b"%d" % number)


def _gzip_read(path: Path) -> bytes:
    import gzip

    return gzip.decompress(path.read_bytes())


def _zip(path: Path, number: int) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("in"), f"{number}")


def _zip_read(path: Path) -> bytes:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        return archive.read("in")


def _csv(path: Path, number: int) -> None:
    path.write_text(f"a,b\n{number},2\n")


def _pandas(path: Path) -> Any:
    import pandas

    return pandas.read_csv(path, engine="c").to_csv()


def _arrow(path: Path, number: int) -> None:
    import pyarrow

    table = pyarrow.table({"a": [number]})
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _arrow_mapped(path: Path) -> Any:
    import pyarrow

    return pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all().to_pydict()


def _external(path: Path, number: int) -> None:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    tensor = numpy_helper.from_array(np.full(300, number, dtype="float32"), "w")
    graph = helper.make_graph([], "g", [], [], [tensor])
    model = helper.make_model(graph)
    path.with_suffix(".data").unlink(missing_ok=True)
    onnx.save_model(model, path, save_as_external_data=True, location=path.with_suffix(".data").name, size_threshold=0)


def _external_read(path: Path) -> Any:
    import onnx
    from onnx import numpy_helper

    return numpy_helper.to_array(onnx.load(path).graph.initializer[0]).tolist()


def _pretrained(path: Path, number: int) -> None:
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        vocab_size=9,
        max_position_embeddings=8,
    )
    model = BertModel(config)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.fill_(number)
    model.save_pretrained(path)


def _auto_model(path: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(path).embeddings.word_embeddings.weight.tolist()


def _listed(path: Path, number: int) -> None:
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    (path / f"{number}.txt").write_text("")


OPENERS: dict[str, Opener] = {
    "open": Opener(_text, _open),
    "os_open": Opener(_text, _os_open),
    "read_bytes": Opener(_text, lambda path: path.read_bytes()),
    "read_write": Opener(_text, lambda path: _open(path, "r+")),
    "json": Opener(_text, lambda path: json.load(path.open())),
    "numpy_mmap": Opener(_numpy, _numpy_mapped),
    "numpy_fromfile": Opener(_text, _fromfile),
    "torch_load": Opener(_torch, _torch_loaded),
    "torch_load_mmap": Opener(_torch, lambda path: _torch_loaded(path, mmap=True)),
    "safetensors_load_file": Opener(_safetensors, _load_file),
    "safetensors_safe_open": Opener(_safetensors, _safe_open),
    "tokenizers": Opener(_tokenizer, _tokenizer_read),
    "fopen": Opener(_text, _fopen),
    "c_open_mmap": Opener(_text, _c_mapped),
    "openat": Opener(_text, _from_the_folder),
    "sqlite": Opener(_sqlite, _sqlite_read),
    "subprocess": Opener(_text, _cat),
    "grandchild": Opener(_text, _grandchild),
    "executed": Opener(_script, _executed),
    "gzip": Opener(_gzip, _gzip_read),
    "zip": Opener(_zip, _zip_read),
    "pandas_c_parser": Opener(_csv, _pandas),
    "pyarrow_mmap": Opener(_arrow, _arrow_mapped),
    "onnx_external": Opener(_external, _external_read),
    "auto_model": Opener(_pretrained, _auto_model),
    "listdir": Opener(_listed, lambda path: sorted(os.listdir(path))),
    "glob": Opener(_listed, lambda path: sorted(one.name for one in path.glob("*.txt"))),
    "link": Opener(lambda path, number: _linked(path, number), lambda path: path.read_text()),
    "in_the_current_folder": Opener(_text, lambda path: _open(os.path.relpath(path))),
}


def _linked(path: Path, number: int) -> None:
    """A link to a file that changes with it, as a hub's cache has them."""
    target = path.with_name(f"{path.name}.{number}")
    target.write_text(f"{number}")
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def build(opener: str, folder: str) -> str:
    """A builder: reads its file in `folder`, by its own way."""
    return repr(OPENERS[opener].read(Path(folder).parent / "data" / opener))
