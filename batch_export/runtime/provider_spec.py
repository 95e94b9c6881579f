"""Where a file is run, as frozen plain data: what `open_session` takes. Nothing is imported or opened here."""

from __future__ import annotations

from dataclasses import dataclass, field


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
