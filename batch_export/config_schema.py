"""The shape of the configuration as Hydra sees it: dataclasses whose keys and types every YAML file and override fit.

The axes of the matrix are typed `Any` and checked in `config.py`, so that `matrix.opsets=20` works as `[20]` does and
a wrong value gets a sentence that knows the right ones. Nothing is read or resolved here.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

SCHEMA_NAME = "batch_export_schema"


@dataclass
class ExclusionConfig:
    reason: str = ""
    model: str = "*"
    dynamic: str = "*"
    opset: str = "*"
    provider: str = "*"
    exporter: str = "*"


@dataclass
class ExpectationConfig:
    reason: str = ""
    stage: str = "*"
    error_class: str = "*"
    link: str = ""
    model: str = "*"
    dynamic: str = "*"
    opset: str = "*"
    provider: str = "*"
    exporter: str = "*"


@dataclass
class MatrixConfig:
    models: Any = field(default_factory=list)
    opsets: Any = field(default_factory=list)
    dynamic: Any = field(default_factory=list)
    providers: Any = field(default_factory=list)
    exporters: Any = field(default_factory=list)
    exclude: list[ExclusionConfig] = field(default_factory=list)
    require_providers: bool = False


@dataclass
class RunnerConfig:
    n_jobs: int = -1
    timeout_s: float = 300.0
    memory_gb: float = 0.0
    threads: int = 1
    retries: int = 0
    allow_flaky: bool = False
    engine: str = "local"
    address: str = ""


@dataclass
class MeasureConfig:
    enabled: bool = True
    budget_s: float = 5.0
    min_s: float = 0.2
    min_runs: int = 20
    threads: int = 1
    refresh: str = "missing"


@dataclass
class VerifyConfig:
    """How many inputs files are verified with, and when eager runs in float64 as an oracle (auto, always, never)."""

    seeds: int = 0
    special: list[str] = field(default_factory=lambda: ["zeros", "large", "padding"])
    oracle: str = "auto"


@dataclass
class OutputConfig:
    path: str = "outputs"


@dataclass
class StoreConfig:
    path: str = "${output.path}/store"
    verify: str = "read"
    remote: str = ""
    shared: bool = False


@dataclass
class ToleranceConfig:
    atol: float = 0.0
    rtol: float = 0.0


@dataclass
class TolerancesConfig:
    """By dtype of the eager output; float32 leaves room for another order of summation, not for a wrong operator."""

    float64: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(1e-9, 1e-7))
    float32: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(1e-4, 1e-3))
    float16: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(5e-3, 1e-2))
    bfloat16: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(3e-2, 5e-2))
    float8_e4m3fn: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(1.3e-1, 1.3e-1))
    float8_e5m2: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(2.6e-1, 2.6e-1))
    complex64: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(1e-4, 1e-3))
    complex128: ToleranceConfig = field(default_factory=lambda: ToleranceConfig(1e-9, 1e-7))


@dataclass
class Config:
    matrix: MatrixConfig = field(default_factory=MatrixConfig)
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    tolerances: TolerancesConfig = field(default_factory=TolerancesConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    expectations: list[ExpectationConfig] = field(default_factory=list)
    baseline: str = ""


def register() -> None:
    """Makes the schema known to Hydra, and the resolver for the run folder's name (time of day with milliseconds)."""
    ConfigStore.instance().store(name=SCHEMA_NAME, node=Config)
    OmegaConf.register_new_resolver("batch_export_time", _time_of_day, use_cache=True, replace=True)


def known_keys(schema: type = Config, prefix: str = "") -> tuple[str, ...]:
    """Every key that an override may name, dotted, inner nodes included."""
    keys: list[str] = []
    hints = get_type_hints(schema)
    for item in fields(schema):
        name = f"{prefix}{item.name}"
        keys.append(name)
        inner = hints[item.name]
        if isinstance(inner, type) and is_dataclass(inner):
            keys.extend(known_keys(inner, f"{name}."))
    return tuple(keys)


def nearest(word: str, choices: list[str] | tuple[str, ...], count: int = 3) -> list[str]:
    """The choices that look most like `word`, best first; may be empty."""
    return difflib.get_close_matches(word, choices, n=count, cutoff=0.5)


def _time_of_day() -> str:
    return datetime.now().strftime("%H-%M-%S-%f")[:-3]
