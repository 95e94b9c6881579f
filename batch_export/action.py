"""An action: one step with a key. And its result: facts and the digests of the artifacts that it made.

Frozen plain data in both directions. A key is the sha256 of named entries: whatever could change the bytes is an entry,
descriptions never are, and two keys that differ can be told apart entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from batch_export.digest import Digest, digest_value
from batch_export.record import Failure

Mnemonic = Literal["Reference", "Capture", "Translate", "Check", "Run", "Oracle", "Measure", "Eager"]

KEY_FORMAT = 1
"""Raised when keys change their meaning. 1 (2026-11): first."""


@dataclass(frozen=True, slots=True)
class Action:
    """One step of the plan.

    Attributes:
        mnemonic: which step.
        entries: named parts of the key, sorted by name, e.g. `(("model.source", "ab12..."), ("torch", "2.13.0"))`.
        description: for people; not part of the key.
    """

    mnemonic: Mnemonic
    entries: tuple[tuple[str, str], ...]
    description: str = ""

    @property
    def key(self) -> Digest:
        """The digest under which the result is cached."""
        return digest_value([KEY_FORMAT, self.mnemonic, self.entries])


@dataclass(frozen=True, slots=True)
class ModelArtifact:
    """A stored ONNX file with its external data: the folder is named by the data, the file by its own digest.

    Attributes:
        onnx: digest of the `.onnx` file.
        external: `(file name, digest)` of every external data file, sorted by name; the
            files of one capture group share them.
    """

    onnx: Digest
    external: tuple[tuple[str, Digest], ...] = ()


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action found out and made.

    Attributes:
        facts: plain JSON data, by stage (each stage's docstring says which).
        artifacts: name -> digest in the content store.
        model: the ONNX file, for Translate.
        failure: why the action did not end well; failures of the environment are not cached.
        sources: `(path, digest)` of local files that the action was seen to load; checked before a
            cached result is used.
        seconds: wall time of the execution.
        attempts: failures of earlier tries in the same run, when the action was tried again.
    """

    mnemonic: Mnemonic
    key: Digest
    facts: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, Digest] = field(default_factory=dict)
    model: ModelArtifact | None = None
    failure: Failure | None = None
    sources: tuple[tuple[str, Digest], ...] = ()
    seconds: float = 0.0
    attempts: tuple[Failure, ...] = ()
