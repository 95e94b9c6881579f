"""What a stage hands to the worker that ran it: facts, files to be stored, or a failure. Never a live object."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_export.digest import Digest
from batch_export.record import Failure


@dataclass(slots=True)
class ModelFiles:
    """A written ONNX file and its external data: a file beside it, or the digest of data that is stored already."""

    onnx: Path
    external: dict[str, Path | Digest] = field(default_factory=dict)


@dataclass(slots=True)
class StageOutput:
    """The outcome of one stage; `files` (name -> path) are moved into the content store by the worker.

    Attributes:
        is_doubtful: whether it may be what an exporter made of this process that shows here: nothing is stored, and the
            step is taken again in a process that no exporter has had in hands.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    model: ModelFiles | None = None
    failure: Failure | None = None
    is_doubtful: bool = False
