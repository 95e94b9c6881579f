"""Where a file is run, as frozen plain data: what `open_session` takes. Nothing is imported or opened here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OPTIMISATION_LEVELS = ("disabled", "basic", "extended", "all")
"""What a provider's `graph_optimization` may be."""

WARM_UP = 3
"""Runs before the first timed one, unless a provider's config says another number."""


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """Where a file is run.

    Attributes:
        kind: the runtime: `onnxruntime`, `reference` (onnx's reference evaluator), `openvino`, `tract`, `iree`, ..., or
            a plug-in's.
        execution_provider: ONNX Runtime's name, e.g. `CPUExecutionProvider`; OpenVINO's device; IREE's target;
            empty for `reference`.
        options: the execution provider's options, in the runtime's own words.
        graph_optimization: ONNX Runtime's level: `disabled`, `basic`, `extended`, `all`.
        max_parameters: models with more weights than this are skipped (the reference evaluator is slow); 0: no limit.
        opsets: the lowest and the highest opset that the provider loads.
        measure: whether latency is measured there.
        env: requirements of an environment that the runtime runs in, e.g. `openvino==2026.4.*`; empty: it runs with the
            packages that are installed here.
        variables: environment variables of a runtime that runs in a process of its own.
        device: which of the execution provider's devices, from 0 on.
        io_binding: whether timed runs find their inputs on the device, and leave their outputs there.
        warm_up: runs before the first one that is timed.
        after: execution providers that take what the first one leaves, in this order, before the CPU.
        fallback_limit: the share of nodes that may run on other providers than those (ONNX Runtime places some on the
            CPU on purpose); beyond it a cell fails. 1: any share but all.
        plugin: a plug-in execution provider's library: its path, or the package whose `get_library_path()` gives it.
            ONNX Runtime registers it in a process of its own.
    """

    name: str
    kind: str
    execution_provider: str = ""
    options: dict[str, str] = field(default_factory=dict)
    graph_optimization: str = "all"
    max_parameters: int = 0
    opsets: tuple[int, int] = (1, 26)
    measure: bool = True
    env: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    device: int = 0
    io_binding: bool = False
    warm_up: int = WARM_UP
    after: tuple[str, ...] = ()
    fallback_limit: float = 1.0
    plugin: str = ""

    def settings(self, threads: int, library: str = "") -> dict[str, Any]:
        """Returns what the module that serves a runtime is told (`served/serve.py`)."""
        return {
            "library": library,
            "execution_provider": self.execution_provider,
            "options": self.options,
            "graph_optimization": self.graph_optimization,
            "threads": threads,
            "device": self.device,
            "io_binding": self.io_binding,
            "after": list(self.after),
            "plugin": self.plugin,
        }
