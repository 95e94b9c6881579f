"""An action: one step with a key. And its result: facts and the digests of the artifacts that it made.

Frozen plain data in both directions. A key is the sha256 of named entries: whatever could change the bytes is an entry,
descriptions never are, and two keys that differ can be told apart entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from batch_export.digest import Digest, digest_value
from batch_export.record import Failure

Mnemonic = str
"""The name of a kind of action: one of `steps.MNEMONICS`."""

KEY_FORMAT = 3
"""Raised when keys change their meaning. 1 (2026-11): first. 2 (2026-11-22): folders that arguments name are in keys;
a result says which packages and variables it saw. 3 (2026-11-23): and what start-up code
and folders of libraries were."""


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
    """A stored ONNX file with its external data, beside it; the file is named by its own digest.

    Attributes:
        onnx: digest of the `.onnx` file.
        external: `(file name, digest)` of every external data file, sorted by name.
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
        sources: `(path, digest)` of files that the action was seen to load; checked before a cached result is used, as
            are the next three (see `recorded.py`).
        asked: `(path, state)` of what it was seen to ask about without opening it (`asked.py`); checked likewise.
        packages: `(name, state)` of the installed distributions that it used.
        variables: `(name, digest)` of the environment variables that it read.
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
    asked: tuple[tuple[str, str], ...] = ()
    packages: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, Digest], ...] = ()
    seconds: float = 0.0
    attempts: tuple[Failure, ...] = ()
