"""Opening an ONNX file where it was asked to run.

A file and a `ProviderSpec` arrive; a session leaves that runs feeds (`values.Value`) and knows where its nodes were
placed. Sessions hold the model's memory, some a process: close them. Nothing here compares or judges, and no other
provider than the requested one is ever used in its place.
"""

from __future__ import annotations

from pathlib import Path

from batch_export.errors import UsageError
from batch_export.runtime.failures import ProviderUnavailableError
from batch_export.runtime.kinds import Session
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import runtime


def open_session(path: Path, provider: ProviderSpec, threads: int = 1) -> Session:
    """Opens an ONNX file.

    Args:
        path: the `.onnx` file, its external data beside it.
        provider: where to run it.
        threads: threads inside one operator; operators never run beside each other.

    Raises:
        ProviderUnavailableError: the runtime or the execution provider is not there; ONNX Runtime itself would only
            warn.
        LoadError: the runtime refuses the file.
        WorkerEndedError: the runtime's own process ended at the file.
    """
    try:
        kind = runtime(provider.kind)
    except UsageError as error:
        raise ProviderUnavailableError(
            f"provider {provider.name}: {error}. Next step: correct 'kind' in the provider's config"
        ) from error
    if kind.open is None or kind.apart(provider):
        from batch_export.runtime.worker.session import WorkerSession  # lazy: most runs start no worker

        return WorkerSession(path, provider, kind, threads)
    if reason := kind.absence(provider):
        raise ProviderUnavailableError(f"provider {provider.name}: {reason}")
    return kind.open(path, provider, threads)
