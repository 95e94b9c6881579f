"""A diagnostic: one thing that went wrong, as every report shows it. Frozen plain data; identity by content.

What a diagnostic is about (stage, class, operator, source line) is in its fingerprint; numbers, paths of a machine and
the cell that happened to show it are not, so the same defect has the same fingerprint in every run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from batch_export.digest import digest_value

FINGERPRINT_FORMAT = 2
"""Raised when fingerprints change their meaning. 1 (2026-11): first. 2 (2026-11-22): addresses, and what was expected
in place of the failure, are left out.
"""
OTHERWISE = " (expected to fail otherwise: "
"""Begins what is added to the message of a failure that is not the declared one; it says nothing about the cause."""

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\binf\b|\bnan\b)", re.IGNORECASE)
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE)
_PATH = re.compile(r"(?:/[\w.+-]+){2,}")
_LIST = re.compile(r"[\[(][#,\s]*[\])]")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that went wrong.

    Attributes:
        stage: where, e.g. `translate`.
        error_class: its class, e.g. `MissingOperatorError`.
        message: one line for people.
        operator: torch's or ONNX's operator, if known.
        source: `file:line` in the model's source, if known.
        node: FX or ONNX node, if known.
        subject: what it happened to: a cell's name, or a model's.
        level: `error`, `warning` or `note`.
        place: `file:line` to show where no source is known, e.g. the model's config; no part of the identity.
    """

    stage: str
    error_class: str
    message: str
    operator: str = ""
    source: str = ""
    node: str = ""
    subject: str = ""
    level: str = "error"
    place: str = ""

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal characters that stand for the defect."""
        return digest_value([FINGERPRINT_FORMAT, *self.identity])[:32]

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes two diagnostics the same defect: where it is known, the operator and the source line; else the
        message without its numbers and paths."""
        known = bool(self.operator or self.source)
        return (
            self.stage, self.error_class, self.operator, stable_source(self.source),
            "" if known else without_numbers(self.message),
        )  # fmt: skip


def without_numbers(text: str) -> str:
    """Returns the text with addresses, numbers and absolute paths replaced: two runs of one defect read alike."""
    told = text.partition(OTHERWISE)[0]
    return _LIST.sub("#", _NUMBER.sub("#", _PATH.sub("/path", _ADDRESS.sub("#", told))))


def stable_source(source: str) -> str:
    """Returns the last two parts of the file's path and the line: checkouts lie in different folders."""
    file, _, line = source.rpartition(":")
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}" if file else source
