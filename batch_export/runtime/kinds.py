"""What a runtime is: a row with how it is opened, and the protocol of its sessions.

A package of anybody's adds one (`registered.py`). This file imports neither a runtime nor numpy, so that a sweep can be
planned without them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from batch_export.runtime.provider_spec import ProviderSpec

if TYPE_CHECKING:
    from batch_export.numbers.values import Fed


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

    def prepare(self, feeds: Mapping[str, Fed]) -> Callable[[], Sequence[Any]]:
        """Returns a function that runs the file on these feeds; what it returns is of the runtime's own type."""

    def run(self, feeds: Mapping[str, Fed]) -> Sequence[Fed]:
        """Runs the file and returns its outputs in order."""

    def close(self) -> None:
        """Frees the memory; the session cannot be used afterwards."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A kind of runtime.

    Attributes:
        name: `kind` in a provider's config.
        called: what sentences call it.
        library: import name of the package that it needs; of Node's, the name of its package.
        packages: distributions whose versions are in the keys of what ran there.
        open: opens a file in this process: its path, the provider's spec, and threads inside one operator. None: it
            always runs in a process of its own.
        execution_providers: gives the names of those that it can place nodes on in this environment; a provider's
            config then has to name one. None: it has none, and nothing is said of where nodes ran.
        always_has: those of them that every build has, known without importing anything.
        served: path of the module that `served/serve.py` runs it with, in a process and an environment of its own;
            empty: it cannot run in one.
        language: of that module.
        functions: whether it runs files that have functions of their own (`modules_as_functions`).
        script: path of the module that a report to its developers runs a file with (`scripts/`); empty: none.
    """

    name: str
    called: str
    library: str
    packages: tuple[str, ...]
    open: Callable[[Path, ProviderSpec, int], Session] | None
    execution_providers: Callable[[], Collection[str]] | None = None
    always_has: frozenset[str] = frozenset()
    served: str = ""
    language: Literal["python", "node"] = "python"
    functions: bool = True
    script: str = ""

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
        if self.always_has.issuperset(asked) and self.installed:
            return self.always_has
        return frozenset(self.execution_providers())

    def apart(self, provider: ProviderSpec) -> bool:
        """Whether it runs in a process of its own for this provider."""
        return bool(provider.env or provider.plugin) or self.open is None

    @property
    def installed(self) -> bool:
        """Whether its package is installed here."""
        return self.language == "python" and importlib.util.find_spec(self.library) is not None

    def absence(self, provider: ProviderSpec) -> str:
        """Returns "" if the provider can be used in this environment, or else the reason why not, as a sentence."""
        if not self.installed:
            return f"{self.called} needs the package {self.library}, which is not installed"
        if self.execution_providers is None or provider.execution_provider in self.execution_providers():
            return ""
        return f"{provider.execution_provider or 'an unnamed provider'} is not in this {self.library} build"
