"""Weights from somewhere: a state dict, a module, a checkpoint of torch, or safetensors, as one mapping of tensors.

Arrives: the object or the path. Leaves: name -> tensor. Files are read with `weights_only` and mapped into memory where
the format allows it; nothing is executed from them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from batch_export.errors import SaveError

ModelState = Mapping[str, object] | torch.nn.Module | str | os.PathLike[str]
_INDEX = ".index.json"


def load(source: ModelState) -> dict[str, torch.Tensor]:
    """The tensors of a model state by name.

    Args:
        source: a state dict, a module (its non-persistent buffers included), or the path of a torch checkpoint, of a
            `.safetensors` file, or of the `.index.json` of a checkpoint in several files.

    Raises:
        SaveError: if there is no such file, it cannot be read, or it holds something else than tensors by name.
    """
    if isinstance(source, torch.nn.Module):
        return {**dict(source.named_parameters()), **dict(source.named_buffers()), **source.state_dict()}
    if isinstance(source, Mapping):
        found: object = source
    else:
        found = _read(Path(source))
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping):
        raise SaveError(f"the model state is a {type(found).__name__}", next_step="pass tensors by name")
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}


def _read(path: Path) -> Any:
    if not path.is_file():
        raise SaveError(f"there is no checkpoint {path}", next_step="pass the path of a file, not of a folder")
    try:
        if path.name.endswith(_INDEX):
            files = msgspec.json.decode(path.read_bytes())["weight_map"].values()
            names = list(dict.fromkeys(files))
            if any(Path(name).name != name for name in names):
                raise SaveError(
                    f"the checkpoint {path} names files outside of its folder",
                    next_step="look where it comes from; the files of a checkpoint lie beside its index",
                )
            parts = [_read(path.parent / name) for name in names]
            return {name: tensor for part in parts for name, tensor in part.items()}
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file  # lazy: an optional package

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except SaveError:
        raise
    except Exception as error:
        raise SaveError(
            f"the checkpoint {path} could not be read: {type(error).__name__}: {error}",
            next_step="save it with torch.save(module.state_dict(), path) or safetensors.torch.save_file",
        ) from error


def _is_zip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"PK"
