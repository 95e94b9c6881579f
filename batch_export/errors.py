"""Every exception that batch_export raises on purpose.

Inside a room errors are exceptions; at a room's door they become values (`record.Failure`). An error says what failed,
on which node, value or cell, and what to try next. This module imports nothing of ours.
"""

from __future__ import annotations

from typing import NamedTuple, Self


class BatchExportError(Exception):
    """Base of everything that batch_export raises on purpose."""

    exit_code = 3


class UsageError(BatchExportError):
    """A configuration, argument or name that the user has to correct."""

    exit_code = 2


class RunError(BatchExportError):
    """The run itself could not go on: an unwritable folder, a full disk, a broken store."""

    exit_code = 3


class StoreError(BatchExportError):
    """The content store or the action cache could not be read or written."""

    exit_code = 3


class ArtifactError(StoreError):
    """A stored file cannot be used; whatever made it has to be executed again.

    Attributes:
        digest: of the content that was asked for.
    """

    def __init__(self, message: str, digest: str) -> None:
        super().__init__(message)
        self.digest = digest


class CorruptArtifactError(ArtifactError):
    """A stored file is not what its digest says; it has been put into the store's quarantine."""


class MissingArtifactError(ArtifactError):
    """A file that a result names is not stored (any more)."""


class ModelError(BatchExportError):
    """A model's builder, or the inputs that its config describes, are not usable."""


class LibraryMissingError(BatchExportError):
    """A library that a model, provider or exporter needs is not installed (its cells are skipped)."""

    def __init__(self, library: str, needed_by: str) -> None:
        super().__init__(f"{needed_by} needs the package {library!r}, which is not installed")
        self.library = library
        self.needed_by = needed_by


class ExportWarning(UserWarning):
    """Something about an exported file that its user should know: what it leaves out or takes for granted."""


class Place(NamedTuple):
    """Where in a model something happened: a node's name, its operator, and `file:line` in the user's model."""

    node: str
    operator: str
    source: str | None


class OnnxExporterError(BatchExportError):
    """Base of the exporter core's errors.

    Attributes:
        node: name of the FX or ONNX node that failed, if one is known.
        operator: the operator of that node, e.g. `aten.add.Tensor`.
        source: `file:line` in the user's model, if one is known.
        next_step: what the reader can do about it.
    """

    stage = "export"

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        operator: str | None = None,
        source: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.problem = message
        self.node = node
        self.operator = operator
        self.source = source
        self.next_step = next_step
        super().__init__(self._sentence())

    def located_at(self, place: Place) -> Self:
        """This error, naming the node at which it was raised; one that names a node already stays as it is."""
        if self.node is None:
            self.node, self.operator, self.source = place.node, place.operator, place.source
            self.args = (self._sentence(),)
        return self

    def saying_more(self, more: str) -> Self:
        """This error, with something more about what went wrong."""
        self.problem += f"; {more}"
        self.args = (self._sentence(),)
        return self

    def _sentence(self) -> str:
        where = [
            f"{label} {value}"
            for label, value in (("node", self.node), ("operator", self.operator), ("at", self.source))
            if value
        ]
        text = self.problem if not where else f"{self.problem} ({', '.join(where)})"
        return f"{text}. Next step: {self.next_step}" if self.next_step else text


class CaptureError(OnnxExporterError):
    """torch.export (and every other capture strategy) could not turn the model into an exported program.

    Attributes:
        attempts: every strategy that was tried, in order, when more than one was.
    """

    stage = "capture"

    def __init__(self, message: str, *, attempts: tuple[object, ...] = (), **where: str | None) -> None:
        self.attempts = attempts
        super().__init__(message, **where)


class DynamicShapeError(OnnxExporterError):
    """The dynamic shapes asked for are malformed, or capture made an axis static that was asked for as dynamic."""

    stage = "dynamic"


class DecompositionError(OnnxExporterError):
    """An operator could not be decomposed or made functional."""

    stage = "translate"


class TranslationError(OnnxExporterError):
    """A node of the exported program could not be turned into ONNX nodes."""

    stage = "translate"


class MissingOperatorError(TranslationError):
    """Operators without a translation; all of the program's are collected in `operators`."""

    def __init__(self, message: str, operators: tuple[str, ...], **where: str | None) -> None:
        self.operators = operators
        super().__init__(message, **where)


class OpsetError(OnnxExporterError):
    """The opset asked for is out of range, or cannot be reached exactly."""

    stage = "opset"


class NoFormError(OpsetError):
    """An operator of the model, with what it says here, cannot be written at the opset asked for.

    Attributes:
        lowest: the nearest opset above at which it can; None where it can below only.
        highest: the nearest opset below at which it can; None where it can above only.
    """

    def __init__(self, message: str, *, lowest: int | None, highest: int | None, **where: str | None) -> None:
        self.lowest, self.highest = lowest, highest
        super().__init__(message, **where)


class OptimisationError(OnnxExporterError):
    """A pass of the optimiser failed."""

    stage = "translate"


class SaveError(OnnxExporterError):
    """The ONNX program could not be written."""

    stage = "translate"


class VerificationError(OnnxExporterError):
    """The exported model does not do what the original does."""

    stage = "mismatch"
