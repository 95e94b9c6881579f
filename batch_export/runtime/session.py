"""Opening an ONNX file where it was asked to run.

A file and a `ProviderSpec` arrive; a session leaves that runs feeds (`values.Value`) and knows where its nodes were
placed. Sessions hold the model's memory: close them. Nothing here compares or judges, and no other provider than the
requested one is ever used in its place.
"""

from __future__ import annotations

from pathlib import Path

from batch_export.runtime.failures import ProviderUnavailableError
from batch_export.runtime.kinds import RUNTIMES, Session
from batch_export.runtime.provider_spec import ProviderSpec


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
    """
    runtime = RUNTIMES.get(provider.kind)
    if runtime is None:
        known = ", ".join(RUNTIMES)
        raise ProviderUnavailableError(
            f"provider {provider.name}: no runtime is called {provider.kind!r}; known: {known}. "
            "Next step: correct 'kind' in the provider's config"
        )
    if reason := runtime.absence(provider):
        raise ProviderUnavailableError(f"provider {provider.name}: {reason}")
    return runtime.open(path, provider, threads)
