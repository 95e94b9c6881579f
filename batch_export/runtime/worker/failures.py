"""How a worker ends a conversation: it refused, or it is gone."""

from __future__ import annotations

from batch_export.errors import BatchExportError


class WorkerEndedError(BatchExportError):
    """A runtime's process ended before it had answered."""


class WorkerRefusedError(BatchExportError):
    """A runtime raised an exception.

    Attributes:
        error_class: the exception's class over there.
        details: its traceback.
    """

    def __init__(self, message: str, error_class: str, details: str) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.details = details
