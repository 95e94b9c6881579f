"""Opening an ONNX file where it was asked to run.

A file and a `ProviderSpec` arrive; a session leaves that runs feeds (`values.Value`) and knows where its nodes were
placed. Sessions hold the model's memory: close them. Nothing here compares or judges, and no other provider than the
requested one is ever used in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from batch_export.runtime.failures import ProviderUnavailableError
from batch_export.runtime.ort import OrtSession
from batch_export.runtime.providers import availability
from batch_export.runtime.reference import ReferenceSession
from batch_export.runtime.values import Value
from batch_export.spec import ProviderSpec


class Session(Protocol):
    """An opened file.

    Attributes:
        input_names, output_names: in the file's order; initializers are not inputs.
        input_shapes: of each input, an int where the size is fixed and None where it is free; None as a whole when the
            file gives no shape.
        placement: nodes by the execution provider that they were assigned to (a node that ONNX Runtime folded into a
            constant before the assignment is not counted).
        load_seconds: how long opening took.
    """

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_shapes: tuple[tuple[int | None, ...] | None, ...]
    placement: dict[str, int]
    load_seconds: float

    def prepare(self, feeds: Mapping[str, Value]) -> Callable[[], Sequence[Any]]:
        """Returns a function that runs the file on these feeds; what it returns is of the runtime's own type."""

    def run(self, feeds: Mapping[str, Value]) -> list[Value]:
        """Runs the file and returns its outputs in order."""

    def close(self) -> None:
        """Frees the memory; the session cannot be used afterwards."""


def open_session(path: Path, provider: ProviderSpec, threads: int = 1) -> Session:
    """Opens an ONNX file.

    Args:
        path: the `.onnx` file, its external data beside it.
        provider: where to run it.
        threads: threads inside one operator; operators never run beside each other.

    Raises:
        ProviderUnavailableError: the execution provider is not there; ONNX Runtime itself would only warn.
        LoadError: the runtime refuses the file.
    """
    if reason := availability(provider):
        raise ProviderUnavailableError(f"provider {provider.name}: {reason}")
    return ReferenceSession(path) if provider.kind == "reference" else OrtSession(path, provider, threads)
