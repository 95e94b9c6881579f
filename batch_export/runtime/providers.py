"""Which providers can run here. A provider's spec arrives, a reason leaves; no session is opened."""

from __future__ import annotations

import importlib.util

from batch_export.spec import ProviderSpec

KINDS = ("onnxruntime", "reference")


def availability(provider: ProviderSpec) -> str:
    """Returns "" if the provider can be used in this environment, or else the reason why not, as a sentence."""
    if provider.kind == "reference":
        missing = importlib.util.find_spec("onnx") is None
        return "the reference evaluator needs the package onnx, which is not installed" if missing else ""
    if provider.kind != "onnxruntime":
        return f"the provider {provider.name!r} has the unknown kind {provider.kind!r}; known: {', '.join(KINDS)}"
    if importlib.util.find_spec("onnxruntime") is None:
        return "the package onnxruntime is not installed"
    # Imported here since onnxruntime starts a thread, which a process that forks must not have without need.
    import onnxruntime

    if provider.execution_provider not in onnxruntime.get_available_providers():
        return f"{provider.execution_provider or 'an unnamed provider'} is not in this onnxruntime build"
    return ""
