"""Sessions of ONNX Runtime in this process: the execution provider requested or an error, never another in silence.

A file and a `ProviderSpec` arrive; a session leaves (see `kinds.Session` for its members). What ONNX Runtime is asked
for is said in `served/onnxruntime.py`, which serves any release in an environment of its own too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from batch_export.numbers.values import Fed
from batch_export.runtime.crossing import received, sent
from batch_export.runtime.failures import LoadError, OptionsRejectedError, ProviderUnavailableError
from batch_export.runtime.provider_spec import OPTIMISATION_LEVELS, ProviderSpec

NEWEST_OPSET = 27
"""The newest opset that ONNX Runtime 1.31 reads: it counts 27 as not released, and takes it where the variable below
allows that."""

_ALLOWED = ("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")


class OrtSession:
    """A session of ONNX Runtime; see `Session` for the members."""

    def __init__(self, path: Path, provider: ProviderSpec, threads: int) -> None:
        from batch_export.runtime.served import onnxruntime  # lazy: it starts a thread, bad for who forks

        if provider.graph_optimization not in OPTIMISATION_LEVELS:
            raise LoadError(
                f"provider {provider.name}: graph_optimization is {provider.graph_optimization!r};"
                f" use one of {', '.join(OPTIMISATION_LEVELS)}"
            )
        os.environ.setdefault(*_ALLOWED)
        try:
            engine = onnxruntime.connect(provider.settings(threads))
        except onnxruntime.UnavailableError as error:
            raise ProviderUnavailableError(f"provider {provider.name}: {error}") from error
        except Exception as error:
            raise OptionsRejectedError(
                f"provider {provider.name}: ONNX Runtime rejects its options: {error}"
            ) from error
        start = perf_counter()
        try:
            self._opened: Any = engine.open(str(path))
        except onnxruntime.UnavailableError as error:
            raise ProviderUnavailableError(f"provider {provider.name}: {error}") from error
        except Exception as error:
            raise LoadError(f"onnxruntime cannot load {path.name}: {error}") from error
        self.load_seconds = perf_counter() - start
        self.input_names: tuple[str, ...] = tuple(self._opened.input_names)
        self.output_names: tuple[str, ...] = tuple(self._opened.output_names)
        self.input_shapes: tuple[tuple[int | None, ...] | None, ...] = tuple(
            None if shape is None else tuple(shape) for shape in self._opened.input_shapes
        )
        self.placement: dict[str, int] = self._opened.placement

    def prepare(self, feeds: Mapping[str, Fed]) -> Callable[[], Sequence[Any]]:
        """Returns a function that runs the file on these feeds, with every conversion of the feeds already done."""
        run: Callable[[], Sequence[Any]] = self._opened.prepare({name: sent(value) for name, value in feeds.items()})
        return run

    def run(self, feeds: Mapping[str, Fed]) -> list[Fed]:
        """Runs the file and returns its outputs in order; RuntimeError and its like come from ONNX Runtime."""
        return [received(*output) for output in self._opened.fetched(self.prepare(feeds)())]

    def close(self) -> None:
        """Frees the model's memory."""
        self._opened = None
