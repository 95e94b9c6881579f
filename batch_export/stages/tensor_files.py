"""The large tensors of a unit's ONNX files, one file each, named by its content: opsets and settings share them.

Tensors arrive; digests, and files for the store, leave. Each tensor of the captured program is read once, and a file is
written once, whatever opsets refer to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from batch_export.digest import Digest, content_name
from batch_export.exporter.graph import weights


class TensorFiles:
    """What one unit of work has written so far.

    Args:
        scratch: an existing folder for files on their way to the store.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._digests: dict[Any, tuple[torch.Tensor, Digest]] = {}
        self._written: set[Digest] = set()

    def remember(self, tensors: Iterable[torch.Tensor]) -> None:
        """Keeps the digests of these tensors, which live as long as the unit, from one file to the next."""
        for tensor in tensors:
            key = weights.identity(tensor)
            if weights.size(tensor) and key not in self._digests:
                self._digests[key] = (tensor, "")

    def digest(self, tensor: torch.Tensor) -> Digest:
        """The digest of a tensor's bytes."""
        key = weights.identity(tensor)
        kept = self._digests.get(key)
        if kept is not None and kept[1]:
            return kept[1]
        digest = weights.digest(weights.layout({"": tensor}, threshold=-1))
        if kept is not None:
            self._digests[key] = (kept[0], digest)
        return digest

    def file(self, tensor: torch.Tensor, digest: Digest) -> Path | Digest:
        """A file with a tensor's bytes; the digest alone where an earlier ONNX file brought it into the store."""
        if digest in self._written:
            return digest
        path = self._scratch / content_name(digest)
        with path.open("wb") as stream:
            weights.write(stream, weights.layout({"": tensor}, threshold=-1))
        self._written.add(digest)
        return path
