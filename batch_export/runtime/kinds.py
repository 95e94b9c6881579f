"""The kinds of runtimes that a file can be run in: one row each, behind one protocol of a session.

Another kind is a module with its session and a row here. This file imports neither a runtime nor numpy, so that a sweep
can be planned without them; a session's module is imported when a file is opened.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from batch_export.runtime.provider_spec import ProviderSpec

if TYPE_CHECKING:
    from batch_export.numbers.values import Value


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


@dataclass(frozen=True, slots=True)
class Runtime:
    """A kind of runtime.

    Attributes:
        name: `kind` in a provider's config.
        called: what sentences call it.
        library: import name of the package that it needs.
        packages: distributions whose versions are in the keys of what ran there.
        open: opens a file: its path, the provider's spec, and threads inside one operator.
        execution_providers: tells the names of those that it can place nodes on in this environment; a provider's
            config then has to name one. None: it has none, and nothing is said of where nodes ran.
        always_has: those of them that every build has, known without importing anything.
    """

    name: str
    called: str
    library: str
    packages: tuple[str, ...]
    open: Callable[[Path, ProviderSpec, int], Session]
    execution_providers: Callable[[], Collection[str]] | None = None
    always_has: frozenset[str] = frozenset()

    @property
    def places(self) -> bool:
        """Whether nodes are placed on execution providers, of which a provider's config names one."""
        return self.execution_providers is not None

    def names(self, asked: Collection[str]) -> frozenset[str]:
        """Returns the execution providers of this environment; nothing is imported where every build has those asked
        for.
        """
        if self.execution_providers is None:
            return frozenset()
        if self.always_has.issuperset(asked) and importlib.util.find_spec(self.library) is not None:
            return self.always_has
        return frozenset(self.execution_providers())

    def absence(self, provider: ProviderSpec) -> str:
        """Returns "" if the provider can be used in this environment, or else the reason why not, as a sentence."""
        if importlib.util.find_spec(self.library) is None:
            return f"{self.called} needs the package {self.library}, which is not installed"
        if self.execution_providers is None or provider.execution_provider in self.execution_providers():
            return ""
        return f"{provider.execution_provider or 'an unnamed provider'} is not in this {self.library} build"


def _open_onnxruntime(path: Path, provider: ProviderSpec, threads: int) -> Session:
    from batch_export.runtime.ort import OrtSession  # lazy: it imports numpy

    return OrtSession(path, provider, threads)


def _open_reference(path: Path, provider: ProviderSpec, threads: int) -> Session:
    from batch_export.runtime.reference import ReferenceSession  # lazy: it imports numpy

    del provider, threads  # it has no options and runs in one thread
    return ReferenceSession(path)


def _onnxruntime_providers() -> Collection[str]:
    import onnxruntime  # lazy: it starts a thread, which a process that forks must not have without need

    return list(onnxruntime.get_available_providers())


RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        Runtime(
            name="onnxruntime",
            called="ONNX Runtime",
            library="onnxruntime",
            packages=("onnxruntime",),
            open=_open_onnxruntime,
            execution_providers=_onnxruntime_providers,
            always_has=frozenset({"CPUExecutionProvider"}),
        ),
        Runtime(
            name="reference",
            called="the reference evaluator",
            library="onnx",
            packages=("onnx",),
            open=_open_reference,
        ),
    )
}
"""The kinds by name."""
