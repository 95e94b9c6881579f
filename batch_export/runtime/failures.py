"""The ways in which a session does not come to be."""

from __future__ import annotations

from batch_export.errors import BatchExportError, UsageError


class ProviderUnavailableError(BatchExportError):
    """The provider asked for is not in this environment, or its library could not be loaded."""


class LoadError(BatchExportError):
    """The runtime refused the file."""


class OptionsRejectedError(UsageError):
    """A runtime does not take the options that a provider's config gives it."""
