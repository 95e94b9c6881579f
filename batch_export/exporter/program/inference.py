"""Options of ONNX Runtime sessions that programs are run in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ONNXRuntimeOptions:
    """How ONNX Runtime runs a program.

    Attributes:
        session_options: an `onnxruntime.SessionOptions`, or a sequence of which the first is used.
        execution_providers: names, or pairs of a name and options, in order of preference.
        execution_provider_options: options for each of them, in the same order.
    """

    session_options: object = None
    execution_providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None
    execution_provider_options: Sequence[dict[Any, Any]] | None = None

    def initializer(self) -> Callable[[str | bytes], Any]:
        """A function from the path of a model to an `onnxruntime.InferenceSession`."""

        def open_session(model: str | bytes) -> object:
            import onnxruntime  # lazy: it starts a thread, which a process that forks must not have without need

            options = self.session_options
            if isinstance(options, (list, tuple)):
                options = options[0] if options else None
            providers = list(self.execution_providers or ("CPUExecutionProvider",))
            given = list(self.execution_provider_options) if self.execution_provider_options else None
            return onnxruntime.InferenceSession(model, options, providers=providers, provider_options=given)

        return open_session
